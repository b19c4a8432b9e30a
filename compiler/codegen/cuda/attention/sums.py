"""The region that adds parts of a gradient, or a gradient along the axes over which its tensor is broadcast."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from dslc.compiler.codegen.region.builder import RegionBuilder
from dslc.compiler.codegen.region.ir import Access, Region
from dslc.compiler.ir.types import DType


class Along(NamedTuple):
    """An axis of ``size`` elements with its strides in what is read and in the result; None: it is added up."""

    size: int
    read: int
    written: int | None


def summed(axes: Sequence[Along], given: DType, result: DType, start: int = 0) -> Region:
    """The region from a tensor of ``given`` to one of ``result``, whose first element is at ``start``. 16-bit floats
    are added in f32."""
    kept = [(size, read, written) for size, read, written in axes if written is not None]
    added = [(size, read, 0) for size, read, written in axes if written is None] or [(1, 0, 0)]
    sizes, reads, writes = zip(*kept, *added)
    outer, strides = sizes[: len(kept)], Access(result, writes, start)
    b = RegionBuilder(outer, sizes[len(kept) :], [Access(given, reads)], [strides])
    b.element()
    total = b.reduce("sum", b.let(b.input(0), given.computed))
    b.row()
    b.store(0, b.let(total, result))
    return b.region()
