"""untransposed: pointwise ops between a transpose and its inverse."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from graphs.random_graphs import assert_same_bits, evaluate

from dslc.compiler.ir.graph import Graph, Input, Kind, Value, order
from dslc.compiler.ir.op import OPS, Builder
from dslc.compiler.ir.types import DType, TensorType
from dslc.compiler.ir.verify.graph import verify_graph
from dslc.compiler.passes.lower.simplify.simplify import simplify_graph
from dslc.compiler.passes.lower.simplify.untransposed import untransposed

Made = Callable[[Builder, Value, Value], dict[str, Value]]
LAST, FIRST = (0, 2, 3, 1), (0, 3, 1, 2)


def op(b: Builder, name: str, *inputs: Value, **attrs: Any) -> Value:
    return b(OPS[name], *inputs, **attrs)


def last(b: Builder, x: Value) -> Value:
    return op(b, "transpose", x, perm=LAST)


def first(b: Builder, x: Value) -> Value:
    return op(b, "transpose", x, perm=FIRST)


def run(made: Made) -> tuple[Graph, Graph]:
    x = Input("x", Kind.DATA, TensorType(DType.F32, (2, 6, 3, 5)))
    v = Input("v", Kind.DATA, TensorType(DType.F32, (6,)))
    results = made(Builder(name="a"), x.value, v.value)
    graph = Graph((x, v), order(list(results.values())), results)
    found = simplify_graph(untransposed(graph))
    verify_graph(found)
    rng = np.random.default_rng(0)
    feeds = {i.name: rng.normal(size=i.value.type.ints).astype(np.float32) for i in graph.inputs}
    assert_same_bits(evaluate(graph, feeds), evaluate(found, feeds))
    return graph, found


def transposes(graph: Graph) -> int:
    return sum(node.op.name == "transpose" for node in graph.nodes)


GONE: dict[str, Made] = {
    "one op": lambda b, x, v: {"result.y": first(b, op(b, "relu", last(b, x)))},
    "a chain with a vector": lambda b, x, v: {
        "result.y": first(b, op(b, "tanh", op(b, "mul", op(b, "add", last(b, x), v), v)))
    },
    "two tensors": lambda b, x, v: {"result.y": first(b, op(b, "mul", last(b, x), op(b, "exp", last(b, x))))},
    "one after another": lambda b, x, v: {
        "result.y": first(b, op(b, "relu", last(b, first(b, op(b, "tanh", op(b, "exp", last(b, x)))))))
    },
}


@pytest.mark.parametrize("name", GONE)
def test_no_transpose_stays(name: str) -> None:
    graph, found = run(GONE[name])
    assert transposes(graph) >= 2 and transposes(found) == 0


def test_what_something_else_reads_is_computed_twice_if_that_is_cheap() -> None:
    def made(b: Builder, x: Value, v: Value) -> dict[str, Value]:
        y = op(b, "relu", last(b, x))
        return {"result.last": y, "result.first": first(b, y)}

    graph, found = run(made)
    assert transposes(graph) == 2 and transposes(found) == 1


def test_other_axes_stay() -> None:
    def made(b: Builder, x: Value, v: Value) -> dict[str, Value]:
        return {"result.y": last(b, op(b, "relu", last(b, x)))}

    _, found = run(made)
    assert transposes(found) == 2


def test_a_reduction_between_them_stays() -> None:
    def made(b: Builder, x: Value, v: Value) -> dict[str, Value]:
        return {"result.y": first(b, op(b, "softmax", last(b, x), axis=3))}

    _, found = run(made)
    assert transposes(found) == 2
