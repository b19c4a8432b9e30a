"""last_indices: scatters that replace elements become one op, their gradients read where an index won; same results."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from graphs.pass_examples import evaluate
from graphs.random_graphs import graph_of, input_of

from dslc.compiler.ir.graph import Graph, Input, Kind, Value
from dslc.compiler.ir.op import OPS, Builder
from dslc.compiler.ir.types import DType
from dslc.compiler.ir.verify.graph import verify_graph
from dslc.compiler.passes.fuse.indexed.last_indices import last_indices

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


def same(graph: Graph, low: int = 0) -> list[str]:
    """The ops after the pass, which has the same results and is not changed by a second run."""
    found = last_indices(graph)
    verify_graph(found)
    assert last_indices(found) is found
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


@pytest.mark.parametrize("low", [0, -1])
@pytest.mark.parametrize("zeros", [False, True])
@pytest.mark.parametrize("axis", [0, 1])
def test_one_op_replaces_elements(axis: int, zeros: bool, low: int) -> None:
    names = same(replaced(axis, gradient=False, zeros=zeros), low)
    assert [name for name in names if name != "transpose"] == ["scatter_last"]
    assert ("transpose" in names) == (axis == 0)


@pytest.mark.parametrize("low", [0, -1])
@pytest.mark.parametrize("axis", [0, 1])
def test_the_gradient_reads_where_an_index_won(axis: int, low: int) -> None:
    names = same(replaced(axis, gradient=True), low)
    assert "last_places" in names and "scatter_add" not in names and "scatter_reduce" not in names
    assert "scatter_last" not in names, "the last places are there in any case"


def test_places_of_integers_that_ignore_unknown_ids() -> None:
    last, index = places(1, lost=False)
    assert same(graph_of([index], {"y": last}), low=-2) == ["last_places"]


def test_what_stays() -> None:
    x, src = (input_of(n, Kind.DATA, 4, n_) for n, n_ in (("x", COUNT), ("src", LENGTH)))
    index = input_of("index", Kind.DATA, 4, LENGTH, dtype=DType.I32)
    y = B(OPS["scatter_reduce"], x.value, src.value, index.value, axis=1, how="max")
    graph = graph_of([x, src, index], {"y": y})
    assert last_indices(graph) is graph
