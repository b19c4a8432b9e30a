"""Random programs as whole artifacts with compiled kernels: near what the f64 interpreter gives."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from fuzzing.artifacts import held, held_in_16_bits
from fuzzing.differential import case_of
from fuzzing.drawn_programs import program_of, saved

pytestmark = pytest.mark.slow

COUNT = 100 if os.environ.get("DSLC_SOAK") == "1" else 3
PARTS = 3


@pytest.mark.parametrize("part", range(PARTS))
def test_artifacts_give_what_the_interpreter_gives(part: int, fuzz_seed: int, tmp_path: Path) -> None:
    for number in range(part, COUNT, PARTS):
        program = program_of(fuzz_seed * 100_000 + 50_000 + number)
        case = case_of(program, tmp_path / "m.nn")
        try:
            held(case, tmp_path / "m.dslc")
        except Exception as error:
            error.add_note(f"seed {program.seed}; the program: {saved(program)}")
            raise


@pytest.mark.parametrize("part", range(PARTS))
def test_artifacts_in_16_bits(part: int, fuzz_seed: int, tmp_path: Path) -> None:
    for number in range(part, COUNT, PARTS):
        program = program_of(fuzz_seed * 100_000 + 60_000 + number)
        case = case_of(program, tmp_path / "m.nn")
        try:
            held_in_16_bits(case, tmp_path / "m.dslc", ("bf16", "f16")[number % 2])
        except Exception as error:
            error.add_note(f"seed {program.seed}; the program: {saved(program)}")
            raise
