"""Weighted sums of a table's rows: weighted_rows and weighted_rows_dot, which gives the gradient of the weights."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import TYPE_CHECKING, Any

from dslc.compiler.ir.graph import Attrs, Node, Value
from dslc.compiler.ir.op import Builder, Cost, Op, register
from dslc.compiler.ir.sizes import Size
from dslc.compiler.ir.types import DType, TensorType
from dslc.compiler.ops.attrs import int_attr
from dslc.compiler.ops.constants.ranges import arange
from dslc.compiler.ops.elementwise.arithmetic import Gradients, add, mul, only, require_kind
from dslc.compiler.ops.elementwise.convert import cast
from dslc.compiler.ops.index.embedding import existing, scatter_rows_add
from dslc.compiler.ops.lazy import np
from dslc.compiler.ops.shape.views import reshape

if TYPE_CHECKING:
    from dslc.compiler.ir.op import Array


class WeightedRows(Op):
    """weighted_rows(table, ids, weight): the sum of the rows of ``table`` [*L, V, D] at ``ids`` [*L, *P, T], each times
    its ``weight``, over the last axis: [*L, *P, D].

    The attribute ``lead`` is the number of the axes L, which the inputs share. A row of weight 0 is not read. An id
    outside 0..V-1 gives nan unless its weight is 0.
    """

    name = "weighted_rows"
    needs = (frozenset({"x0", "x1", "x2"}),)
    wide = "reduction"

    def infer(self, types: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
        (table, ids, weight), lead = types, int_attr(attrs, "lead")
        _check(table, ids, lead)
        assert weight == TensorType(table.dtype, ids.shape)
        return (TensorType(table.dtype, (*ids.shape[:-1], table.shape[-1])),)

    def grad(self, node: Node, dys: Gradients, b: Builder) -> Gradients:
        (table, ids, weight), dy = node.inputs, only(dys)
        lead = int_attr(node.attrs, "lead")
        return _scattered(b, table.type, ids, weight, dy, lead), None, b(weighted_rows_dot, table, ids, dy, lead=lead)

    def meaning(self, xs: Sequence[Array], attrs: Mapping[str, Any]) -> Sequence[Array]:
        (table, ids, weight), lead = xs, int(attrs["lead"])
        y = np.zeros((*ids.shape[:-1], table.shape[-1]), table.dtype)
        with np.errstate(all="ignore"):
            for t in range(ids.shape[-1]):
                share = weight[..., t, None]
                y += np.where(share == 0, 0, share * _found(table, ids[..., t], lead))
        return [y]

    def cost(self, node: Node) -> Cost:
        taps = node.input_types[1].ints[-1]
        return Cost(2 * taps * prod(node.types[0].ints), sum(t.bytes for t in (*node.input_types, *node.types)))

    def index_range(self, node: Node, index: int) -> tuple[int, Size] | None:
        return None  # a row of weight 0 may have any id

    def rows(self, node: Node, axes: Sequence[int | None]) -> tuple[int | None, ...] | None:
        return _rows(node, axes, node.types[0])


class WeightedRowsDot(Op):
    """weighted_rows_dot(table, ids, dy): the products of ``dy`` [*L, *P, D] with the rows of ``table`` [*L, V, D] at
    ``ids`` [*L, *P, T], summed over D: [*L, *P, T].

    The attribute ``lead`` is that of ``weighted_rows``, of whose weights this is the gradient. An id outside 0..V-1
    gives nan.
    """

    name = "weighted_rows_dot"
    needs = (frozenset({"x0", "x1", "x2"}),)

    def infer(self, types: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
        table, ids, dy = types
        _check(table, ids, int_attr(attrs, "lead"))
        assert dy == TensorType(table.dtype, (*ids.shape[:-1], table.shape[-1]))
        return (TensorType(table.dtype, ids.shape),)

    def grad(self, node: Node, dys: Gradients, b: Builder) -> Gradients:
        (table, ids, dy), weight, lead = node.inputs, only(dys), int_attr(node.attrs, "lead")
        return _scattered(b, table.type, ids, weight, dy, lead), None, b(weighted_rows, table, ids, weight, lead=lead)

    def meaning(self, xs: Sequence[Array], attrs: Mapping[str, Any]) -> Sequence[Array]:
        table, ids, dy = xs
        y = np.empty(ids.shape, table.dtype)
        with np.errstate(all="ignore"):
            for t in range(ids.shape[-1]):
                y[..., t] = np.sum(_found(table, ids[..., t], int(attrs["lead"])) * dy, axis=-1)
        return [y]

    def cost(self, node: Node) -> Cost:
        flops = 2 * prod(node.types[0].ints) * node.input_types[0].ints[-1]
        return Cost(flops, sum(t.bytes for t in (*node.input_types, *node.types)))

    def rows(self, node: Node, axes: Sequence[int | None]) -> tuple[int | None, ...] | None:
        return _rows(node, axes, node.types[0])


def _check(table: TensorType, ids: TensorType, lead: int) -> None:
    require_kind("weighted_rows", table.dtype, "float")
    require_kind("weighted_rows", ids.dtype, "int")
    assert table.rank == lead + 2 <= ids.rank + 1
    assert table.shape[:lead] == ids.shape[:lead], f"{table} and {ids} differ in the first {lead} axes"


def _rows(node: Node, axes: Sequence[int | None], result: TensorType) -> tuple[int | None, ...] | None:
    table, *others = axes
    lead = int_attr(node.attrs, "lead")
    if len(set(others)) != 1 or others[0] == result.rank - 1:
        return None
    axis = others[0]
    if axis is not None and (table != axis if axis < lead else table is not None):
        return None
    return None if axis is None and table is not None else (axis,)


def _found(table: Array, ids: Array, lead: int) -> Array:
    """The row of each id, nan for those that do not exist."""
    flat = table.reshape(prod(table.shape[:lead]), *table.shape[lead:])
    safe, wrong = existing(ids, table.shape[lead])
    if not table.shape[lead]:
        return np.full((*ids.shape, table.shape[-1]), np.nan, table.dtype)
    part = np.arange(len(flat)).reshape(*table.shape[:lead], *(1,) * (ids.ndim - lead))
    return np.where(wrong[..., None], table.dtype.type(np.nan), flat[part, safe])


def _scattered(b: Builder, table: TensorType, ids: Value, weight: Value, dy: Value, lead: int) -> Value:
    """``dy`` times each weight added to the row of each id, in the order of ids."""
    shape, (count, columns) = ids.type.ints, table.ints[lead:]
    parts = prod(table.ints[:lead])
    lines = b(reshape, dy, shape=(*shape[:-1], 1, columns))
    rows = b(mul, lines, b(reshape, weight, shape=(*shape, 1)))
    if parts > 1:
        first = b(arange, start=0, step=count, shape=(parts,))
        first = first if ids.type.dtype is DType.I32 else b(cast, first, dtype=ids.type.dtype)
        ids = b(add, ids, b(reshape, first, shape=(*table.ints[:lead], *(1,) * (len(shape) - lead))))
    return b(reshape, b(scatter_rows_add, rows, ids, count=parts * count), shape=table.ints)


weighted_rows = register(WeightedRows())
weighted_rows_dot = register(WeightedRowsDot())
