"""Small slices of one tensor as one node."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from graphs.random_graphs import assert_same_bits, evaluate, graph_of, input_of

from dslc.compiler.ir.build import Build
from dslc.compiler.ir.graph import Graph, Kind, Phase, Value
from dslc.compiler.ir.op import OPS, Builder
from dslc.compiler.ir.program import Program
from dslc.compiler.ir.text import format_graph
from dslc.compiler.ir.types import DType
from dslc.compiler.ir.verify.graph import verify_graph
from dslc.compiler.ops.compound.boxes import MAX_BOXES
from dslc.compiler.passes.fuse.horizontal import joined_slices as module
from dslc.compiler.passes.fuse.horizontal.joined_slices import joined_slices
from dslc.compiler.passes.fuse.pointwise.pointwise import fuse
from dslc.compiler.passes.fuse.pointwise.slice_reads import slice_reads

X = input_of("x", Kind.DATA, 6, 60)


def columns(first: int, last: int, step: int = 1, phase: Phase = Phase.FORWARD, source: Value = X.value) -> Value:
    b = Builder(name="split", phase=phase)
    return b(OPS["slice"], source, starts=(0, first), stops=(6, last), steps=(1, step))


def graph(*parts: Value) -> Graph:
    return graph_of([X], {f"result.{n}": v for n, v in enumerate(parts)})


def checked(*parts: Value) -> list[int]:
    """How many results each joined node has."""
    before = graph(*parts)
    after = joined_slices(before)
    verify_graph(after)
    assert joined_slices(after) is after
    feeds = {"x": np.random.default_rng(3).normal(size=(6, 60)).astype(np.float32)}
    assert_same_bits(evaluate(before, feeds), evaluate(after, feeds))
    return [len(n.outputs) for n in after.nodes if n.op.name == "slices"]


def test_parts_of_a_row(golden: Callable[[str, str], None]) -> None:
    parts = columns(0, 8), columns(8, 24), columns(4, 10)
    assert checked(*parts) == [3]
    before, after = graph(*parts), joined_slices(graph(*parts))
    golden("passes/joined_slices.txt", f"before\n\n{format_graph(before)}\nafter\n\n{format_graph(after)}")


def test_a_slice_of_a_slice_is_of_another_tensor() -> None:
    inside = Builder(name="split")(OPS["exp"], columns(0, 30))
    assert checked(columns(1, 2), inside, columns(3, 9, source=X.value)) == [3]
    assert checked(inside, *(columns(i, i + 2) for i in range(2))) == [3]


def test_more_slices_than_a_node_takes() -> None:
    assert checked(*(columns(i, i + 1) for i in range(MAX_BOXES + 2))) == [MAX_BOXES, 2]


@pytest.mark.parametrize(
    "parts",
    [
        pytest.param((columns(0, 8), columns(0, 8, 2)), id="steps"),
        pytest.param((columns(0, 8), columns(8, 9, phase=Phase.BACKWARD)), id="phases"),
        pytest.param((columns(0, 8), columns(8, 8)), id="nothing"),
    ],
)
def test_other_slices_stay(parts: tuple[Value, ...]) -> None:
    assert not checked(*parts)


def test_large_slices_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_BYTES", 6 * 8 * 4)
    assert checked(columns(0, 8), columns(8, 16)) == [2]
    assert not checked(columns(0, 9), columns(9, 18))


def test_slices_that_are_cast_in_their_reader_are_joined() -> None:
    halves = [Builder(name="split")(OPS["cast"], columns(i, i + 4), dtype=DType.BF16) for i in (0, 8)]
    before = slice_reads(fuse(Program("predict", {}, graph(*halves)), Build()).graph)
    assert [n.op.name for n in before.nodes] == ["fused", "fused"]
    [node] = joined_slices(before).nodes
    assert node.op.name == "slices" and [t.dtype for t in node.types] == [DType.BF16] * 2
    verify_graph(joined_slices(before))
    feeds = {"x": np.random.default_rng(3).normal(size=(6, 60)).astype(np.float32)}
    assert_same_bits(evaluate(before, feeds), evaluate(joined_slices(before), feeds))
