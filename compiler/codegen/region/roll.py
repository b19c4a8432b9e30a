"""The op roll: copies of the parts that move together, or one region that reads each element at its old place."""

from __future__ import annotations

from itertools import product
from math import prod
from typing import Final

from dslc.compiler.codegen.launch import Launch
from dslc.compiler.codegen.lowerings import lowers
from dslc.compiler.codegen.region.builder import RegionBuilder
from dslc.compiler.codegen.region.ir import Access, all_strides, dense
from dslc.compiler.codegen.region.pointwise import copy
from dslc.compiler.ir.graph import Node
from dslc.compiler.ir.scalar import as_expr, select
from dslc.compiler.ir.types import DType
from dslc.compiler.ops.attrs import int_tuple

_WORDS: Final = (DType.I64, DType.I32)  # read and written as they are; what a kernel reads begins at whole words


@lowers("roll")
def roll(node: Node) -> list[Launch]:
    """Two parts for each axis that moves, copied in whole vectors."""
    x, by = node.types[0], _shifts(node)
    strides = all_strides(x.ints)
    launches = []
    for part in product(*([(0, n - s, s), (n - s, s, -(n - s))] if s else [(0, n, 0)] for n, s in zip(x.ints, by))):
        shape, source, target = [], 0, 0
        for (start, size, moved), stride in zip(part, strides):
            shape.append(size)
            source += start * stride
            target += (start + moved) * stride
        region = copy(shape, Access(x.dtype, strides, source), Access(x.dtype, strides, target))
        launches.append(Launch(region, node.inputs, node.outputs))
    return launches


@lowers("roll", target="cuda")
def roll_at_once(node: Node) -> list[Launch]:
    """One launch; a launch of a small part would cost more than its copy. What moves together is copied in words."""
    x, by = node.types[0], _shifts(node)
    moved = [axis for axis, s in enumerate(by) if s]
    outer = moved[-1] + 1 if moved else 0
    bytes = prod(x.ints[outer:]) * x.dtype.itemsize
    word = next((each for each in _WORDS if bytes % each.itemsize == 0), x.dtype)
    sizes = (*x.ints[:outer], bytes // word.itemsize)
    strides = dense(sizes)
    source = Access(word, tuple(0 if axis in moved else stride for axis, stride in enumerate(strides)))
    b = RegionBuilder(sizes, (), [source], [Access(word, strides)], indices=moved)
    b.row()
    place = as_expr(0)
    for axis in moved:
        along = b.let(b.along(axis) - by[axis], DType.I64)
        place = place + b.let(select(along < 0, along + sizes[axis], along), DType.I64) * strides[axis]
    value = b.fetch(0, b.let(place, DType.I64)) if moved else b.input(0)
    b.store(0, b.let(value, word))
    return [Launch(b.region(), node.inputs, node.outputs)]


def _shifts(node: Node) -> list[int]:
    """The shift of each axis, from 0 to below its size."""
    return [s % max(1, n) for s, n in zip(int_tuple(node.attrs, "shifts"), node.types[0].ints)]
