"""last_indices: scatters that replace elements become one op, their gradients read where an index won; same results."""

from __future__ import annotations

import pytest
from graphs.random_graphs import graph_of, input_of
from graphs.replacing import COUNT, LENGTH, B, full, places, replaced, same

from dslc.compiler.ir.graph import Kind
from dslc.compiler.ir.op import OPS
from dslc.compiler.ir.types import DType
from dslc.compiler.passes.fuse.indexed.last_indices import last_indices


@pytest.mark.parametrize("low", [0, -1])
@pytest.mark.parametrize("zeros", [False, True])
@pytest.mark.parametrize("axis", [0, 1])
def test_one_op_replaces_elements(axis: int, zeros: bool, low: int) -> None:
    names = same(last_indices, replaced(axis, gradient=False, zeros=zeros), low)
    assert [name for name in names if name != "transpose"] == ["scatter_last"]
    assert ("transpose" in names) == (axis == 0)


@pytest.mark.parametrize("low", [0, -1])
@pytest.mark.parametrize("axis", [0, 1])
def test_the_gradient_reads_where_an_index_won(axis: int, low: int) -> None:
    names = same(last_indices, replaced(axis, gradient=True), low)
    assert "last_places" in names and "scatter_add" not in names and "scatter_reduce" not in names
    assert "scatter_last" not in names, "the last places are there in any case"
    assert {"take_last", "give_last"} <= set(names) and not {"gather", "arange", "maximum"} & set(names)


def test_a_single_line_needs_no_expansion() -> None:
    index = input_of("index", Kind.DATA, 1, LENGTH, dtype=DType.I32)
    line = B(OPS["reshape"], B(OPS["arange"], shape=(LENGTH,), start=0, step=1), shape=(1, LENGTH))
    none = full(-1, DType.I32, (1, COUNT))
    last = B(OPS["scatter_reduce"], none, line, index.value, axis=1, how="max", lost=LENGTH)
    assert same(last_indices, graph_of([index], {"y": last}), -1) == ["last_places"]


def test_places_of_integers_that_ignore_unknown_ids() -> None:
    last, index = places(1, lost=False)
    assert same(last_indices, graph_of([index], {"y": last}), low=-2) == ["last_places"]


def test_what_stays() -> None:
    x, src = (input_of(n, Kind.DATA, 4, n_) for n, n_ in (("x", COUNT), ("src", LENGTH)))
    index = input_of("index", Kind.DATA, 4, LENGTH, dtype=DType.I32)
    y = B(OPS["scatter_reduce"], x.value, src.value, index.value, axis=1, how="max")
    graph = graph_of([x, src, index], {"y": y})
    assert last_indices(graph) is graph
