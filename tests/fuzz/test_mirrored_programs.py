"""Random programs whose plan takes as few bytes as it can: the same losses, gradients and updates, bit for bit."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest
from fuzzing.differential import Case, case_of, case_of_file, same_bits
from fuzzing.drawn_programs import dtype_of, program_of
from fuzzing.execution import Compiled, executed, feeds_for

from dslc.compiler import pipeline
from dslc.compiler.artifact.state_layout import layout_state
from dslc.compiler.ir.build import Precision
from dslc.compiler.ir.graph import Phase
from dslc.compiler.ir.program import Program
from dslc.compiler.ir.verify.program import verify_program
from dslc.compiler.options import Options
from dslc.compiler.passes.order import PIPELINE
from dslc.compiler.passes.runner import run_passes

pytestmark = pytest.mark.slow

COUNT = 200 if os.environ.get("DSLC_SOAK") == "1" else 20


def trained(case: Case, seed: int, mirror: str | int) -> tuple[Program, dict[str, object]]:
    """The program of a training step, and what it gives."""
    dtype = dtype_of(seed)
    layout = layout_state(case.checked, dtype)
    options = Options(provider="reference", precision=dtype.value, mirror=mirror)
    build = replace(pipeline.build_options(case.checked, options, layout), precision=Precision(dtype, dtype))
    cut = pipeline.cut(case.checked, "train_step", case.sizes)
    program, _ = run_passes(cut, build, PIPELINE)
    verify_program(program, build)
    feeds = feeds_for(cut.graph, case.seed, dtype, case.high) | case.state(dtype)
    return program, executed(Compiled(program, build), feeds, poison=True)


def test_mirrored_programs_give_the_same_bits(fuzz_seed: int, tmp_path: Path) -> None:
    copied, tried, seed = 0, 0, fuzz_seed * 100_000
    while tried < COUNT:
        seed += 1
        program = program_of(seed)
        if not program.trained:
            continue
        tried += 1
        case = case_of(program, tmp_path / "m.nn")
        plain, expected = trained(case, seed, "never")
        mirrored, got = trained(case, seed, 1)
        copied += mirrored.mirrored is not None
        try:
            same_bits(got, expected)  # type: ignore[arg-type]
        except AssertionError as error:
            error.add_note(f"seed {seed}:\n{program.text()}")
            raise
        assert plain.memory is not None and mirrored.memory is not None
        assert mirrored.memory.work_bytes <= plain.memory.work_bytes, f"seed {seed}"
        updated = [i.name for i, _ in mirrored.graph.updates]
        assert len(updated) == len({*updated}) and {*updated} == {i.name for i, _ in plain.graph.updates}
    assert copied >= COUNT // 20, "hardly any program computes anything again"


@pytest.mark.parametrize("norm", ["batchnorm", "layernorm |> dropout(0.4)"])
def test_statistics_and_masks_are_those_of_the_plain_step(norm: str, tmp_path: Path) -> None:
    path = tmp_path / "m.nn"
    path.write_text(
        "nn 1\ndim B in 1..64 = 32\n"
        f"@mirror(always)\nblock step(x: [N, D]) -> [N, D] {{ return x |> linear(D) |> {norm} |> gelu }}\n"
        "model M(x: [B, 16]) -> [B, 4] { return x |> step |> step |> step |> linear(4) as head }\n"
        "train M(t: [B, 4]) {\n  loss = mse(output, t)\n  optimizer = sgd(lr=0.1, momentum=0.9)\n}\n"
        '# case: {"seed": 3, "high": {}}\n'
    )
    case = case_of_file(path)
    _, expected = trained(case, 0, "never")
    mirrored, got = trained(case, 0, "auto")
    again = {n.op.name for n in mirrored.graph.nodes if n.phase is Phase.MIRROR}
    assert {norm.partition(" ")[0], "gelu"} <= again and ("dropout" in again) == ("dropout" in norm)
    same_bits(got, expected)  # type: ignore[arg-type]
    updated = [i.name for i, _ in mirrored.graph.updates]
    statistics = [name for name in updated if name.endswith(("running_mean", "running_var"))]
    assert len(statistics) == len({*statistics}) == (6 if norm == "batchnorm" else 0)
