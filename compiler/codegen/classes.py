"""Regions that write one place of many: one_hot, the gradient of nll; and tri, whose places are known."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from dslc.compiler.codegen.launch import Launch
from dslc.compiler.codegen.region import Access, RegionBuilder
from dslc.compiler.codegen.rows import Classes, Rows
from dslc.compiler.ir.graph import Node
from dslc.compiler.ir.scalar import call, select
from dslc.compiler.ir.types import DType
from dslc.compiler.ops.attrs import int_attr, int_tuple


def one_hot(node: Node) -> list[Launch]:
    """nan in a row whose id does not exist; zeros where the dtype has no nan."""
    out = node.types[0]
    rows = Rows(node, out.ints, [out.rank - 1], ["row"], ["x"])
    classes = Classes(rows, rows.input(0))
    rows.b.element()
    one = rows.let(select(classes.hit(), 1.0, 0.0), out.dtype)
    rows.store(0, classes.checked(one) if out.dtype.is_float else one)
    return rows.launch()


def nll_grad(node: Node) -> list[Launch]:
    out = node.types[0]
    rows = Rows(node, out.ints, [int_attr(node.attrs, "axis")], ["row", "row"], ["x"])
    classes = Classes(rows, rows.input(0))
    rows.b.element()
    rows.store(0, classes.checked(rows.let(select(classes.hit(), -rows.input(1), 0.0), out.dtype)))
    return rows.launch()


def tri(node: Node) -> list[Launch]:
    """Row and column from the element's number, by a division whose floor is exact below 2^52 elements."""
    height, width = int_tuple(node.attrs, "shape")
    builder = RegionBuilder((), (height * width,), [], [Access(DType.B1, (1,))])
    builder.element()
    number = builder.let(builder.index, DType.F64)
    row = builder.let(call("floor", (number + 0.5) / float(max(1, width))), DType.F64)
    column = builder.let(number - row * float(width), DType.F64)
    builder.store(0, builder.let(column - row <= float(int_attr(node.attrs, "diagonal")), DType.B1))
    return [Launch(builder.region(), (), node.outputs)] if height * width else []


LOWERED: Final[Mapping[str, Callable[[Node], list[Launch]]]] = {"one_hot": one_hot, "nll_grad": nll_grad, "tri": tri}
