"""nll: each row's element is read at its place, without a pass over the row."""

from __future__ import annotations

from math import prod

from dslc.compiler.codegen.launch import Launch
from dslc.compiler.codegen.lowerings import lowers
from dslc.compiler.codegen.region.builder import RegionBuilder
from dslc.compiler.codegen.region.ir import Access, all_strides, dense
from dslc.compiler.ir.graph import Node
from dslc.compiler.ir.scalar import call, select
from dslc.compiler.ir.types import DType
from dslc.compiler.ops.attrs import int_attr


@lowers("nll")
def nll(node: Node) -> list[Launch]:
    x, target = node.input_types
    axis, out = int_attr(node.attrs, "axis"), node.types[0]
    strides, classes = all_strides(x.ints), x.ints[axis]
    rows = tuple(s if n > 1 else 0 for i, (s, n) in enumerate(zip(strides, x.ints)) if i != axis)
    reads = [Access(x.dtype, rows), Access(target.dtype, dense(target.ints))]
    b = RegionBuilder(out.ints, (), reads, [Access(out.dtype, dense(out.ints))])
    b.row()
    place = b.let(b.input(1), DType.I64)
    known = b.let(call("and", place >= 0, place < classes), DType.B1)
    found = b.fetch(0, b.let(place * strides[axis], DType.I64), known)
    value = select(known, -found, float("nan"))
    if "ignore_index" in node.attrs:
        value = select(call("eq", place, int_attr(node.attrs, "ignore_index")), 0.0, value)
    b.store(0, b.let(value, out.dtype))
    return [Launch(b.region(), node.inputs, node.outputs)] if prod(out.ints) else []
