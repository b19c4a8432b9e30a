"""Rows of a table by index: gather_rows, its gradient scatter_rows_add, embedding and one_hot."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from dslc.compiler.ir.function import Call, Function, Init, function
from dslc.compiler.ir.graph import Attrs, Node, Value
from dslc.compiler.ir.op import Builder, Cost, Mismatch, Op, register
from dslc.compiler.ir.sizes import Poly, Size, bounds
from dslc.compiler.ir.types import DType, TensorType
from dslc.compiler.ops.attrs import dtype_attr, int_attr
from dslc.compiler.ops.elementwise.arithmetic import Gradients, only, require_kind
from dslc.compiler.ops.elementwise.convert import cast
from dslc.compiler.ops.index.counted import require_rows
from dslc.compiler.ops.lazy import np
from dslc.runtime.artifact.dtypes import numpy_dtype

if TYPE_CHECKING:
    from dslc.compiler.ir.op import Array


def existing(ids: Array, count: int) -> tuple[Array, Array]:
    """The indices as i64, 0 for those outside 0..count-1; and a mask of the latter.

    Data with such indices is refused. For an index that a model computes, see ``nothing``."""
    wrong = (ids < 0) | (ids >= count)
    return np.where(wrong, 0, ids).astype(np.int64), wrong


def nothing(dtype: Any) -> Any:
    """The value for an invalid index: nan, so that it does not go unnoticed, or 0 in dtypes without nan."""
    return dtype.type(np.nan if dtype.kind == "f" else 0)


def _rows_of_ids(node: Node, ids: int, axes: Sequence[int | None]) -> tuple[int | None, ...] | None:
    others = [a for i, a in enumerate(axes) if i != ids]
    return None if any(a is not None for a in others) else (axes[ids],)


class GatherRows(Op):
    """gather_rows(table, ids): the rows of ``table`` [V, ...] at the integers ``ids``: shape of ids, then of a row.

    An id outside 0..V-1 gives a row of nan, or 0 for integers; in data it is refused. The attribute ``dtype``, if there
    is one, is what floats are cast to; a pass sets it on targets that launch kernels.
    """

    name = "gather_rows"
    in_halves = True
    needs = (frozenset({"x1"}),)

    def infer(self, types: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
        table, ids = types
        require_kind("gather_rows", ids.dtype, "int")
        if not table.rank:
            raise Mismatch("a table without rows", "it has at least one axis", "E0306")
        dtype = dtype_attr(attrs) if "dtype" in attrs else table.dtype
        return (TensorType(dtype, (*ids.shape, *table.shape[1:])),)

    def grad(self, node: Node, dys: Gradients, b: Builder) -> Gradients:
        table, ids = node.inputs
        return b(scatter_rows_add, only(dys), ids, count=table.type.ints[0]), None

    def meaning(self, xs: Sequence[Array], attrs: Mapping[str, Any]) -> Sequence[Array]:
        table, ids = xs
        safe, wrong = existing(ids, table.shape[0])
        if not table.shape[0]:
            return [np.full((*ids.shape, *table.shape[1:]), nothing(table.dtype))]
        rows = np.take(table, safe, axis=0)
        if wrong.any():
            rows[wrong] = nothing(table.dtype)
        return cast.meaning([rows], attrs) if "dtype" in attrs else [rows]

    def cost(self, node: Node) -> Cost:
        (table, ids), out = node.input_types, node.types[0]
        read = out.bytes // out.dtype.itemsize * table.dtype.itemsize
        return Cost(0, ids.bytes + read + out.bytes)

    def index_range(self, node: Node, index: int) -> tuple[int, Size] | None:
        return (0, node.inputs[0].type.shape[0]) if index == 1 else None

    def rows(self, node: Node, axes: Sequence[int | None]) -> tuple[int | None, ...] | None:
        return _rows_of_ids(node, 1, axes)


class ScatterRowsAdd(Op):
    """scatter_rows_add(rows, ids): a table of ``count`` rows; row i is the sum of the ``rows`` with id i.

    The gradient of gather_rows. Rows with equal ids are added in their order, so the result is deterministic.
    An id outside 0..count-1 makes the whole table nan; for integers, it adds nothing. A pass for CPUs gives a third
    input: the table to which the rows are added.
    """

    name = "scatter_rows_add"
    needs = (frozenset({"x1"}),)

    def infer(self, types: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
        rows, ids, *table = types
        require_kind("scatter_rows_add", ids.dtype, "int")
        require_kind("scatter_rows_add", rows.dtype, "number")
        assert rows.shape[: ids.rank] == ids.shape, "ids and rows do not agree"
        found = TensorType(rows.dtype, (int_attr(attrs, "count"), *rows.shape[ids.rank :]))
        assert all(each == found for each in table), "the table is not the result's"
        return (found,)

    def in_place(self, node: Node) -> tuple[tuple[int, int], ...]:
        return ((2, 0),) if len(node.inputs) == 3 else ()

    def grad(self, node: Node, dys: Gradients, b: Builder) -> Gradients:
        return b(gather_rows, only(dys), node.inputs[1]), None

    def meaning(self, xs: Sequence[Array], attrs: Mapping[str, Any]) -> Sequence[Array]:
        rows, ids, *base = xs
        count, inner = int(attrs["count"]), rows.shape[ids.ndim :]
        wrong = existing(ids, count)[1].reshape(-1)
        table = np.zeros((count, math.prod(inner)), rows.dtype)
        if base:
            table[...] = base[0].reshape(table.shape)
        flat, rows = ids.reshape(-1)[~wrong], rows.reshape(wrong.size, table.shape[1])[~wrong]
        places = flat.astype(np.int64)[:, None] * table.shape[1] + np.arange(table.shape[1])
        with np.errstate(all="ignore"):
            np.add.at(table.reshape(-1), places.reshape(-1), rows.reshape(-1))
        if wrong.any() and table.dtype.kind == "f":
            table[...] = np.nan
        return [table.reshape(count, *inner)]

    def cost(self, node: Node) -> Cost:
        rows, ids, *table = node.input_types
        written = 2 * rows.bytes if table else node.types[0].bytes
        return Cost(rows.bytes // rows.dtype.itemsize, rows.bytes + ids.bytes + written)

    def index_range(self, node: Node, index: int) -> tuple[int, Size] | None:
        return (0, int_attr(node.attrs, "count")) if index == 1 else None


class OneHot(Op):
    """one_hot(ids): 1 at the position of each id along a new last axis of ``count``, else 0, in ``dtype``.

    An id outside 0..count-1 gives nan in its whole line, 0 for integers; in data it is refused.
    """

    name = "one_hot"

    def infer(self, types: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
        require_kind("one_hot", types[0].dtype, "int")
        count = attrs["count"]
        assert isinstance(count, int | Poly)
        return (TensorType(dtype_attr(attrs), (*types[0].shape, count)),)

    def grad(self, node: Node, dys: Gradients, b: Builder) -> Gradients:
        return (None,)

    def meaning(self, xs: Sequence[Array], attrs: Mapping[str, Any]) -> Sequence[Array]:
        count = int(attrs["count"])
        hot = (xs[0][..., None] == np.arange(count)).astype(numpy_dtype(attrs["dtype"]))
        return [np.where(existing(xs[0], count)[1][..., None], nothing(hot.dtype), hot)]

    def cost(self, node: Node) -> Cost:
        return Cost(0, node.input_types[0].bytes + node.types[0].bytes)

    def index_range(self, node: Node, index: int) -> tuple[int, Size] | None:
        count = node.attrs["count"]
        return (0, count) if isinstance(count, int | Poly) else None

    def rows(self, node: Node, axes: Sequence[int | None]) -> tuple[int | None, ...] | None:
        return (axes[0],)


gather_rows = register(GatherRows())
scatter_rows_add = register(ScatterRowsAdd())
one_hot = register(OneHot())


STANDARD = Init("normal", (0.0, 1.0))


class Embedding(Function):
    """embedding(ids, count, dim, init=normal(1)): a row of size ``dim`` for each id, from a table of ``count`` rows.

    Parameter ``weight`` [count, dim]. As a layer, its table can be reused: ``layer tok = embedding(100, 8)``, then
    ``tok(ids)`` and ``tok.weight``.

    given: t: i32[B]
    >>> t |> embedding(100, 8)
    """

    name = "embedding"

    def build(self, call: Call, ids: Value, count: Size, dim: Size, init: Init = STANDARD) -> Value:
        require_kind("embedding", ids.type.dtype, "int")
        for size in (count, dim):
            if isinstance(size, Poly):
                why = f"the table of `embedding` would be [{count}, {dim}], which depends on a dim"
                raise Mismatch(why, "use a constant or an argument", "E0307")
            if size < 1:
                raise Mismatch(f"a table of [{count}, {dim}]", "both sizes must be at least 1", "E0308")
        assert isinstance(count, int) and isinstance(dim, int)
        require_rows("embedding", ids, count, dim)
        return call.emit(gather_rows, call.param("weight", (count, dim), init), ids)


class OneHotFunction(Function):
    """one_hot(ids, count): a float tensor, 1 at the position of each id along a new last axis of ``count``, else 0.

    given: t: i32[B]
    >>> one_hot(t, 10)
    """

    name = "one_hot"

    def build(self, call: Call, ids: Value, count: Size) -> Value:
        if bounds(count)[0] < 1:
            raise Mismatch(f"`one_hot` of {count} classes", "there is at least one", "E0308")
        return call.emit(one_hot, ids, count=count, dtype=DType.FLOAT)


function(Embedding())
function(OneHotFunction())
