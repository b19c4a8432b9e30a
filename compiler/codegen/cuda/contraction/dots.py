"""Stacks of products of a vector: a tile of such a product would hold one row or column.

A row by a matrix, a matrix by a column, and a row by a column are sums along lines; a column by a row is a product of
elements. Each reads the matrices once, as fast as memory gives them. Capsules, mixtures and attention of one query have
such stacks.
"""

from __future__ import annotations

from math import prod

from dslc.compiler.codegen.launch import Launch, Scratch
from dslc.compiler.codegen.region.builder import RegionBuilder
from dslc.compiler.codegen.region.ir import Access, dense
from dslc.compiler.ir.graph import Node, Value
from dslc.compiler.ir.types import TensorType
from dslc.compiler.ops.attrs import bool_attr


def is_dots(node: Node) -> bool:
    """Whether a node multiplies so: one of rows, columns and terms is 1, and no matrix is multiplied twice."""
    if node.op.name != "matmul" or node.input_types[1].rank == len(("row", "column")):
        return False
    [a, b], [c] = node.input_types, node.types
    *stack, rows, columns = c.ints
    if prod(stack) < 2 or not prod(c.ints) or not prod(a.ints) or 1 not in (rows, columns, _terms(node)):
        return False
    return all(1 in t.ints[-2:] or prod(t.ints[:-2]) == prod(stack) for t in (a, b))


def dots(node: Node, result: Value | Scratch) -> Launch:
    """Each element: a sum of products in f32 (f64), or one product."""
    [a, b], [c] = node.input_types, node.types
    *stack, rows, columns = c.ints
    terms, ta, tb = _terms(node), bool_attr(node.attrs, "transpose_a"), bool_attr(node.attrs, "transpose_b")
    left = (*_along(a, len(stack)), *((1, 0, rows) if ta else (terms, 0, 1)))
    right = (*_along(b, len(stack)), *((0, terms, 1) if tb else (0, 1, columns)))
    sums = terms > 1
    lines = [Access(t.dtype, way if sums else way[:-1]) for t, way in ((a, left), (b, right))]
    out = Access(c.dtype, (*dense(c.ints), 0) if sums else dense(c.ints))
    builder = RegionBuilder(c.ints, (terms,) if sums else (), lines, [out])
    dtype = c.dtype.computed
    if sums:
        builder.element()
    else:
        builder.row()
    wide = [builder.let(builder.input(i), dtype) for i in range(2)]
    found = builder.let(wide[0] * wide[1], dtype)
    if sums:
        found = builder.reduce("sum", found)
        builder.row()
    builder.store(0, builder.let(found, c.dtype))
    return Launch(builder.region(), node.inputs[:2], (result,))


def _terms(node: Node) -> int:
    """Products that an element is the sum of."""
    return node.input_types[0].ints[-2 if bool_attr(node.attrs, "transpose_a") else -1]


def _along(t: TensorType, rank: int) -> tuple[int, ...]:
    """Strides of the axes of the stack; 0 where ``t`` is repeated."""
    lead = t.ints[:-2]
    steps = [prod(t.ints[i + 1 :]) if n > 1 else 0 for i, n in enumerate(lead)]
    return (*(0,) * (rank - len(lead)), *steps)
