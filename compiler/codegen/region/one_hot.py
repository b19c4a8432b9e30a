"""Regions that write one element of each row: one_hot and the gradient of nll."""

from __future__ import annotations

import math

from dslc.compiler.codegen.launch import Launch
from dslc.compiler.codegen.lowerings import lowers
from dslc.compiler.codegen.region.builder import RegionBuilder
from dslc.compiler.codegen.region.cross_entropy import Classes
from dslc.compiler.codegen.region.ir import Access, dense
from dslc.compiler.codegen.region.reduction import RowsBuilder
from dslc.compiler.ir.graph import Node
from dslc.compiler.ir.scalar import call, select
from dslc.compiler.ir.types import DType
from dslc.compiler.ops.attrs import int_attr


@lowers("one_hot")
def one_hot(node: Node) -> list[Launch]:
    """A row whose class id does not exist is nan, or zeros if the dtype has no nan."""
    out = node.types[0]
    rows = RowsBuilder(node, out.ints, [out.rank - 1], ["row"], ["x"])
    classes = Classes(rows, rows.input(0))
    rows.b.element()
    one = rows.let(select(classes.hit(), 1.0, 0.0), out.dtype)
    rows.store(0, classes.checked(one) if out.dtype.is_float else one)
    return rows.launch()


def _before_others(node: Node, axis: int) -> Launch:
    """The gradient of nll along an axis with others after it: elements are written in the order of memory."""
    (ids, dy), [out] = node.input_types, node.types
    rest = dense(ids.ints)
    row = (*rest[:axis], 0, *rest[axis:])
    accesses = [Access(ids.dtype, row), Access(dy.dtype, row)]
    b = RegionBuilder(out.ints, (), accesses, [Access(out.dtype, dense(out.ints))], indices=(axis,))
    b.row()
    place = b.let(b.input(0), DType.I64)
    value = b.let(select(call("eq", b.along(axis), place), -b.input(1), 0.0), out.dtype)
    value = select(call("and", place >= 0, place < out.ints[axis]), value, math.nan)
    if "ignore_index" in node.attrs:
        value = select(call("eq", place, int_attr(node.attrs, "ignore_index")), 0.0, value)
    b.store(0, b.let(value, out.dtype))
    return Launch(b.region(), node.inputs, node.outputs)


@lowers("nll_grad")
def nll_grad(node: Node) -> list[Launch]:
    out, axis = node.types[0], int_attr(node.attrs, "axis")
    if axis < out.rank - 1 and out.bytes:
        return [_before_others(node, axis)]
    rows = RowsBuilder(node, out.ints, [axis], ["row", "row"], ["x"])
    classes = Classes(rows, rows.input(0))
    rows.b.element()
    rows.store(0, classes.checked(rows.let(select(classes.hit(), -rows.input(1), 0.0), out.dtype)))
    return rows.launch()
