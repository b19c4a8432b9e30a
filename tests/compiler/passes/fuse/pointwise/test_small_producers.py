"""small_producers: readers compute values that take less time than a launch; the same bits, on the GPU, too."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from gpu_kernels.on_ptx_machine import on_machine
from graphs.random_graphs import assert_same_bits, evaluate, feeds_of, graph_of, input_of

from dslc.compiler.ir.build import Build
from dslc.compiler.ir.graph import Graph, Kind, Phase, Value
from dslc.compiler.ir.op import OPS, Builder
from dslc.compiler.ir.text import format_graph
from dslc.compiler.ir.verify.graph import verify_graph
from dslc.compiler.ops.compound.fused import MAX_STEPS
from dslc.compiler.passes.fuse.pointwise.pointwise import fuse_graph
from dslc.compiler.passes.fuse.pointwise.small_producers import pays, small_producers

B = Builder(name="a")
X, Y = input_of("x", Kind.DATA, 6, 1, 2), input_of("y", Kind.DATA, 6, 5, 2)
RULE = pays(Build(target="sm_90", provider="own"))


def after(graph: Graph) -> Graph:
    before = fuse_graph(graph)
    found = small_producers(before, RULE)
    verify_graph(found)
    assert small_producers(found, RULE) is found, "a second run changes something"
    feeds = feeds_of(graph, 0)
    assert_same_bits(evaluate(graph, feeds), evaluate(found, feeds))
    return found


def small(x: Value = X.value) -> Value:
    return B(OPS["floor"], B(OPS["mul"], x, x))


def test_two_readers(golden: Callable[[str, str], None]) -> None:
    """A chain of values of two shapes, of which each reader computes all."""
    low = small()
    rest = B(OPS["sub"], X.value, low)
    graph = graph_of([X, Y], {"p": B(OPS["mul"], Y.value, rest), "q": B(OPS["add"], Y.value, low)})
    found = after(graph)
    assert len(found.nodes) == 2
    golden("passes/small_producers.txt", f"before\n\n{format_graph(fuse_graph(graph))}\nafter\n\n{format_graph(found)}")
    for node in found.nodes:
        xs = [np.asarray(feeds_of(graph, 0)[v.producer.name], np.float32) for v in node.inputs]  # type: ignore[union-attr]
        [wanted] = node.op.meaning(xs, node.attrs)
        np.testing.assert_array_equal(on_machine(node, xs)[0].reshape(wanted.shape), wanted)


@pytest.mark.parametrize("reader", ["result", "sum", "backward"])
def test_values_that_others_read_stay(reader: str) -> None:
    low = small()
    outputs = {"y": B(OPS["mul"], Y.value, low)}
    if reader == "result":
        outputs["low"] = low
    elif reader == "sum":
        outputs["sum"] = B(OPS["sum"], low, over=(1,), keep=False)
    else:
        outputs["back"] = Builder(phase=Phase.BACKWARD)(OPS["mul"], Y.value, low)
    graph = fuse_graph(graph_of([X, Y], outputs))
    assert small_producers(graph, RULE) is graph


def test_readers_have_limits() -> None:
    """Of steps, and of the time that they may take for the value."""
    low = small()
    long = Y.value
    for _ in range(MAX_STEPS - 1):
        long = B(OPS["add"], long, low)
    graph = fuse_graph(graph_of([X, Y], {"y": long}))
    assert small_producers(graph, RULE) is graph
    wide = input_of("wide", Kind.DATA, 1 << 13, 6, 512, 2)
    graph = fuse_graph(graph_of([X, wide], {"y": B(OPS["mul"], wide.value, small())}))
    assert small_producers(graph, RULE) is graph


def test_large_values_stay() -> None:
    large, line = input_of("large", Kind.DATA, 1 << 21, 1), input_of("line", Kind.DATA, 1 << 21, 2)
    graph = fuse_graph(graph_of([large, line], {"y": B(OPS["mul"], line.value, small(large.value))}))
    assert small_producers(graph, RULE) is graph
