"""Regions of running sums and products: each element combines those before it."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from dslc.compiler.codegen.launch import Launch, Scratch
from dslc.compiler.codegen.lowerings import lowers
from dslc.compiler.codegen.region.builder import RegionBuilder
from dslc.compiler.codegen.region.ir import Access, Combine, all_strides
from dslc.compiler.ir.graph import Node
from dslc.compiler.ir.types import DType
from dslc.compiler.ops.attrs import bool_attr, int_attr, int_tuple


class _Lines:
    """Accesses over the kept axes of ``shape``, then the axes ``over``, along which arguments run forwards or
    backwards."""

    def __init__(self, shape: Sequence[int], over: Sequence[int]) -> None:
        self.shape, self.over = tuple(shape), tuple(over)
        self.kept = [a for a in range(len(shape)) if a not in self.over]
        self.outer, self.inner = [shape[a] for a in self.kept], [shape[a] for a in self.over]

    def access(self, dtype: DType, back: bool, along: bool = True) -> Access:
        """A dense tensor of the whole shape; if not ``along``, it has size 1 on the axes ``over``."""
        sizes = [n if along or axis in self.kept else 1 for axis, n in enumerate(self.shape)]
        strides = [s if n > 1 else 0 for s, n in zip(all_strides(sizes), sizes)]
        offset = 0
        if back:
            offset = sum(strides[a] * max(0, self.shape[a] - 1) for a in self.over)
            strides = [-s if a in self.over else s for a, s in enumerate(strides)]
        return Access(dtype, tuple(strides[a] for a in (*self.kept, *self.over)), offset)


@lowers("cumsum")
def cumsum(node: Node) -> list[Launch]:
    return _running(node, "sum")


@lowers("cumprod")
def cumprod(node: Node) -> list[Launch]:
    return _running(node, "prod")


def _running(node: Node, combine: Combine) -> list[Launch]:
    lines = _Lines(node.types[0].ints, [int_attr(node.attrs, "axis")])
    if not prod(lines.shape):
        return []
    back, dtype = bool_attr(node.attrs, "reverse"), node.types[0].dtype
    source, target = lines.access(node.input_types[0].dtype, back), lines.access(dtype, back)
    builder = RegionBuilder(lines.outer, lines.inner, [source], [target])
    builder.element()
    builder.store(0, builder.scan(combine, builder.let(builder.input(0), dtype)))
    return [Launch(builder.region(), node.inputs, node.outputs)]


@lowers("prod_grad")
def prod_grad(node: Node) -> list[Launch]:
    """Stores the product of the elements before each one to scratch; then, backwards, multiplies it by the product of
    the elements after it and dy."""
    [x, dy], [dx] = node.inputs, node.outputs
    lines, dtype = _Lines(x.type.ints, int_tuple(node.attrs, "over")), x.type.dtype
    if not prod(lines.shape):
        return []
    before = Scratch(0, x.type.bytes)
    builder = RegionBuilder(lines.outer, lines.inner, [lines.access(dtype, False)], [lines.access(dtype, False)])
    builder.element()
    builder.store(0, builder.scan("prod", builder.input(0), exclusive=True))
    forth = Launch(builder.region(), (x,), (before,))
    back = lines.access(dtype, True)
    builder = RegionBuilder(lines.outer, lines.inner, [back, back, lines.access(dtype, False, False)], [back])
    builder.element()
    after = builder.scan("prod", builder.input(0), exclusive=True)
    builder.store(0, builder.let(builder.let(builder.input(1) * after, dtype) * builder.input(2), dtype))
    return [forth, Launch(builder.region(), (x, before, dy), (dx,))]
