"""Random programs over the whole function table: compiled, planned and run, they give what an interpreter gives.

A program that fails is shrunk and saved to a file that the message names; it becomes a file of ``tests/regress``.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from fuzzing.differential import case_of, case_of_file, gradient, hold
from fuzzing.drawn_programs import dtype_of, program_of, saved
from fuzzing.programs import Program, shrunk
from places import REGRESS

from dslc.compiler.ir.types import DType
from dslc.compiler.ops.registry import functions, optimizers
from dslc.dsl.diagnostics import CompileError

pytestmark = pytest.mark.slow

SOAK = os.environ.get("DSLC_SOAK") == "1"
COUNT = 4_000 if SOAK else 300
PARTS = 10
#: programs among which each function must be; the rarest is in one of 70, so that no seed misses them
MOST = 5_000


def failure(program: Program, folder: Path) -> Exception | None:
    """What goes wrong with a program; a program that is not valid is no failure."""
    try:
        case = case_of(program, folder / "m.nn")
    except CompileError:
        return None
    try:
        hold(case, dtype_of(program.seed))
    except Exception as error:  # noqa: BLE001 - any exception is a finding
        return error
    return None


def smallest(program: Program, error: Exception, folder: Path) -> Program:
    """The least program that still fails in the same way."""

    def fails(smaller: Program) -> bool:
        found = failure(smaller, folder)
        return type(found) is type(error) and getattr(found, "__notes__", []) == getattr(error, "__notes__", [])

    return shrunk(program, fails)


@pytest.mark.parametrize("part", range(PARTS))
def test_programs_give_what_the_interpreter_gives(part: int, fuzz_seed: int, tmp_path: Path) -> None:
    for number in range(part, COUNT, PARTS):
        seed = fuzz_seed * 100_000 + number
        program = program_of(seed)
        case = case_of(program, tmp_path / "m.nn")  # every program that is written is valid
        try:
            hold(case, dtype_of(seed))
        except Exception as error:
            path = saved(smallest(program, error, tmp_path))
            error.add_note(f"seed {seed}; the least program that fails so: {path}; it belongs into {REGRESS}")
            raise


def test_every_function_and_optimizer_is_in_the_programs(fuzz_seed: int) -> None:
    missing = functions().keys() | optimizers().keys()
    for number in range(MOST):
        missing = missing - program_of(fuzz_seed * 100_000 + number).functions
        if not missing:
            return
    pytest.fail(f"a rule of fuzzing/ is missing for {sorted(missing)}")


def test_programs_that_failed_once() -> None:
    paths = sorted(REGRESS.glob("f*.nn"))
    assert paths
    for path in paths:
        hold(case_of_file(path), DType(path.stem.partition("_")[0]))


def test_most_gradients_are_compared(fuzz_seed: int, tmp_path: Path) -> None:
    """Kinks are rare: else the comparison of gradients would pass by saying nothing."""
    compared = params = 0
    for seed in range(fuzz_seed, fuzz_seed + 20):
        case = case_of(program_of(seed), tmp_path / "m.nn")
        compared += gradient(case, case.state(DType.F64))
        params += sum(1 for p in case.checked.params.values() if p.input.kind.value == "param")
    assert compared >= 0.8 * params > 0


def test_a_failing_program_is_made_small(tmp_path: Path) -> None:
    """With a law that forbids `tanh`, what is left holds little more than one."""
    found: Callable[[Program], bool] = lambda p: any("tanh(" in s.text for s in p.statements)  # noqa: E731
    program = next(p for p in map(program_of, range(1000)) if len(p.statements) > 8 and found(p))

    def fails(smaller: Program) -> bool:
        case_of(smaller, tmp_path / "m.nn")  # what is left is always valid
        return found(smaller)

    least = shrunk(program, fails)
    assert found(least) and len(least.statements) <= 3
