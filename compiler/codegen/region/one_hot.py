"""Regions that write one element of each row: one_hot and the gradient of nll."""

from __future__ import annotations

from dslc.compiler.codegen.launch import Launch
from dslc.compiler.codegen.lowerings import lowers
from dslc.compiler.codegen.region.cross_entropy import Classes
from dslc.compiler.codegen.region.reduction import RowsBuilder
from dslc.compiler.ir.graph import Node
from dslc.compiler.ir.scalar import select
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


@lowers("nll_grad")
def nll_grad(node: Node) -> list[Launch]:
    out = node.types[0]
    rows = RowsBuilder(node, out.ints, [int_attr(node.attrs, "axis")], ["row", "row"], ["x"])
    classes = Classes(rows, rows.input(0))
    rows.b.element()
    rows.store(0, classes.checked(rows.let(select(classes.hit(), -rows.input(1), 0.0), out.dtype)))
    return rows.launch()
