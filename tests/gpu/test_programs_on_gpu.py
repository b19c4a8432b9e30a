"""Random programs built for the GPU that is here, trained and asked on it: near what the f64 interpreter gives.

Skipped where there is no GPU, or where CUDA cannot be compiled. ``DSLC_GPU_PROGRAMS``: how many.
"""

from __future__ import annotations

import os
from importlib.util import find_spec
from pathlib import Path

import pytest
from real_gpu.launcher import Gpu, why_not

COUNT = int(os.environ.get("DSLC_GPU_PROGRAMS", "30"))
PARTS = 10
MISSING = why_not() or next((f"no {n}" for n in ("numba_cuda", "lark", "hypothesis") if find_spec(n) is None), None)
pytestmark = pytest.mark.skipif(MISSING is not None, reason=str(MISSING))


@pytest.mark.parametrize("part", range(PARTS))
def test_artifacts_on_a_gpu_give_what_the_interpreter_gives(part: int, fuzz_seed: int, tmp_path: Path) -> None:
    from fuzzing.artifacts import held
    from fuzzing.differential import case_of
    from fuzzing.drawn_programs import program_of, saved

    architecture = Gpu().architecture
    for number in range(part, COUNT, PARTS):
        program = program_of(fuzz_seed * 100_000 + 70_000 + number)
        case = case_of(program, tmp_path / "m.nn")
        try:
            held(case, tmp_path / "m.dslc", architecture, "own")
        except Exception as error:
            error.add_note(f"seed {program.seed}; the program: {saved(program)}")
            raise
