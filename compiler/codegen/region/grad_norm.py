"""Regions of the global norm for gradient clipping: sums of squares of blocks, then their total."""

from __future__ import annotations

import math
from typing import Final

from dslc.compiler.codegen.launch import Launch, Scratch
from dslc.compiler.codegen.lowerings import lowers
from dslc.compiler.codegen.region.ir import Access, Region, RegionBuilder
from dslc.compiler.ir.graph import Node
from dslc.compiler.ir.scalar import as_expr, call
from dslc.compiler.ir.types import DType

_BLOCK_ELEMENTS: Final = 4096  # elements of a partial sum: keeps it accurate and gives all threads work


@lowers("global_norm")
def global_norm(node: Node) -> list[Launch]:
    """The partial sums of all inputs are stored consecutively in one scratch block."""
    dtype = node.types[0].dtype
    pieces = []  # of an input: (input, first element, blocks, elements per block)
    for value in node.inputs:
        count = math.prod(value.type.ints)
        whole, rest = divmod(count, _BLOCK_ELEMENTS)
        pieces += [(value, 0, whole, _BLOCK_ELEMENTS)] if whole else []
        pieces += [(value, count - rest, 1, rest)] if rest else []
    total = sum(blocks for _, _, blocks, _ in pieces)
    sums = Scratch(0, max(1, total) * dtype.itemsize)
    found, place = [], 0
    for value, start, blocks, size in pieces:
        source, target = Access(value.type.dtype, (size, 1), start), Access(dtype, (1, 0), place)
        found.append(Launch(_squares(source, target, blocks, size), (value,), (sums,)))
        place += blocks
    last = _root(dtype, total)
    return [*found, Launch(last, (sums,) if total else (), node.outputs)]


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
