"""known_values: what depends on no input is computed when a model is built; the same bits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from graphs.random_graphs import assert_same_bits, evaluate, graph_of, input_of

from dslc.compiler.ir.graph import Graph, Kind, Value
from dslc.compiler.ir.op import OPS, Builder
from dslc.compiler.ir.text import format_graph
from dslc.compiler.ir.types import DType
from dslc.compiler.ir.verify.graph import verify_graph
from dslc.compiler.passes.lower.known_values import known_values

B = Builder(name="a")
X = input_of("x", Kind.DATA, 5, 7, 2)


def full(value: Any, dtype: DType = DType.F32) -> Value:
    return B(OPS["full"], value=value, dtype=dtype, shape=())


def count(n: int, dtype: DType = DType.F32) -> Value:
    return B(OPS["cast"], B(OPS["arange"], shape=(n,), start=0, step=1), dtype=dtype)


def numbers(graph: Graph) -> dict[str, np.ndarray]:
    return {i.name: i.stored.numbers(i.value.type.dtype) for i in graph.inputs if i.stored is not None}


def checked(graph: Graph) -> Graph:
    after = known_values(graph)
    verify_graph(after)
    assert known_values(after) is after, "a second run changes something"
    rng = np.random.default_rng(0)
    feeds = {i.name: rng.normal(size=i.value.type.ints).astype(np.float32) for i in graph.inputs}
    assert_same_bits(evaluate(graph, feeds), evaluate(after, feeds | numbers(after)))
    return after


def test_an_index_and_its_views(golden: Callable[[str, str], None]) -> None:
    place = B(OPS["add"], count(14), full(0.5))
    grid = B(OPS["reshape"], place, shape=(7, 2))
    second = B(OPS["gt"], B(OPS["arange"], shape=(2,), start=0, step=1), full(0, DType.I32))
    y = B(OPS["where"], second, B(OPS["mul"], X.value, grid), X.value)
    graph = graph_of([X], {"y": y, "line": place})
    after = checked(graph)
    assert {value.dtype for value in numbers(after).values()} == {np.dtype("float32"), np.dtype("bool")}
    assert [node.op.name for node in after.nodes] == ["reshape", "mul", "where"]
    golden("passes/known_values.txt", f"before\n\n{format_graph(graph)}\nafter\n\n{format_graph(after)}")


def test_equal_numbers_are_stored_once() -> None:
    left, right = (B(OPS["add"], count(7), full(1.0)) for _ in range(2))
    y = B(OPS["mul"], B(OPS["reshape"], left, shape=(7, 1)), X.value)
    after = checked(graph_of([X], {"y": B(OPS["add"], y, B(OPS["reshape"], right, shape=(1, 7, 1)))}))
    assert len(numbers(after)) == 1


@pytest.mark.parametrize(
    "value",
    [
        B(OPS["exp"], count(7)),  # which kernels round otherwise than numpy
        B(OPS["add"], count(1 << 15), full(1.0)),  # larger than what takes no time to move
    ],
)
def test_other_values_stay(value: Value) -> None:
    after = checked(graph_of([X], {"y": value}))
    assert after.nodes[-1].out is after.outputs["y"]


def test_numbers_that_are_all_equal_stay() -> None:
    y = B(OPS["add"], X.value, B(OPS["expand"], full(2.0), shape=(7, 1)))
    graph = graph_of([X], {"y": y})
    assert known_values(graph) is graph


def test_values_of_16_bits_stay() -> None:
    graph = graph_of([X], {"y": B(OPS["cast"], count(7), dtype=DType.BF16)})
    after = known_values(graph)
    assert [node.op.name for node in after.nodes] == ["cast"] and len(numbers(after)) == 1
