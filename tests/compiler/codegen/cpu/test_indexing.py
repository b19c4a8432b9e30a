"""Kernels that read and write at computed indices: sizes of all kinds, indices that do not exist, one set of bits."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from cpu_kernels.native import Native
from op_laws.evaluation import apply, values_of

from dslc.compiler.ir.op import Builder, Op
from dslc.compiler.ir.types import DType
from dslc.compiler.ops.compound.boxes import placed
from dslc.compiler.ops.constants.masks import tri
from dslc.compiler.ops.index.embedding import gather_rows, one_hot, scatter_rows_add
from dslc.compiler.ops.index.indexing import gather, scatter_add
from dslc.compiler.ops.index.ordered import last_places, scatter_last
from dslc.compiler.ops.index.scatter import scatter_reduce
from dslc.compiler.ops.index.take import take
from dslc.compiler.ops.loss.nll import nll_grad
from dslc.compiler.ops.optimizer.clip_norm import global_norm

RNG = np.random.default_rng(4)


def _run(op: Op, xs: list[np.ndarray], **attrs: Any) -> list[np.ndarray]:
    """The results, which are the same for any cut of the tasks."""
    native = Native(Builder().node(op, *values_of(xs), **attrs))
    found = native.run(xs)
    for splits in (2, 5):
        assert [x.tobytes() for x in native.run(xs, splits)] == [x.tobytes() for x in found]
    return found


def _check(op: Op, xs: list[np.ndarray], rtol: float = 0.0, **attrs: Any) -> None:
    for g, w in zip(_run(op, xs, **attrs), apply(op, xs, attrs), strict=True):
        assert g.dtype == w.dtype and g.shape == w.shape
        np.testing.assert_allclose(g, w, rtol=rtol, atol=rtol)


def _floats(*shape: int, dtype: Any = np.float32) -> np.ndarray:
    return RNG.standard_normal(shape).astype(dtype)


@pytest.mark.parametrize("ids", ["int64", "int32", "int8", "uint8"])
@pytest.mark.parametrize("shape, picked", [((96, 128), (16, 30)), ((7, 3, 5), (40,)), ((9,), (3, 2)), ((1, 33), ())])
def test_rows_of_a_table(shape: tuple[int, ...], picked: tuple[int, ...], ids: str) -> None:
    places = RNG.integers(0, shape[0], picked).astype(ids)
    _check(gather_rows, [_floats(*shape), places])
    _check(scatter_rows_add, [_floats(*picked, *shape[1:]), places], rtol=1e-5, count=shape[0])


@pytest.mark.parametrize("shape", [(96, 128), (7, 3, 5), (70, 600)])
def test_rows_are_added_to_a_table(shape: tuple[int, ...]) -> None:
    """Which is copied, or in whose place the result is."""
    rows, table = _floats(40, *shape[1:]), _floats(*shape)
    places = RNG.integers(0, shape[0], 40).astype(np.int32)
    _check(scatter_rows_add, [rows, places, table], rtol=1e-5, count=shape[0])
    node = Builder().node(scatter_rows_add, *values_of([rows, places, table]), count=shape[0])
    assert scatter_rows_add.in_place(node) == ((2, 0),)


@pytest.mark.parametrize("dtype", ["float64", "int64", "int16", "uint8"])
def test_rows_of_other_dtypes(dtype: str) -> None:
    table, places = RNG.integers(0, 9, (6, 70)).astype(dtype), RNG.integers(0, 6, 50).astype(np.int32)
    _check(gather_rows, [table, places])
    _check(scatter_rows_add, [table[places], places], count=6)
    _check(gather, [table, RNG.integers(0, 6, (9, 70))], axis=0)
    _check(scatter_add, [table, RNG.integers(0, 3, (6, 70))], axis=1, count=3)


@pytest.mark.parametrize(
    "shape, axis, size", [((4, 70, 3), 1, 9), ((4, 3, 70), 1, 200), ((300, 40), 1, 2), ((5,), 0, 7)]
)
def test_elements_along_an_axis(shape: tuple[int, ...], axis: int, size: int) -> None:
    other = (*shape[:axis], size, *shape[axis + 1 :])
    index = RNG.integers(0, shape[axis], other).astype(np.int32)
    _check(gather, [_floats(*shape), index], axis=axis)
    _check(scatter_add, [_floats(*other), index], rtol=1e-5, axis=axis, count=shape[axis])


@pytest.mark.parametrize("how", ["prod", "max", "min"])
@pytest.mark.parametrize("shape, axis, size", [((4, 70, 3), 1, 9), ((4, 3, 70), 1, 200), ((300, 40), 1, 2)])
def test_elements_combined_along_an_axis(shape: tuple[int, ...], axis: int, size: int, how: str) -> None:
    other = (*shape[:axis], size, *shape[axis + 1 :])
    index = RNG.integers(-(size == 9), shape[axis], other).astype(np.int32)  # those of 9 with some that do not exist
    _check(scatter_reduce, [_floats(*shape), _floats(*other), index], rtol=1e-4, axis=axis, how=how)
    small = RNG.integers(0, 100, (2, *other)).astype(np.int16)
    _check(scatter_reduce, [RNG.integers(0, 100, shape).astype(np.int16), small[0], index], axis=axis, how=how)


@pytest.mark.parametrize("picked", [(9,), (1,), (), (3, 70), (0,)])
@pytest.mark.parametrize("shape, axis", [((4, 70, 3), 1), ((4, 3, 70), 2), ((300, 40), 1), ((5, 0, 2), 1)])
def test_parts_along_an_axis(shape: tuple[int, ...], axis: int, picked: tuple[int, ...]) -> None:
    ids = RNG.integers(-1, shape[axis] + 1, picked).astype(np.int32)
    for x in (_floats(*shape), RNG.integers(0, 9, shape)):
        _check(take, [x, ids], axis=axis)


def test_rows_of_one_id_are_added_in_their_order() -> None:
    rows = np.array([1e8, 1.0, -1e8, 1.0], np.float32)[:, None]
    [table] = _run(scatter_rows_add, [rows, np.zeros(4, np.int32)], count=2)
    assert table.tolist() == [[1.0], [0.0]]


@pytest.mark.parametrize("wrong", [-1, 5, 2**40, -(2**63)])
def test_an_index_that_does_not_exist_is_nan_and_touches_nothing_else(wrong: int) -> None:
    ids = np.array([2, wrong, 0], np.int64)
    [rows] = _run(gather_rows, [_floats(5, 40), ids])
    assert np.isnan(rows).all(1).tolist() == [False, True, False] and np.isfinite(rows[[0, 2]]).all()
    [table] = _run(scatter_rows_add, [_floats(3, 40), ids], count=5)
    assert np.isnan(table).all()
    index = np.tile(np.array([[1, 1], [wrong, 0]]), (2, 1, 1))
    [found] = _run(gather, [_floats(2, 5, 2), index], axis=1)
    assert np.isnan(found).tolist() == [[[False, False], [True, False]]] * 2
    [table] = _run(scatter_add, [_floats(2, 2, 2), index], axis=1, count=5)
    assert np.isnan(table[:, :, 0]).all() and np.isfinite(table[:, :, 1]).all()
    [hot] = _run(one_hot, [ids], count=5, dtype=DType.F32)
    assert np.isnan(hot).all(1).tolist() == [False, True, False] and hot[0].tolist() == [0, 0, 1, 0, 0]
    [dx] = _run(nll_grad, [ids, _floats(3)], axis=1, classes=5)
    assert np.isnan(dx).all(1).tolist() == [False, True, False]


def test_an_index_that_does_not_exist_among_integers() -> None:
    ids = np.array([1, 9], np.int32)
    assert _run(gather_rows, [np.array([[3], [4]]), ids])[0].tolist() == [[4], [0]]
    assert _run(scatter_rows_add, [np.array([[3], [4]]), ids], count=2)[0].tolist() == [[0], [3]]


def test_a_table_without_rows() -> None:
    assert np.isnan(_run(gather_rows, [_floats(0, 3), np.zeros(2, np.int32)])[0]).all()


@pytest.mark.parametrize("attrs", [{"axis": 1}, {"axis": 2, "ignore_index": 2}])
def test_the_gradient_of_nll(attrs: Mapping[str, Any]) -> None:
    target = RNG.integers(0, 6, (7, 33)).astype(np.int32)
    _check(nll_grad, [target, _floats(7, 33)], classes=6, **attrs)


@pytest.mark.parametrize("shape, diagonal", [((1, 1), 0), ((33, 70), 0), ((70, 33), -3), ((300, 300), 5), ((0, 4), 0)])
def test_triangles(shape: tuple[int, int], diagonal: int) -> None:
    _check(tri, [], shape=shape, diagonal=diagonal)


def test_the_norm_of_many_gradients() -> None:
    xs = [_floats(3), _floats(100, 100), _floats(4096), _floats(0, 3), _floats(), _floats(9000, dtype=np.float64)]
    _check(global_norm, xs, rtol=1e-12)
    _check(global_norm, xs[:-1], rtol=1e-6)
    assert _run(global_norm, [_floats(0, 3)])[0] == 0
    xs[1][7, 7] = np.nan
    assert np.isnan(_run(global_norm, xs)[0])


#: Lines before, ids, elements and lines after; ids are drawn from twice as many, so that some do not exist.
@pytest.mark.parametrize("sizes", [(3, 40, 9, 1), (1, 30, 50, 40), (2, 17, 5, 3)])
@pytest.mark.parametrize("dtype", ["float32", "float64", "int32"])
def test_of_equal_ids_the_last_wins(sizes: tuple[int, ...], dtype: str) -> None:
    before, length, count, after = sizes
    src = RNG.integers(0, 99, (before, length, after)).astype(dtype)
    x = RNG.integers(100, 199, (before, count, after)).astype(dtype)
    ids = RNG.integers(0, count, src.shape)
    for index in (ids, np.where(RNG.random(src.shape) < 0.02, RNG.integers(-2, 2 * count, src.shape), ids)):
        _check(scatter_last, [src, index, x], axis=1, count=count)
        _check(scatter_last, [src, index], axis=1, count=count)
        _check(last_places, [index], axis=1, count=count)
        _check(last_places, [index], axis=1, count=count, lost=length)


def test_a_place_or_an_id_after_one_that_does_not_exist_does_not_hide_it() -> None:
    index = np.array([[0, 7, 1, 0]])
    [got] = _run(scatter_last, [_floats(1, 4), index], axis=1, count=3)
    assert np.isnan(got).all()


@pytest.mark.parametrize("dtype", ["float32", "int64"])
def test_parts_are_copied_into_their_places_and_the_rest_is_zero(dtype: str) -> None:
    parts = [RNG.integers(1, 99, (4, n)).astype(dtype) for n in (40, 3, 27)]
    _check(placed, parts, shape=(4, 70), starts=((0, 0), (0, 67), (0, 40)))
    _check(placed, parts[:2], shape=(5, 60), starts=((1, 10), (0, 55)))
    native = Native(Builder().node(placed, *values_of(parts), shape=(4, 70), starts=((0, 0), (0, 67), (0, 40))))
    assert len(native.launches) == 3
