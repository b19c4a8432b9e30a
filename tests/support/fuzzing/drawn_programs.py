"""Programs by seed, and the file that keeps one that failed."""

from __future__ import annotations

import tempfile
from pathlib import Path

from fuzzing import rules_algebra as rules_algebra  # adds its rules
from fuzzing import rules_formulas as rules_formulas
from fuzzing import rules_images as rules_images
from fuzzing import rules_loops as rules_loops
from fuzzing import rules_losses as rules_losses
from fuzzing import rules_random as rules_random
from fuzzing import rules_shape as rules_shape
from fuzzing.programs import Program, random_program
from fuzzing.rules import RULES

from dslc.compiler.ir.types import DType
from dslc.compiler.ops.registry import optimizers


def program_of(seed: int) -> Program:
    return random_program(seed, RULES, optimizers())


def dtype_of(seed: int) -> DType:
    return (DType.F32, DType.F64)[seed % 2]


def saved(program: Program) -> Path:
    folder = Path(tempfile.gettempdir()) / "dslc-failing-programs"
    folder.mkdir(exist_ok=True)
    path = folder / f"{dtype_of(program.seed).value}_{program.seed}.nn"
    path.write_text(program.text())
    return path
