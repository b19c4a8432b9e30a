"""Regions of weighted sums of rows, and of the gradient of their weights."""

from __future__ import annotations

import math
from math import prod

from dslc.compiler.codegen.launch import Launch
from dslc.compiler.codegen.lowerings import lowers
from dslc.compiler.codegen.region.builder import RegionBuilder
from dslc.compiler.codegen.region.ir import Access
from dslc.compiler.ir.graph import Node
from dslc.compiler.ir.scalar import Expr, call, select
from dslc.compiler.ir.types import DType
from dslc.compiler.ops.attrs import int_attr


def _sizes(node: Node) -> tuple[int, int, int, int, int]:
    """The numbers of tables, of rows and columns of each, of sums, and of rows of a sum."""
    (table, ids, *_), lead = node.input_types, int_attr(node.attrs, "lead")
    count, columns = table.ints[lead:]
    return prod(table.ints[:lead]), count, columns, prod(ids.ints[lead:-1]), ids.ints[-1]


def _row(b: RegionBuilder, ids: Expr, count: int) -> tuple[Expr, Expr]:
    """The row of an id, and whether it exists."""
    found = b.let(ids, DType.I64)
    return found, b.let(call("and", found >= 0, found < count), DType.B1)


@lowers("weighted_rows")
def weighted_rows(node: Node) -> list[Launch]:
    tables, count, columns, sums, taps = _sizes(node)
    table, ids, _ = node.input_types
    each = (sums * taps, taps, 0, 1)
    sources = [Access(table.dtype, (count * columns, 0, 1, 0)), Access(ids.dtype, each), Access(table.dtype, each)]
    target = Access(table.dtype, (sums * columns, columns, 1, 0))
    b = RegionBuilder([tables, sums, columns], [taps], sources, [target])
    b.element()
    found, known = _row(b, b.input(1), count)
    counts = b.let(call("ne", b.input(2), 0.0), DType.B1)
    x = b.fetch(0, b.let(found * columns, DType.I64), b.let(call("and", known, counts), DType.B1))
    share = b.let(select(known, x, math.nan) * b.input(2), table.dtype)
    total = b.reduce("sum", b.let(select(counts, share, 0.0), table.dtype))
    b.row()
    b.store(0, b.let(total, table.dtype))
    return [Launch(b.region(), node.inputs, node.outputs)]


@lowers("weighted_rows_dot")
def weighted_rows_dot(node: Node) -> list[Launch]:
    tables, count, columns, sums, taps = _sizes(node)
    (table, ids, dy), [out] = node.input_types, node.types
    each = (sums * taps, taps, 1, 0)
    sources = [
        Access(table.dtype, (count * columns, 0, 0, 1)),
        Access(ids.dtype, each),
        Access(dy.dtype, (sums * columns, columns, 0, 1)),
    ]
    b = RegionBuilder([tables, sums, taps], [columns], sources, [Access(out.dtype, each)])
    b.row()
    found, known = _row(b, b.input(1), count)
    place = b.let(found * columns, DType.I64)
    b.element()
    x = b.fetch(0, place, known)
    total = b.reduce("sum", b.let(x * b.input(2), out.dtype))
    b.row()
    b.store(0, b.let(select(known, total, math.nan), out.dtype))
    return [Launch(b.region(), node.inputs, node.outputs)]
