"""Of orders with equal peaks the one is taken that reads the most from caches."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from random_graphs import graph_of, input_of, random_graph

from dslc.compiler.ir.graph import Graph, Kind, Node, Value
from dslc.compiler.ir.op import OPS, Builder
from dslc.compiler.passes import schedule as module
from dslc.compiler.passes.schedule import fetched, peak, scheduled

_ROWS = 5 << 18  # of 8 numbers of f32: as much as a cache holds


def _long_ago(layers: int) -> tuple[Graph, list[Node]]:
    """A chain of large tensors, each summed up; the sums all behind the chain are read from memory."""
    b, x = Builder(name="net"), input_of("x", Kind.DATA, _ROWS, 8)
    chain: list[Value] = [x.value]
    for _ in range(layers):
        chain.append(b(OPS["tanh"], chain[-1]))
    sums = [b(OPS["sum"], value, over=(0,), keep=False) for value in chain[1:]]
    graph = graph_of([x], {f"result.{i}": value for i, value in enumerate(sums)})
    nodes = [v.producer for v in (*chain[1:], *sums)]
    return graph, [n for n in nodes if isinstance(n, Node)]


def test_what_was_just_written_is_read() -> None:
    graph, late = _long_ago(3)
    soon = [late[i] for i in (0, 3, 1, 4, 2, 5)]
    size = _ROWS * 8 * 4
    assert size == module._HELD
    assert fetched(graph, soon) == size  # the input
    assert fetched(graph, late) == 4 * size


def test_of_equals_the_one_that_fetches_least(monkeypatch: pytest.MonkeyPatch) -> None:
    graph, late = _long_ago(3)
    soon = [late[i] for i in (0, 3, 1, 4, 2, 5)]
    monkeypatch.setattr(module, "_peak", lambda tables, order: 1)
    for orders in ([late, soon], [soon, late]):
        monkeypatch.setattr(module, "_candidates", lambda tables, orders=orders: orders)
        assert scheduled(graph) == (soon, 1)


def test_bytes_come_first(fuzz_count: Callable[[int], int], fuzz_seed: int) -> None:
    rng = random.Random(fuzz_seed)
    for _ in range(fuzz_count(200)):
        graph = random_graph(rng, rng.randint(1, 40))
        order, least = scheduled(graph)
        peaks = [peak(graph, other) for other in module._candidates(module._Tables(graph))]
        assert peak(graph, order) == least == min(peaks)
