"""recompute_outputs: a recomputed value is a second output of a kernel that reads the same tensors; same bits."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from graphs.random_graphs import assert_same_bits, evaluate, graph_of, input_of
from graphs.random_training import random_training, training_feeds

from dslc.compiler.cost import machine_of
from dslc.compiler.ir.graph import Graph, Kind, Node, Phase, Value
from dslc.compiler.ir.op import OPS, Builder
from dslc.compiler.ir.text import format_graph
from dslc.compiler.ir.verify.graph import verify_graph
from dslc.compiler.passes import queries
from dslc.compiler.passes.fuse.pointwise.inline import inline
from dslc.compiler.passes.fuse.pointwise.pointwise import fuse_graph
from dslc.compiler.passes.fuse.pointwise.recompute_outputs import recompute_outputs
from dslc.compiler.passes.mirror.candidates import propose
from dslc.compiler.passes.mirror.recipes import recipes
from dslc.compiler.passes.mirror.rewrite import with_copies
from dslc.compiler.passes.mirror.training_graph import TrainingGraph

MIRROR = Builder(name="a", phase=Phase.MIRROR)
BACK = Builder(name="b", phase=Phase.BACKWARD)
ROWS, WIDTH = 512, 64
X, DY, W = (input_of(name, Kind.DATA, ROWS, WIDTH) for name in ("x", "dy", "w"))
x, dy = X.value, DY.value


def _product(a: Value, b: Value) -> Value:
    return BACK(OPS["matmul"], a, b, transpose_a=True, transpose_b=False)


def _step(read: Value) -> Graph:
    """The weight's gradient from tanh(x) computed again, and a gradient made of ``read`` and x."""
    again = MIRROR(OPS["tanh"], x)
    gradient = BACK(OPS["mul"], read, x)
    return graph_of([X, DY, W], {"result.w": _product(again, W.value), "result.x": gradient})


def _two_results(graph: Graph) -> list[Node]:
    return [n for n in graph.nodes if len(n.outputs) == 2 and n.op.name == "fused"]


def test_a_copy_goes_where_its_source_is_read(golden: Callable[[str, str], None]) -> None:
    graph = _step(dy)
    after = recompute_outputs(graph)
    verify_graph(after)
    [both] = _two_results(after)
    assert both.phase is Phase.BACKWARD and both.inputs == (dy, x) and len(after.nodes) == len(graph.nodes) - 1
    assert recompute_outputs(after) is after, "a second run changes something"
    feeds = training_feeds(graph, 1)
    assert_same_bits(evaluate(graph, feeds), evaluate(after, feeds))
    golden("passes/recompute_outputs.txt", f"before\n\n{format_graph(graph)}\nafter\n\n{format_graph(after)}")


def test_no_circle_is_made() -> None:
    again = MIRROR(OPS["tanh"], x)
    gradient = BACK(OPS["mul"], _expanded(_product(again, W.value)), x)  # depends on the copy
    graph = graph_of([X, DY, W], {"result.x": gradient})
    assert recompute_outputs(graph) is graph
    first, second = MIRROR(OPS["tanh"], x), MIRROR(OPS["sin"], dy)
    one = BACK(
        OPS["mul"], _expanded(_product(second, W.value)), x
    )  # each would join a kernel that depends on the other
    two = BACK(OPS["mul"], _expanded(_product(first, W.value)), dy)
    graph = graph_of([X, DY, W], {"result.a": one, "result.b": two})
    assert recompute_outputs(graph) is graph


def _expanded(value: Value) -> Value:
    row = BACK(OPS["mean"], value, over=(0,), keep=True)
    return BACK(OPS["expand"], row, shape=(ROWS, WIDTH))


def test_every_bit_is_kept(fuzz_count: Callable[[int], int], fuzz_seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queries, "SMALL_BYTES", 64)
    rng = random.Random(fuzz_seed)
    merged = 0
    for case in range(fuzz_count(1000)):
        graph = random_training(rng, rng.randint(1, 25))
        training = TrainingGraph(graph, extra_outputs=True)
        choice = propose(training, training.candidates)
        before = inline(fuse_graph(with_copies(graph, recipes(training, choice, machine_of("cpu")))), lambda _: True)
        after = recompute_outputs(before)
        verify_graph(after)
        merged += len(_two_results(after)) - len(_two_results(before))
        feeds = training_feeds(graph, case)
        assert_same_bits(evaluate(graph, feeds), evaluate(after, feeds))
    assert merged > 0  # about 20 in 100 cases
