"""beside: what is computed again is a second result of a kernel that reads the same; the same bits, no circles."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from random_graphs import assert_same_bits, evaluate, graph_of, input_of
from test_mirror import _feeds, _random_training

from dslc.compiler.ir.build import Build
from dslc.compiler.ir.graph import Graph, Kind, Node, Phase, Value
from dslc.compiler.ir.op import OPS, Builder
from dslc.compiler.ir.program import Program
from dslc.compiler.ir.text import format_graph
from dslc.compiler.ir.verify import verify_graph
from dslc.compiler.passes.fuse import recompute_outputs as module
from dslc.compiler.passes.fuse.duplicate import absorb_graph
from dslc.compiler.passes.fuse.pointwise import fuse_graph
from dslc.compiler.passes.fuse.recompute_outputs import beside, beside_graph
from dslc.compiler.passes.mirror.candidates import Facts, propose
from dslc.compiler.passes.mirror.rewrite import recipes, with_copies

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
    after = beside_graph(graph)
    verify_graph(after)
    [both] = _two_results(after)
    assert both.phase is Phase.BACKWARD and both.inputs == (dy, x) and len(after.nodes) == len(graph.nodes) - 1
    assert beside_graph(after) is after, "a second run changes something"
    feeds = _feeds(graph, 1)
    assert_same_bits(evaluate(graph, feeds), evaluate(after, feeds))
    golden("passes/beside.txt", f"before\n\n{format_graph(graph)}\nafter\n\n{format_graph(after)}")


def test_no_circle_is_made() -> None:
    again = MIRROR(OPS["tanh"], x)
    gradient = BACK(OPS["mul"], _expanded(_product(again, W.value)), x)  # comes of the copy
    graph = graph_of([X, DY, W], {"result.x": gradient})
    assert beside_graph(graph) is graph
    first, second = MIRROR(OPS["tanh"], x), MIRROR(OPS["sin"], dy)
    one = BACK(OPS["mul"], _expanded(_product(second, W.value)), x)  # each would go beside what comes of the other
    two = BACK(OPS["mul"], _expanded(_product(first, W.value)), dy)
    graph = graph_of([X, DY, W], {"result.a": one, "result.b": two})
    assert beside_graph(graph) is graph


def _expanded(value: Value) -> Value:
    row = BACK(OPS["mean"], value, over=(0,), keep=True)
    return BACK(OPS["expand"], row, shape=(ROWS, WIDTH))


def test_a_cpu_and_an_unfused_build_have_none() -> None:
    program = Program("train_step", {}, _step(dy))
    assert beside(program, Build()) is program
    assert beside(program, Build(target="sm_90", fuse=False)) is program
    assert _two_results(beside(program, Build(target="sm_90")).graph)


def test_every_bit_is_kept(fuzz_count: Callable[[int], int], fuzz_seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SMALL", 64)
    rng = random.Random(fuzz_seed)
    merged = 0
    for case in range(fuzz_count(1000)):
        graph = _random_training(rng, rng.randint(1, 25))
        facts = Facts(graph, beside=True)
        choice = propose(facts, facts.candidates)
        before = absorb_graph(fuse_graph(with_copies(graph, recipes(facts, choice))))
        after = beside_graph(before)
        verify_graph(after)
        merged += len(_two_results(after)) - len(_two_results(before))
        feeds = _feeds(graph, case)
        assert_same_bits(evaluate(graph, feeds), evaluate(after, feeds))
    assert merged > 5
