"""Scatters of rows in two steps: row_order sorts the places of rows by their ids, ordered_rows combines the rows.

A pass replaces scatters of many rows by these ops, so that scatters with the same ids share one order.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import TYPE_CHECKING, Any, Final

from dslc.compiler.ir.graph import Attrs, Node
from dslc.compiler.ir.index_limits import I32_ELEMENTS
from dslc.compiler.ir.op import Builder, Cost, NoGradient, Op, register
from dslc.compiler.ir.special import larger, lesser
from dslc.compiler.ir.types import DType, TensorType
from dslc.compiler.ops.attrs import int_attr, str_attr
from dslc.compiler.ops.elementwise.arithmetic import Gradients, require_kind
from dslc.compiler.ops.index.embedding import existing, nothing
from dslc.compiler.ops.lazy import np

if TYPE_CHECKING:
    from dslc.compiler.ir.op import Array

#: One launch sorts so many elements of a part, or fewer.
MANY_ELEMENTS: Final = 8192
#: A part of at least so many rows is put in order first. Without an order, one launch has one block for each id. On an
#: H200, 4,096 rows of 512 f32, of which half have the same id, take 197 us without an order and 60 with one; if ids are
#: spread evenly, 21 and 35.
MANY_ROWS: Final = 4096
#: From so many rows per id on average, the rows of an id are divided into parts that are combined concurrently. Without
#: parts, an H200 takes 396 us for 4,096 rows of 768 f32 with two ids.
_ROWS_OF_ONE: Final = 256
_HOW: Final = ("sum", "prod", "max", "min")

#: Shared memory of a block for the results into which it combines elements.
BIN_BYTES: Final = 32 << 10
_MOST_BINS: Final = 1024
_LEAST_BIN: Final = 512  # keys
_SHORT: Final = 2048  # elements of a line; one warp reads them in a few microseconds
_MANY_WARPS: Final = 132 * 4  # warps of a large GPU; with a line each they take no longer for long lines than a sort

_MAX_SCANNED: Final = 64  # indices along an axis
_SCANS: Final = 1 << 20  # comparisons of a small kernel
_SCANS_OF_BLOCK: Final = 1 << 12  # more for each index of the leading axes: those of about one block of another kernel


def scans(length: int, shape: Sequence[int], axis: int) -> bool:
    """Whether each element of the result can compare all indices of its line in a short time."""
    return length <= _MAX_SCANNED and prod(shape) * length <= _SCANS + _SCANS_OF_BLOCK * prod(shape[:axis])


def bin_keys(keys: int, itemsize: int) -> int:
    """The number of neighbouring keys in a bin, a power of 2."""
    wanted = 1 << (max(1, -(-2 * keys // _MOST_BINS)) - 1).bit_length()
    return min(BIN_BYTES // itemsize, max(_LEAST_BIN, wanted))


def by_lines(lines: int, length: int, count: int, itemsize: int) -> bool:
    """Whether warps read all ids of a line, and each combines those of the results that it holds. ``itemsize``: bytes
    of a result."""
    splits = -(-count * itemsize // BIN_BYTES)
    small = lines * max(length, count) < I32_ELEMENTS - 1
    return small and (length <= _SHORT or lines * splits >= _MANY_WARPS) and splits * length < _SHORT << 6


def by_bins(lines: int, length: int, count: int, itemsize: int) -> bool:
    """Whether a sort by bins suffices: there are few enough bins, and each has keys of at most two lines."""
    keys, width = lines * count, bin_keys(lines * count, itemsize)
    return lines * max(length, count) < I32_ELEMENTS - (1 << 14) and keys <= _MOST_BINS * width and count >= width


def by_atomics(how: str, dtype: DType, elements: int) -> bool:
    """Whether atomic operations on integers compute a scatter of elements. ``how``: the combination; for any other
    text, elements are only moved. ``elements``: the number of ids or of results, whichever is larger."""
    if elements >= I32_ELEMENTS - (1 << 14):
        return False
    floats = (DType.F32, DType.F64) if how in ("max", "min") else (DType.F32,)
    return how not in _HOW or (how != "prod" and dtype.computed in (*floats, DType.I32, DType.I64))


def is_for_order(length: int, count: int) -> bool:
    """Whether ``length`` rows with ids below ``count`` are first put in order and then combined."""
    return length >= MANY_ROWS or length >= _ROWS_OF_ONE * count


class RowOrder(Op):
    """row_order(ids): a stable sort of the places of ``ids`` [P, E] by part and id, and where the places of each id
    begin.

    Attribute ``count``: ids are from 0 to ``count - 1``. The first result, i32[P*E], has the places, which count all
    elements from 0; places of ids outside of this range come last. The second one, i32[P*count + 1], has at
    ``p * count + id`` the index in the first at which the places of this id in part p begin; its last element is the
    number of ids in the range.
    """

    name = "row_order"

    def infer(self, types: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
        [ids] = types
        require_kind("row_order", ids.dtype, "int")
        assert ids.rank == 2
        parts, length = ids.shape
        return (
            TensorType(DType.I32, (parts * length,)),
            TensorType(DType.I32, (parts * int_attr(attrs, "count") + 1,)),
        )

    def grad(self, node: Node, dys: Gradients, b: Builder) -> Gradients:
        raise NoGradient("scatters are ordered after differentiation")

    def meaning(self, xs: Sequence[Array], attrs: Mapping[str, Any]) -> Sequence[Array]:
        [ids], count = xs, int(attrs["count"])
        safe, wrong = existing(ids, count)
        parts = len(ids)
        keys = np.where(wrong, parts * count, safe + count * np.arange(parts)[:, None]).reshape(-1)
        order = np.argsort(keys, kind="stable")
        starts = np.searchsorted(keys[order], np.arange(parts * count + 1))
        return [order.astype(np.int32), starts.astype(np.int32)]

    def cost(self, node: Node) -> Cost:
        return Cost(0, node.input_types[0].bytes + sum(t.bytes for t in node.types))


class ScatterLast(Op):
    """scatter_last(src, index[, x]): x, or zeros with size ``count`` along ``axis``, with ``src`` written at its
    indices along the axis. Of equal indices the last one wins.

    ``src`` and the integers ``index`` have the shape of the result except for the size of the axis. In floats, a line
    with an index outside of the result is nan; other dtypes ignore it.
    """

    name = "scatter_last"

    def infer(self, types: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
        (src, index, *x), axis, count = types, int_attr(attrs, "axis"), int_attr(attrs, "count")
        assert 0 <= axis < src.rank and src.shape == index.shape
        require_kind("scatter_last", index.dtype, "int")
        result = TensorType(src.dtype, (*src.shape[:axis], count, *src.shape[axis + 1 :]))
        assert all(each == result for each in x)
        return (result,)

    def grad(self, node: Node, dys: Gradients, b: Builder) -> Gradients:
        raise NoGradient("scatters are ordered after differentiation")

    def meaning(self, xs: Sequence[Array], attrs: Mapping[str, Any]) -> Sequence[Array]:
        (src, index, *x), axis, count = xs, int(attrs["axis"]), int(attrs["count"])
        y = x[0].copy() if x else np.zeros((*src.shape[:axis], count, *src.shape[axis + 1 :]), src.dtype)
        safe, wrong = existing(index, count)
        for j in range(index.shape[axis] if count else 0):
            ids, new, lost = (np.take(a, [j], axis) for a in (safe, src, wrong))
            np.put_along_axis(y, ids, np.where(lost, np.take_along_axis(y, ids, axis), new), axis)
        if y.dtype.kind == "f":
            y = np.where(wrong.any(axis, keepdims=True), y.dtype.type(np.nan), y)
        return [y]

    def cost(self, node: Node) -> Cost:
        return Cost(0, sum(t.bytes for t in (*node.input_types, *node.types)))


class LastPlaces(Op):
    """last_places(index): for each of ``count`` elements along ``axis``, the place of the last index that is this
    element, or -1: i32.

    With the attribute ``lost``, a line with an index outside of the range is filled with that number.
    """

    name = "last_places"

    def infer(self, types: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
        [index], axis = types, int_attr(attrs, "axis")
        require_kind("last_places", index.dtype, "int")
        assert 0 <= axis < index.rank
        return (TensorType(DType.I32, (*index.shape[:axis], int_attr(attrs, "count"), *index.shape[axis + 1 :])),)

    def grad(self, node: Node, dys: Gradients, b: Builder) -> Gradients:
        raise NoGradient("scatters are ordered after differentiation")

    def meaning(self, xs: Sequence[Array], attrs: Mapping[str, Any]) -> Sequence[Array]:
        [index], axis, count = xs, int(attrs["axis"]), int(attrs["count"])
        y = np.full((*index.shape[:axis], count, *index.shape[axis + 1 :]), -1, np.int32)
        safe, wrong = existing(index, count)
        for j in range(index.shape[axis] if count else 0):
            ids, lost = (np.take(a, [j], axis) for a in (safe, wrong))
            np.put_along_axis(y, ids, np.where(lost, np.take_along_axis(y, ids, axis), np.int32(j)), axis)
        if "lost" in attrs:
            y = np.where(wrong.any(axis, keepdims=True), np.int32(attrs["lost"]), y)
        return [y]

    def cost(self, node: Node) -> Cost:
        return Cost(0, node.input_types[0].bytes + node.types[0].bytes)


class OrderedRows(Op):
    """ordered_rows(rows, places, starts): row k of the result combines the ``rows`` [V, D] at the places from
    ``starts[k]`` to ``starts[k + 1]``, in that order.

    Attribute ``how``: sum, prod, max or min; for the latter three a fourth input x, of the result's shape, is combined
    with each row. ``parts``: the number of parts into which places and rows of the result are divided. If a place after
    the last start belongs to a part, all rows of the part are nan; integers are the attribute ``lost``, if there is
    one. A place outside of 0..V-1 stands for a row of nan, or 0.

    With the attribute ``taps``, a sum has a fourth input, weights [V * taps]: place p stands for row ``p // taps``
    times weight p.
    """

    name = "ordered_rows"

    def infer(self, types: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
        (rows, places, starts, *x), how = types, str_attr(attrs, "how")
        require_kind("ordered_rows", rows.dtype, "number")
        assert how in _HOW and int_attr(attrs, "parts") > 0
        if "taps" in attrs:
            [weight], x = x, []
            assert how == "sum" and weight == TensorType(rows.dtype, (rows.shape[0] * int_attr(attrs, "taps"),))
        assert len(x) == (how != "sum")
        assert rows.rank == 2 and places.rank == starts.rank == 1 and places.dtype is starts.dtype is DType.I32
        result = TensorType(rows.dtype, (starts.shape[0] - 1, rows.shape[1]))
        assert all(each == result for each in x)
        return (result,)

    def grad(self, node: Node, dys: Gradients, b: Builder) -> Gradients:
        raise NoGradient("scatters are ordered after differentiation")

    def meaning(self, xs: Sequence[Array], attrs: Mapping[str, Any]) -> Sequence[Array]:
        rows, places, starts, *x = xs
        parts, count = int(attrs["parts"]), len(starts) - 1
        if "taps" in attrs:
            with np.errstate(all="ignore"):
                rows, x = np.repeat(rows, int(attrs["taps"]), 0) * x[0][:, None], []
        combines: dict[str, Callable[[Array, Array], Array]] = {
            "sum": np.add,
            "prod": np.multiply,
            "max": larger,
            "min": lesser,
        }
        combine = combines[attrs["how"]]
        y = x[0].copy() if x else np.zeros((count, rows.shape[1]), rows.dtype)
        safe, wrong = existing(places, len(rows))
        with np.errstate(all="ignore"):
            for k in range(count):
                for i in range(starts[k], starts[k + 1]):
                    row = np.full(rows.shape[1], nothing(rows.dtype)) if wrong[i] else rows[safe[i]]
                    y[k] = combine(y[k], row)
        if y.dtype.kind == "f" or "lost" in attrs:
            lost = np.unique(places[starts[-1] :] // max(1, len(places) // parts)) if parts > 1 else [0]
            for part in lost if starts[-1] < len(places) else []:
                y.reshape(parts, count // parts, -1)[part] = attrs.get("lost", np.nan)
        return [y]

    def cost(self, node: Node) -> Cost:
        rows, places, *rest = node.input_types
        row = rows.ints[1] * rows.dtype.itemsize
        moved = places.ints[0] * row + places.bytes + sum(t.bytes for t in (*rest, *node.types))
        return Cost(places.ints[0] * rows.ints[1], moved)


row_order = register(RowOrder())
ordered_rows = register(OrderedRows())
scatter_last = register(ScatterLast())
last_places = register(LastPlaces())
