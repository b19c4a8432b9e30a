"""joined_loops: loops with equal steps that need nothing of each other become one node, which computes the same."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import chdir
from pathlib import Path
from typing import Any

import pytest
from graphs.pass_examples import evaluate, feeds_of
from graphs.random_graphs import assert_same_bits

from dslc.cli.views.graphs import difference
from dslc.compiler.artifact.plan import plan_of
from dslc.compiler.check.model import check_file
from dslc.compiler.codegen.cuda.variants import RESIDENT
from dslc.compiler.ir.bodies.scans import loops_of, scans
from dslc.compiler.ir.choice import Choice, Choices, Measured, key_of
from dslc.compiler.ir.graph import Graph, Node
from dslc.compiler.ir.program import Program
from dslc.compiler.ir.scan import scan
from dslc.compiler.ir.text import format_graph, parse_graph
from dslc.compiler.ir.verify.graph import verify_graph
from dslc.compiler.options import Options
from dslc.compiler.passes.plan.joined_loops import with_joined_loops
from dslc.compiler.pipeline import compile_entry, foresee
from dslc.compiler.report.facts import Facts
from dslc.runtime.artifact.instructions import Kernel

LAYER = "y, last = x |> gru(H, bidirectional=true) as a"


def compiled(
    folder: Path, body: str = LAYER, entry: str = "train_step", after: str | None = None, hidden: int = 32,
    choices: Choices | None = None, **options: Any,
) -> Program:  # fmt: skip
    """A model whose last value is ``y``."""
    (folder / "m.nn").write_text(
        f"nn 1\nconst H = {hidden}\nmodel M(x: [4, 6, 16]) -> [4] {{\n  {body}\n  return mean(y, over=[1, 2])\n}}\n"
        "train M(t: [4]) {\n  loss = mse(output, t)\n  optimizer = sgd(lr=0.1)\n}\n"
    )
    given = Options(**{"target": "sm_90", "provider": "own", "precision": "bf16"} | options)
    more = {} if choices is None else {"choices": choices}
    return compile_entry(check_file(folder / "m.nn"), entry, {}, given, after=after, **more)[0]


def loops(graph: Graph) -> list[int]:
    """For each node of loops, how many it runs."""
    return [len(loops_of(n)) if n.op is scans else 1 for n in graph.nodes if n.op in (scan, scans)]


@pytest.mark.parametrize("provider", ["own", "vendor"])
@pytest.mark.parametrize("layer", [LAYER, "y, h, c = x |> lstm(H, bidirectional=true) as a"])
def test_both_directions_are_one_kernel(tmp_path: Path, layer: str, provider: str) -> None:
    """Forward, and those of the gradient; with one piece of scratch memory."""
    program = compiled(tmp_path, layer, provider=provider)
    found = [node for node in program.graph.nodes if node.op is scans]
    assert loops(program.graph) == [2, 2] and [*map(len, map(loops_of, found))] == [2, 2]
    assert [node.attrs["reverse"] for node in found] == [(False, True), (True, False)]
    assert program.memory is not None and not program.loops
    launched = {each.symbol: each.grid for each in plan_of(program).instructions if isinstance(each, Kernel)}
    for node in found:
        _, kernel = program.kernels[node]
        assert launched[kernel.symbol] == kernel.spec.geometry.grid
        grid = kernel.spec.geometry.grid
        assert grid[1:] == (2, 1) and grid[0] * 2 <= 114
        assert program.scratch[node] == (2 * kernel.spec.division.scratch_bytes,)
    assert [each.where for each in Facts(program).work if each.what == "scans"] == ["resident kernel"] * 2


def test_the_numbers_stay(tmp_path: Path) -> None:
    before, after = (compiled(tmp_path, after=name).graph for name in ("chains", "joined_loops"))
    assert (loops(before), loops(after)) == ([1, 1, 1, 1], [2, 2])
    verify_graph(after)
    feeds = feeds_of(before, 5)
    assert_same_bits(evaluate(before, feeds), evaluate(after, feeds))


def test_a_layer_waits_for_the_one_before(tmp_path: Path) -> None:
    stack = "x, h = x |> gru(H, bidirectional=true) as b\n  " + LAYER
    assert loops(compiled(tmp_path, stack, "predict").graph) == [2, 2]


@pytest.mark.parametrize(
    "body",
    [
        "y, last = x |> gru(H) as a",
        "z, last = x |> gru(H) as a\n  y, end = z |> gru(H) as b",
        "z, last = x |> gru(H) as a\n  w, h, c = x |> lstm(H) as b\n  y = z + w",
        "z, last = x |> gru(H) as a\n  w, end = x |> gru(2 * H) as b\n  y = concat([z, w], axis=2)",
    ],
)
def test_others_stay(tmp_path: Path, body: str) -> None:
    """One loop; one that needs the other; other steps; other sizes."""
    assert set(loops(compiled(tmp_path, body, "predict").graph)) == {1}


def test_builds_whose_loops_stay(tmp_path: Path) -> None:
    """Their kernels cannot wait, they do not fuse, or they have no bytes to give away."""
    for more in ({"target": "sm_80"}, {"target": "cpu", "precision": "f32"}, {"fuse": False}, {"mirror": 1 << 30}):
        assert loops(compiled(tmp_path, entry="predict", **more).graph) == [1, 1], more


def test_a_budget_is_foreseen_as_it_is_built(tmp_path: Path) -> None:
    """One of several that are planned together, of which one has no budget."""
    compiled(tmp_path)
    checked = check_file(tmp_path / "m.nn")
    options = Options(target="sm_90", provider="own", precision="bf16")
    found = foresee(checked, "train_step", {}, options, ("auto", 1 << 30, "never"))
    assert [loops(program.graph) for program in found] == [[2, 2], [1, 1, 1, 1], [2, 2]]


def test_a_model_of_time_decides(tmp_path: Path) -> None:
    """A layer of 800 fits half of the multiprocessors; one of 992 fits all, but not half."""
    assert loops(compiled(tmp_path, entry="predict", hidden=800).graph) == [2]
    wide = compiled(tmp_path, entry="predict", hidden=992)
    assert loops(wide.graph) == [1, 1] and not wide.loops


def test_a_measured_choice_decides_first(tmp_path: Path) -> None:
    def by(*names: str) -> list[int]:
        ways = {key_of(loop): (Measured(Choice("own", name), 1e-3),) for loop, name in zip(apart, names, strict=True)}
        return loops(compiled(tmp_path, entry="predict", choices=Choices(ways)).graph)

    graph = compiled(tmp_path, entry="predict", after="chains").graph
    apart = [node for node in graph.nodes if node.op is scan]
    assert by("", "") == by("", RESIDENT) == by(RESIDENT, "") == [1, 1]
    assert by(RESIDENT, RESIDENT) == [2]


def test_how_many_at_once(tmp_path: Path) -> None:
    """Of four equal loops, as many as the target says; what is left over is asked for again."""
    graph = compiled(
        tmp_path, LAYER + "\n  z, end = x |> gru(H, bidirectional=true) as b\n  y = y + z", "predict", after="chains"
    ).graph
    asked: list[int] = []

    def at_once(loop: Node, count: int) -> int:
        asked.append(count)
        return min(3, count)

    assert loops(with_joined_loops(graph, at_once)) == [3, 1] and asked == [4]
    assert loops(with_joined_loops(graph, lambda loop, count: 2)) == [2, 2]
    assert with_joined_loops(graph, lambda loop, count: 1) is graph
    after = with_joined_loops(graph, lambda loop, count: 4)
    assert loops(after) == [4] and with_joined_loops(after, lambda loop, count: 4) is after
    verify_graph(after)


def test_its_text_is_read_again(tmp_path: Path) -> None:
    graph = compiled(tmp_path, entry="predict").graph
    text = format_graph(graph)
    assert "reverse=(False, True)" in text
    again = format_graph(parse_graph(text))
    assert [line.split("  #")[0] for line in again.splitlines()] == [line.split("  #")[0] for line in text.splitlines()]


def test_a_wrong_number_of_inputs_is_refused(tmp_path: Path) -> None:
    [node] = (n for n in compiled(tmp_path, entry="predict").graph.nodes if n.op is scans)
    with pytest.raises(Exception, match="2 loops are given"):
        scans.infer(node.input_types[:-1], node.attrs)


def test_golden(tmp_path: Path, golden: Callable[[str, str], None]) -> None:
    with chdir(tmp_path):
        before, after = (compiled(Path(), entry="predict", after=name).graph for name in ("chains", "joined_loops"))
    golden("passes/joined_loops.txt", difference(format_graph(before), format_graph(after)))
