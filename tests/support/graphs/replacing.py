"""Graphs of scatters that replace elements, as the function `scatter` makes them, before and after a pass."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from graphs.pass_examples import evaluate
from graphs.random_graphs import graph_of, input_of

from dslc.compiler.ir.graph import Graph, Input, Kind, Value
from dslc.compiler.ir.op import OPS, Builder
from dslc.compiler.ir.types import DType
from dslc.compiler.ir.verify.graph import verify_graph

B = Builder(name="a")
COUNT, LENGTH = 6, 9
SHAPES = {0: ((COUNT, 4), (LENGTH, 4)), 1: ((4, COUNT), (4, LENGTH))}


def full(value: float, dtype: DType, shape: tuple[int, ...] = ()) -> Value:
    return B(OPS["full"], value=value, dtype=dtype, shape=shape)


def places(axis: int, lost: bool = True) -> tuple[Value, Input]:
    """The last place of each id along the axis, as `scatter` makes it, and the ids."""
    (result, given) = SHAPES[axis]
    index = input_of("index", Kind.DATA, *given, dtype=DType.I32)
    line = B(OPS["reshape"], B(OPS["arange"], shape=(LENGTH,), start=0, step=1), shape=(LENGTH, 1)[:: 1 - 2 * axis])
    each, none = B(OPS["expand"], line, shape=given), full(-1, DType.I32, result)
    more: dict[str, Any] = {"lost": LENGTH} if lost else {}
    return B(OPS["scatter_reduce"], none, each, index.value, axis=axis, how="max", **more), index


def replaced(axis: int, gradient: bool, zeros: bool = False) -> Graph:
    last, index = places(axis)
    x, src, dy = (input_of(n, Kind.DATA, *SHAPES[axis][n == "src"]) for n in ("x", "src", "dy"))
    zero = full(0, DType.I32)
    found, at = B(OPS["ge"], last, zero), B(OPS["maximum"], last, zero)
    other = full(0.0, DType.F32) if zeros else x.value
    y = B(OPS["where"], found, B(OPS["gather"], src.value, at, axis=axis), other)
    inputs, outputs = [src] if zeros else [x, src], {"y": y}
    if gradient:
        kept = B(OPS["where"], found, dy.value, full(0.0, DType.F32))
        outputs |= {"d": B(OPS["scatter_add"], kept, at, axis=axis, count=LENGTH)}
        outputs |= {"dx": B(OPS["where"], found, full(0.0, DType.F32), dy.value)}
        inputs.append(dy)
    return graph_of([*inputs, index], outputs)


def same(rewrite: Callable[[Graph], Graph], graph: Graph, low: int = 0) -> list[str]:
    """The ops after a pass, which has the same results and is not changed by a second run. Ids are drawn from ``low``
    on."""
    found = rewrite(graph)
    verify_graph(found)
    assert rewrite(found) is found
    rng = np.random.default_rng(3)
    feeds = {
        i.name: rng.integers(low, COUNT, i.value.type.ints).astype(np.int32)
        if i.value.type.dtype.is_int
        else rng.normal(size=i.value.type.ints)
        for i in graph.inputs
    }
    one, other = evaluate(graph, feeds), evaluate(found, feeds)
    for name in one:
        np.testing.assert_array_equal(other[name], one[name], err_msg=name)
    return [node.op.name for node in found.nodes]
