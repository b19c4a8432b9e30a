"""Stacks of products of a row and a column, which are sums along lines: a tile of a product would hold one number."""

from __future__ import annotations

from math import prod

from dslc.compiler.codegen.launch import Launch, Scratch
from dslc.compiler.codegen.region.builder import RegionBuilder
from dslc.compiler.codegen.region.ir import Access, dense
from dslc.compiler.ir.graph import Node, Value
from dslc.compiler.ir.types import TensorType


def is_dots(node: Node) -> bool:
    """Whether each result of a product is the sum of two lines of its own."""
    if node.op.name != "matmul" or node.input_types[1].rank == len(("row", "column")):
        return False
    *stack, rows, columns = node.types[0].ints
    return rows == columns == 1 and prod(stack) > 1 and bool(prod(node.input_types[0].ints))


def dots(node: Node, result: Value | Scratch) -> Launch:
    """One sum for each line, in f32 (f64)."""
    [a, b], [c] = node.input_types, node.types
    stack, count = c.ints[:-2], prod(a.ints[-2:])
    lines = [Access(t.dtype, (*_along(t, len(stack)), 1)) for t in (a, b)]
    builder = RegionBuilder(stack, (count,), lines, [Access(c.dtype, (*dense(stack), 0))])
    dtype = c.dtype.computed
    builder.element()
    wide = [builder.let(builder.input(i), dtype) for i in range(2)]
    total = builder.reduce("sum", builder.let(wide[0] * wide[1], dtype))
    builder.row()
    builder.store(0, builder.let(total, c.dtype))
    return Launch(builder.region(), node.inputs[:2], (result,))


def _along(t: TensorType, rank: int) -> tuple[int, ...]:
    """Strides of the axes of the stack; 0 where ``t`` is repeated."""
    lead = t.ints[:-2]
    steps = [prod(t.ints[i + 1 :]) if n > 1 else 0 for i, n in enumerate(lead)]
    return (*(0,) * (rank - len(lead)), *steps)
