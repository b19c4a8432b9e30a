"""Plans of loops: their size does not depend on the number of steps, and nobody reads what nobody wants."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
from loops import CELLS, model

from dslc.compiler.artifact.plan import plan_of
from dslc.compiler.artifact.state_layout import layout_state
from dslc.compiler.check.model import check_file
from dslc.compiler.ir.graph import Graph
from dslc.compiler.ir.program import Program
from dslc.compiler.ir.scan import body_of, scan, with_body
from dslc.compiler.ir.text import format_graph, parse_graph
from dslc.compiler.ir.types import DType
from dslc.compiler.ir.verify.error import VerifyError
from dslc.compiler.ir.verify.graph import verify_graph
from dslc.compiler.ir.verify.program import verify_program
from dslc.compiler.options import Options
from dslc.compiler.passes.fuse.body import ops_of
from dslc.compiler.passes.lower.loops.prune_loops import prune_loops
from dslc.compiler.pipeline import build_options, compile_entry
from dslc.runtime.artifact.instructions import Loop, Reference
from dslc.runtime.artifact.loops import unrolled


def program(text: str, folder: Path, entry: str = "train_step", **options: object) -> Program:
    (folder / "net.nn").write_text(text)
    given = Options(provider="reference", **options)  # type: ignore[arg-type]
    return compile_entry(check_file(folder / "net.nn"), entry, {"B": 2}, given)[0]


def loops(graph: Graph) -> list:
    return [node for node in graph.nodes if node.op is scan]


def test_the_plan_does_not_grow_with_the_steps(tmp_path: Path) -> None:
    plans = [plan_of(program(model(CELLS["lstm"], n, written_out=False), tmp_path)) for n in (35, 4096)]
    short, long = (len(plan.encode()) for plan in plans)
    assert long < 1.1 * short
    assert len(plans[0].instructions) == len(plans[1].instructions)
    assert [i.count for i in plans[1].instructions if isinstance(i, Loop)] == [4096, 4096]


def test_a_step_of_shards_runs_a_loop_once(tmp_path: Path) -> None:
    text = model(CELLS["lstm"], 3, written_out=False) + "mesh { shards = 2 }\n"
    assert len(loops(program(text, tmp_path).graph)) == 2  # and the second one, of the gradient


def test_a_loop_with_one_result_is_fused_with_nothing(tmp_path: Path) -> None:
    """Passes that fuse ask a node for its steps: a loop is no step, and its op is in no table."""
    text = "nn 1\ndim B in 1..4 = 2\ndim T in 1..4 = 3\nmodel M(x: [B, T, 4]) -> [B, 4] {\n  s = zeros([B, 4])\n"
    text += "  scan xt in x along T carry s {\n    s = s * 0.5 + xt\n  }\n  return tanh(s * 2)\n}\n"
    (tmp_path / "net.nn").write_text(text)
    made = compile_entry(check_file(tmp_path / "net.nn"), "predict", {"B": 2, "T": 3}, Options(target="sm_90"))[0]
    [loop] = loops(made.graph)
    assert len(loop.outputs) == 1 and ops_of(loop) == [scan]


def test_a_body_is_read_back(tmp_path: Path) -> None:
    graph = program(model(CELLS["nested"], 3, written_out=False), tmp_path).graph
    again = parse_graph(format_graph(graph))
    verify_graph(again)
    assert format_graph(parse_graph(format_graph(again))) == format_graph(again)
    assert any(loops(body_of(node.attrs)) for node in loops(again))


def test_the_verifier_looks_into_bodies(tmp_path: Path) -> None:
    made = program(model(CELLS["lstm"], 3, written_out=False), tmp_path, "predict")
    [node] = loops(made.graph)
    body = body_of(node.attrs)
    broken = dataclasses.replace(body, nodes=tuple(reversed(body.nodes)))
    graph = made.graph.rewrite(lambda each: with_body(each, broken) if each is node else None)
    with pytest.raises(VerifyError, match="before it is read"):
        verify_graph(graph)
    checked = check_file(tmp_path / "net.nn")
    build = build_options(checked, Options(), layout_state(checked, DType.F32, None))
    verify_program(made, build)
    with pytest.raises(VerifyError, match="not planned"):
        verify_program(dataclasses.replace(made, loops={}), build)
    with pytest.raises(VerifyError, match="scratch"):
        verify_program(dataclasses.replace(made, scratch={}), build)


def test_loops_without_readers_shrink(tmp_path: Path) -> None:
    text = (
        "nn 1\nmodel Net(x: [5, 3], w: [3]) -> [5, 3] {\n  h = zeros([3])\n  g = zeros([3])\n  k = ones([3])\n"
        "  scan xt in x along 0 carry h, g, k into y, z, v {\n    h = h + xt * k\n    g = g + w\n    yield h, g, xt\n"
        "  }\n  return y + v\n}\n"
    )
    [node] = loops(program(text, tmp_path, "predict").graph)
    body = body_of(node.attrs)
    assert len(body.updates) == 1 and len(body.outputs) == 1  # g is not read, k does not change, v is x
    assert len(node.inputs) == 3


def test_a_loop_without_steps_hands_on_its_first_values(tmp_path: Path) -> None:
    text = (
        "nn 1\nmodel Net(x: [5, 3]) -> ([3], [0, 3]) {\n  h = sum(x, over=0)\n"
        "  scan xt in x[0:0] along 0 carry h into y { h = h + xt; yield h }\n  return h, y\n}\n"
    )
    graph = program(text, tmp_path, "predict").graph
    assert not loops(graph) and prune_loops(graph) is graph


def test_an_unrolled_plan_has_every_step(tmp_path: Path) -> None:
    plan = plan_of(program(model(CELLS["nested"], 3, written_out=False), tmp_path, "predict"))
    flat = unrolled(plan)
    assert not any(isinstance(i, Loop) for i in flat.instructions)
    tanh = [i for i in flat.instructions if isinstance(i, Reference) and "tanh" in str(i.attrs)]
    assert len(tanh) == 3 * 4
    read = {flat.buffers[b] for i in tanh for b in i.inputs}
    elements = {b.offset for b in read if b.shape == (2,) and b.dtype == "f32"}
    assert len(elements) == 4 + 1  # those of the inner sequence, and the inner carry
    assert unrolled(flat) is flat


def test_products_that_need_no_carry_are_outside_of_the_loops(tmp_path: Path) -> None:
    text = model(CELLS["lstm"], 5, written_out=False).replace(
        "scan xt, zt in x, z", "x = x @ ones([4, 4])\n  scan xt, zt in x, z"
    )
    (tmp_path / "net.nn").write_text(text)
    made, _ = compile_entry(check_file(tmp_path / "net.nn"), "train_step", {"B": 2}, Options(), after="simplify")
    for node in loops(made.graph):
        assert sum(each.op.name == "matmul" for each in body_of(node.attrs).nodes) == 1  # with the carry h
    batched = [node for node in made.graph.nodes if node.op.name == "matmul" and node.types[0].ints == (10, 16)]
    assert len(batched) == 1  # 5 steps of 2 rows
