"""Gather by computed indices, and padding, as regions.

An index that does not exist reads nothing and gives nan; dtypes without nan get 0.
"""

from __future__ import annotations

import math
from math import prod

from dslc.compiler.codegen.launch import Launch
from dslc.compiler.codegen.lowerings import lowers
from dslc.compiler.codegen.region import pointwise
from dslc.compiler.codegen.region.builder import RegionBuilder
from dslc.compiler.codegen.region.ir import Access, dense
from dslc.compiler.ir.graph import Node
from dslc.compiler.ir.index_limits import I32_PADDED_ELEMENTS
from dslc.compiler.ir.scalar import as_expr, call, select
from dslc.compiler.ir.types import DType
from dslc.compiler.ops.attrs import int_attr, int_tuple, number_attr


@lowers("gather_rows", "take", target="cuda")
def take(node: Node) -> list[Launch]:
    """An id that does not exist reads nothing and gives nan, or 0 if the dtype has no nan."""
    (table, ids), axis = node.input_types, int_attr(node.attrs, "axis") if node.op.name == "take" else 0
    length, count, inner = prod(ids.ints), table.ints[axis], prod(table.ints[axis + 1 :])
    own = 0 if axis else 1  # without an axis before them, rows have no part of the table of their own
    shape, parts = [prod(table.ints[:axis]), length, inner][own:], (count * inner, 0, 1)[own:]
    sources, dtype = [Access(table.dtype, parts), Access(ids.dtype, (0, 1, 0)[own:])], node.types[0].dtype
    b = RegionBuilder(shape, (), sources, [Access(dtype, (length * inner, inner, 1)[own:])])
    b.row()
    found = b.let(b.input(1), DType.I64)
    known = b.let(call("and", found >= 0, found < count), DType.B1)
    x = b.fetch(0, b.let(found * inner, DType.I64), known)
    row = b.let(select(known, x, math.nan if table.dtype.is_float else 0), table.dtype)
    b.store(0, row if dtype is table.dtype else b.let(row, dtype))
    return [Launch(b.region(), node.inputs, node.outputs)]


@lowers("gather", target="cuda")
def gather(node: Node) -> list[Launch]:
    (x, ids), [out], axis = node.input_types, node.types, int_attr(node.attrs, "axis")
    outer, count, length, inner = prod(x.ints[:axis]), x.ints[axis], out.ints[axis], prod(x.ints[axis + 1 :])
    own = (length * inner, inner, 1)
    index = (length, 1, 0) if ids.rank < x.rank else own
    sources = [Access(x.dtype, (count * inner, 0, 1)), Access(ids.dtype, index)]
    b = RegionBuilder([outer, length, inner], (), sources, [Access(x.dtype, own)])
    b.row()
    found = b.let(b.input(1), DType.I64)
    known = b.let(call("and", found >= 0, found < count), DType.B1)
    value = b.fetch(0, b.let(found * inner, DType.I64), known)
    b.store(0, b.let(select(known, value, math.nan if x.dtype.is_float else 0), x.dtype))
    return [Launch(b.region(), node.inputs, node.outputs)]


@lowers("pad", target="cuda")
def pad(node: Node) -> list[Launch]:
    """Pads in one launch if the last axis is padded, e.g. channels up to a vector: every result element is an input
    element or the filler. Other pads fill what is added, or the result, and then copy whole vectors."""
    [x], [out] = node.input_types, node.types
    low, high, interior = (int_tuple(node.attrs, name) for name in ("low", "high", "interior"))
    if any(interior) or not any((*low[-1:], *high[-1:])):
        return pointwise.pad(node)
    padded = [axis for axis in range(x.rank) if low[axis] or high[axis]]
    strides = dense(x.ints)
    source = Access(x.dtype, tuple(0 if axis in padded else stride for axis, stride in enumerate(strides)))
    b = RegionBuilder(out.ints, (), [source], [Access(out.dtype, dense(out.ints))], indices=padded)
    b.row()
    there, place = as_expr(True), as_expr(0)
    dtype = DType.I32 if prod(out.ints) < I32_PADDED_ELEMENTS else DType.I64
    for axis in padded:
        along = b.let(b.let(b.along(axis), dtype) - low[axis], dtype)
        inside = b.let(call("and", along >= 0, along < x.ints[axis]), DType.B1)
        there = inside if axis == padded[0] else b.let(call("and", there, inside), DType.B1)
        place = place + along * strides[axis]
    found = b.fetch(0, b.let(place, dtype), there)
    b.store(0, b.let(select(there, found, number_attr(node.attrs, "value")), x.dtype))
    return [Launch(b.region(), node.inputs, node.outputs)]
