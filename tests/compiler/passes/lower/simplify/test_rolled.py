"""simplify: parts of a tensor in another order round an axis are a roll, and rolls of rolls are one."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import numpy as np
import pytest
from graphs.random_graphs import assert_same_bits, evaluate

from dslc.compiler.ir.graph import Graph, Input, Kind, Value, order
from dslc.compiler.ir.op import OPS, Builder
from dslc.compiler.ir.types import DType, TensorType
from dslc.compiler.ir.verify.graph import verify_graph
from dslc.compiler.passes.lower.simplify.simplify import simplify_graph

B = Builder(name="a")
SHAPE = (2, 7, 5, 6)
Made: TypeAlias = Callable[[Value, Value], Value]


def part(x: Value, axis: int, start: int, stop: int, step: int = 1) -> Value:
    starts, stops, steps = [0] * 4, [*x.type.ints], [1] * 4
    starts[axis], stops[axis], steps[axis] = start, stop, step
    return B(OPS["slice"], x, starts=tuple(starts), stops=tuple(stops), steps=tuple(steps))


def joined(axis: int, *parts: Value) -> Value:
    return B(OPS["concat"], *parts, axis=axis)


def turned(x: Value, axis: int, by: int) -> Value:
    size = x.type.ints[axis]
    return joined(axis, part(x, axis, by, size), part(x, axis, 0, by))


def rolled(x: Value, *shifts: int) -> Value:
    return B(OPS["roll"], x, shifts=shifts)


def ops(made: Made) -> list[str]:
    """The ops of the simplified graph, whose result has the same bits."""
    x, y = (Input(name, Kind.DATA, TensorType(DType.F32, SHAPE)) for name in "xy")
    results = {"result.z": made(x.value, y.value)}
    graph = Graph((x, y), order(list(results.values())), results)
    found = simplify_graph(graph)
    verify_graph(found)
    rng = np.random.default_rng(0)
    feeds = {i.name: rng.normal(size=SHAPE).astype(np.float32) for i in graph.inputs}
    assert_same_bits(evaluate(graph, feeds), evaluate(found, feeds))
    return [node.op.name for node in found.nodes]


@pytest.mark.parametrize(
    ("made", "left"),
    [
        (lambda x, y: turned(x, 1, 3), ["roll"]),
        (lambda x, y: turned(turned(x, 1, 3), 2, 1), ["roll"]),  # as windows of an image are shifted
        (lambda x, y: turned(turned(x, 1, 3), 1, 4), []),  # and back
        (lambda x, y: joined(0, *(part(x, 0, n, n + 1) for n in (1, 0))), ["roll"]),
        (lambda x, y: joined(1, *(part(x, 1, *span) for span in ((4, 7), (0, 1), (1, 4)))), ["roll"]),
        (lambda x, y: rolled(rolled(x, 0, 3, 0, -1), 0, -3, 0, 2), ["roll"]),
        (lambda x, y: rolled(x, 2, -7, 10, 0), []),
    ],
)
def test_it_becomes_a_roll(made: Made, left: list[str]) -> None:
    assert ops(made) == left


@pytest.mark.parametrize(
    "made",
    [
        lambda x, y: turned(x, 3, 2),  # along the innermost axis
        lambda x, y: joined(1, part(x, 1, 3, 7), part(y, 1, 0, 3)),
        lambda x, y: joined(1, part(x, 1, 3, 6), part(x, 1, 0, 4)),  # one is missing, and one is there twice
        lambda x, y: joined(1, part(x, 1, 4, 7), part(x, 1, 0, 2), part(x, 1, 1, 3)),
        lambda x, y: joined(1, part(x, 1, 1, 7, 2), part(x, 1, 0, 7, 2)),
        lambda x, y: joined(1, part(x, 1, 3, 7), x),
    ],
)
def test_other_parts_stay(made: Made) -> None:
    assert "roll" not in ops(made)
