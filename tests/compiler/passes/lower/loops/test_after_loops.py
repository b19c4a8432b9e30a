"""after_loops: sums over all steps and old values of carries are computed after the loop."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from graphs.pass_examples import evaluate, feeds_of
from loops import CELLS, model
from places import ROOT

from dslc.compiler.artifact.plan import plan_of
from dslc.compiler.check.model import check_file
from dslc.compiler.codegen.cuda.recurrent import division
from dslc.compiler.ir.scan import Loop, scan
from dslc.compiler.ir.verify.graph import verify_graph
from dslc.compiler.options import Options
from dslc.compiler.passes.lower.loops import after_loops as loops
from dslc.compiler.passes.lower.loops.after_loops import after_loops
from dslc.compiler.pipeline import compile_entry
from dslc.runtime.artifact.instructions import Loop as LoopBegin
from dslc.runtime.artifact.instructions import LoopEnd


@pytest.mark.parametrize("precision", ["f32", "bf16"])
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("steps", [1, 3])
@pytest.mark.parametrize("name", sorted(CELLS))
def test_values_are_kept(name: str, steps: int, reverse: bool, precision: str, tmp_path: Path, fuzz_seed: int) -> None:
    """But for the order in which steps are added."""
    (tmp_path / "net.nn").write_text(model(CELLS[name], steps, written_out=False, reverse=reverse))
    check_values(tmp_path / "net.nn", 2, precision, fuzz_seed)


def check_values(path: Path, rows: int, precision: str, fuzz_seed: int) -> None:
    options = Options(target="sm_90", precision=precision, provider="own")
    graph = compile_entry(check_file(path), "train_step", {"B": rows}, options, after="half_loops")[0].graph
    found = after_loops(graph)
    verify_graph(found)
    assert after_loops(found) is found
    feeds = feeds_of(graph, fuzz_seed)
    before, after = evaluate(graph, feeds), evaluate(found, feeds)
    assert before.keys() == after.keys()
    for key, value in before.items():
        np.testing.assert_allclose(after[key], value, rtol=0, atol=1e-13 * max(1.0, np.abs(value).max()), err_msg=key)


def test_a_bias_is_summed_after_the_loop_and_no_old_carry_is_a_result(tmp_path: Path) -> None:
    (tmp_path / "net.nn").write_text(model(CELLS["lstm"], 3, written_out=False))
    options = Options(target="sm_90", provider="own")
    checked = check_file(tmp_path / "net.nn")
    graph = compile_entry(checked, "train_step", {"B": 2}, options, after="after_loops")[0].graph
    found = [Loop.of(node) for node in graph.nodes if node.op is scan]
    assert len(found) == 2
    for loop in found:
        assert not any(node.op.name == "sum_to" for node in loop.graph.nodes)
        assert not {source.value for source in loop.carry_inputs} & {*loop.graph.outputs.values()}


def added_in_steps(path: Path, rows: int) -> list[str]:
    """The ops of a training step's loops that sum rows."""
    options = Options(target="sm_90", provider="own")
    graph = compile_entry(check_file(path), "train_step", {"B": rows}, options, after="after_loops")[0].graph
    inner = [node for loop in graph.nodes if loop.op is scan for node in Loop.of(loop).graph.nodes]
    return [node.op.name for node in inner if node.op.name == "sum_to" or node.attrs.get("transpose_a")]


@pytest.mark.parametrize("precision", ["f32", "bf16"])
@pytest.mark.parametrize(("name", "rows"), [("lstm", 16), ("two sequences", 2), ("layer", 8)])
def test_rows_that_the_loop_did_not_yield_are_summed_after_it(
    name: str, rows: int, precision: str, tmp_path: Path, fuzz_seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of products with many rows, and of vectors of weights; rows of more bytes stay in the loop."""
    path = tmp_path / "net.nn"
    path.write_text(model(CELLS[name], 3, written_out=False))
    check_values(path, rows, precision, fuzz_seed)
    assert not added_in_steps(path, rows)
    monkeypatch.setattr(loops, "_MOST_BYTES", 0)
    assert added_in_steps(path, rows)


@pytest.mark.parametrize("precision", ["f32", "bf16"])
@pytest.mark.parametrize("file", ["tests/models/lstm_lm.nn", "benchmarks/cells.nn:Lstm"])
def test_a_step_of_an_lstm_has_three_launches_and_its_gradient_three(
    file: str, precision: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(division, "_TRIP", 1.0)  # seconds: no loop is one resident kernel
    path, _, name = file.partition(":")
    checked = check_file(ROOT / path, name or None)
    options = Options(target="sm_90", precision=precision, provider="vendor")
    sizes = {dim.name: dim.default for dim in checked.dims}
    plan = plan_of(compile_entry(checked, "train_step", sizes, options)[0])
    inside, counts = False, []
    for each in plan.instructions:
        if isinstance(each, LoopBegin):
            inside, counts = True, [*counts, 0]
        elif isinstance(each, LoopEnd):
            inside = False
        elif inside:
            counts[-1] += 1
    assert counts and counts == [3] * len(counts)
