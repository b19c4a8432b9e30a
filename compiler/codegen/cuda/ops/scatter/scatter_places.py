"""Scatters that replace elements, and their gradients, by the last places of indices, each as one region."""

from __future__ import annotations

import math
from math import prod

from dslc.compiler.codegen.launch import Launch
from dslc.compiler.codegen.lowerings import lowers
from dslc.compiler.codegen.region.builder import RegionBuilder
from dslc.compiler.codegen.region.ir import Access
from dslc.compiler.ir.graph import Node
from dslc.compiler.ir.index_limits import I32_ELEMENTS_AND_BLOCK
from dslc.compiler.ir.scalar import Expr, as_expr, call, select
from dslc.compiler.ir.types import DType, TensorType
from dslc.compiler.ops.attrs import int_attr


def _sizes(type: TensorType, axis: int) -> tuple[int, int, int]:
    """The elements before, along and after the axis."""
    shape = type.ints
    return prod(shape[:axis]), shape[axis], prod(shape[axis + 1 :])


def _both(b: RegionBuilder, x: Expr, y: Expr) -> Expr:
    return b.let(call("and", x, y), DType.B1)


@lowers("take_last", target="cuda")
def take_last(node: Node) -> list[Launch]:
    src, places, *x = node.input_types
    axis, dtype = int_attr(node.attrs, "axis"), node.types[0].dtype
    (outer, count, inner), length = _sizes(places, axis), src.ints[axis]
    own = count * inner, inner, 1
    sources = [Access(dtype, (length * inner, 0, 1)), Access(DType.I32, own), *(Access(dtype, own) for _ in x)]
    b = RegionBuilder([outer, count, inner], (), sources, [Access(dtype, own)])
    b.row()
    place = b.input(1)
    there, exists = b.let(place >= 0, DType.B1), b.let(place < length, DType.B1)
    at = b.let(b.let(place, _index_dtype(src)) * inner, _index_dtype(src))
    value = b.fetch(0, at, _both(b, there, exists))
    found = select(exists, value, math.nan if dtype.is_float else 0)
    b.store(0, b.let(select(there, found, b.input(2) if x else as_expr(0)), dtype))
    return [Launch(b.region(), node.inputs, node.outputs)]


@lowers("give_last", target="cuda")
def give_last(node: Node) -> list[Launch]:
    dy, index, _ = node.input_types
    axis = int_attr(node.attrs, "axis")
    (outer, length, inner), count = _sizes(index, axis), dy.ints[axis]
    own, other = (length * inner, inner, 1), (count * inner, 0, 1)
    sources = [Access(dy.dtype, other), Access(index.dtype, own), Access(DType.I32, other)]
    b = RegionBuilder([outer, length, inner], (), sources, [Access(dy.dtype, own)], indices=(1,))
    b.row()
    wide = _index_dtype(dy) if index.dtype is DType.I32 else DType.I64
    given = b.let(b.input(1), wide)
    known = b.let(call("and", given >= 0, given < count), DType.B1)
    at = b.let(given * inner, wide)
    last = b.fetch(2, at, known)
    won = b.let(call("eq", last, b.let(b.along(1), DType.I32)), DType.B1)
    slope = b.fetch(0, at, _both(b, known, won))
    rest = select(last >= length, math.nan, 0.0)
    b.store(0, b.let(select(known, select(won, slope, rest), math.nan), dy.dtype))
    return [Launch(b.region(), node.inputs, node.outputs)]


def _index_dtype(type: TensorType) -> DType:
    """The dtype of an index into a tensor."""
    return DType.I32 if prod(type.ints) < I32_ELEMENTS_AND_BLOCK else DType.I64
