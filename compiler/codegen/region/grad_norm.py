"""Regions of the global norm for gradient clipping: sums of squares of blocks, then their total."""

from __future__ import annotations

import math
from typing import Final

from dslc.compiler.codegen.launch import Launch, Scratch
from dslc.compiler.codegen.lowerings import lowers
from dslc.compiler.codegen.region.builder import RegionBuilder
from dslc.compiler.codegen.region.ir import Access, Region
from dslc.compiler.ir.graph import Node, Value
from dslc.compiler.ir.scalar import as_expr, call
from dslc.compiler.ir.types import DType

BLOCK_ELEMENTS: Final = 4096  # elements of a partial sum: keeps it accurate and gives all threads work


@lowers("global_norm")
def global_norm(node: Node) -> list[Launch]:
    """The partial sums of all inputs are stored consecutively in one scratch block. A target may sum several inputs in
    one launch."""
    dtype = node.types[0].dtype
    total = sum(-(-math.prod(value.type.ints) // BLOCK_ELEMENTS) for value in node.inputs)
    sums = Scratch(0, max(1, total) * dtype.itemsize)
    found, place = [], 0
    for value in node.inputs:
        found += squares(value, dtype, sums, place)
        place += -(-math.prod(value.type.ints) // BLOCK_ELEMENTS)
    return [*found, root(node, sums, total)]


def squares(value: Value, dtype: DType, sums: Scratch, first: int) -> list[Launch]:
    """The sums of squares of the blocks of a tensor, stored from element ``first`` on."""
    whole, rest = divmod(math.prod(value.type.ints), BLOCK_ELEMENTS)
    pieces = [(0, whole, BLOCK_ELEMENTS)] if whole else []
    pieces += [(whole * BLOCK_ELEMENTS, 1, rest)] if rest else []
    found = []
    for start, blocks, size in pieces:
        source = Access(value.type.dtype, (size, 1), start)
        target = Access(dtype, (1, 0), first + start // BLOCK_ELEMENTS)
        found.append(Launch(_squares(source, target, blocks, size), (value,), (sums,)))
    return found


def root(node: Node, sums: Scratch, count: int) -> Launch:
    """The square root of the total of ``count`` sums."""
    return Launch(_root(node.types[0].dtype, count), (sums,) if count else (), node.outputs)


def _squares(source: Access, target: Access, blocks: int, size: int) -> Region:
    builder = RegionBuilder([blocks], [size], [source], [target])
    builder.element()
    x = builder.let(builder.input(0), target.dtype)
    found = builder.reduce("sum", builder.let(x * x, target.dtype))
    builder.row()
    builder.store(0, found)
    return builder.region()


def _root(dtype: DType, count: int) -> Region:
    builder = RegionBuilder(
        (), [count] if count else (), [Access(dtype, (1,))] if count else [], [_single_result(dtype, count)]
    )
    if count:
        builder.element()
        total = builder.reduce("sum", builder.let(builder.input(0), dtype))
        builder.row()
    else:
        builder.row()
        total = builder.let(as_expr(0.0), dtype)
    builder.store(0, builder.let(call("sqrt", total), dtype))
    return builder.region()


def _single_result(dtype: DType, count: int) -> Access:
    return Access(dtype, (0,) if count else ())
