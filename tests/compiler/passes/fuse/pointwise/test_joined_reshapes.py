"""Reshapes of reshapes, which passes leave that change shapes."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from graphs.random_graphs import assert_same_bits, build_for, evaluate, graph_of, input_of

from dslc.compiler.ir.graph import Graph, Kind, Value
from dslc.compiler.ir.op import OPS, Builder
from dslc.compiler.ir.program import Program
from dslc.compiler.ir.text import format_graph
from dslc.compiler.ir.verify.graph import verify_graph
from dslc.compiler.passes.fuse.pointwise.joined_reshapes import joined_reshapes
from dslc.compiler.passes.order import PIPELINE
from dslc.compiler.passes.runner import run_passes

X = input_of("x", Kind.DATA, 4, 6)
B = Builder(name="net")


def shaped(value: Value, *shape: int) -> Value:
    return B(OPS["reshape"], value, shape=shape)


def joined(graph: Graph) -> Graph:
    after = joined_reshapes(Program("predict", {}, graph), build_for(graph)).graph
    verify_graph(after)
    feeds = {"x": np.random.default_rng(3).normal(size=(4, 6)).astype(np.float32)}
    assert_same_bits(evaluate(graph, feeds), evaluate(after, feeds))
    return after


def test_chains_are_one_reshape_or_none(golden: Callable[[str, str], None]) -> None:
    three = shaped(shaped(B(OPS["exp"], X.value), 24), 2, 12)
    before = graph_of([X], {"a": shaped(three, 3, 8), "b": shaped(three, 4, 6), "c": three})
    after = joined(before)
    golden("passes/joined_reshapes.txt", f"before\n\n{format_graph(before)}\nafter\n\n{format_graph(after)}")
    assert [n.op.name for n in after.nodes] == ["exp", "reshape", "reshape"]
    a, b, c = after.outputs.values()
    assert a.producer.inputs == c.producer.inputs == (b,)
    assert b.type.ints == (4, 6)


def test_single_reshapes_are_left() -> None:
    graph = graph_of([X], {"a": shaped(B(OPS["exp"], shaped(X.value, 24)), 6, 4)})
    assert joined(graph) is graph


def test_a_reader_of_parts_in_place_reads_them_in_its_own_shape() -> None:
    """The parts of a concatenation in one node, whose result is reshaped for a transpose that moves no element."""
    column, scale = input_of("column", Kind.DATA, 4, 1), input_of("scale", Kind.DATA)
    doubled = B(OPS["mul"], scale.value, B(OPS["concat"], column.value, column.value, axis=0))
    row = B(OPS["transpose"], doubled, perm=(1, 0))
    table = B(OPS["mul"], B(OPS["tanh"], column.value), row)
    graph = graph_of([column, scale], {"result": table})
    build = build_for(graph)
    once, _ = run_passes(Program("predict", {}, graph), build, PIPELINE)
    twice, _ = run_passes(once, build, PIPELINE)
    assert "fused_stack" in format_graph(once.graph), "the case is no longer one"
    assert twice.graph is once.graph
