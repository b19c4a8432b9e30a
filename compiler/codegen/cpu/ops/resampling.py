"""Interpolation and adaptive average pools, axis by axis: fewer elements are gathered than from all axes at once.

Axes that shrink come first, in order, so that the last axis, along which elements are gathered one by one, meets few
lines; then those that grow, in reverse order. Along all other axes whole vectors are read. Sums of a result element are
those of its lines, so they are added in another order than at once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

from dslc.compiler.codegen.launch import Launch, Scratch
from dslc.compiler.codegen.lowerings import lowers
from dslc.compiler.codegen.region import interpolation, pooling
from dslc.compiler.codegen.region.window_sum import Gathered, Line, Run, space, with_channels_last
from dslc.compiler.ir.graph import Node, Value
from dslc.compiler.ir.scalar import Expr, select

#: Completes a line: the element at a place, or the sum, along a spatial axis.
_Finish = Callable[[Gathered, int, Expr, Expr], Expr]


@lowers("interpolate", "interpolate_last", target="cpu")
def interpolate(node: Node) -> list[Launch]:
    return _by_axes(node, interpolation.forth(node)) or interpolation.interpolate(node)


@lowers("interpolate_grad", "interpolate_grad_last", target="cpu")
def interpolate_grad(node: Node) -> list[Launch]:
    return _by_axes(node, interpolation.back(node)) or interpolation.interpolate_grad(node)


@lowers("adaptive_avgpool", "adaptive_avgpool_last", target="cpu")
def adaptive_avgpool(node: Node) -> list[Launch]:
    sizes = space(node)

    def mean(g: Gathered, axis: int, total: Expr, i: Expr) -> Expr:
        return total / pooling.window_size(g, [i], [sizes[axis]])

    return _by_axes(node, pooling.adaptive(node), total=mean) or pooling.adaptive_avgpool(node)


@lowers("adaptive_avgpool_grad", "adaptive_avgpool_grad_last", target="cpu")
def adaptive_avgpool_grad(node: Node) -> list[Launch]:
    sizes = space(node)

    def share(g: Gathered, axis: int, x: Expr, place: Expr) -> Expr:
        m, n = sizes[axis]
        return g.let(x / pooling.window_size(g, [place], [(n, m)]))

    return _by_axes(node, pooling.adaptive(node), each=share) or pooling.adaptive_avgpool_grad(node)


def _by_axes(
    node: Node, runs: Sequence[Run], each: _Finish | None = None, total: _Finish | None = None
) -> list[Launch]:
    """A launch for each axis whose size changes; none if none does."""
    dtype, sizes = node.types[0].dtype, space(node)
    first, shape = 1 if with_channels_last(node) else 2, list(node.input_types[0].ints)
    shrinking = [axis for axis, (n, m) in enumerate(sizes) if m < n]
    growing = [axis for axis, (n, m) in enumerate(sizes) if m > n]
    axes, launches = [*shrinking, *reversed(growing)], list[Launch]()
    source: Value | Scratch = node.inputs[0]
    for number, axis in enumerate(axes):
        here, count = first + axis, sizes[axis][1]
        after = [*shape[:here], count, *shape[here + 1 :]]
        done = number == len(axes) - 1
        target = node.out if done else Scratch(number, prod(after) * dtype.itemsize)
        g = Line(dtype, shape, here, count, runs[axis], source, target)
        place, mask, weight = g.element()
        x = g.fetch(0, place, mask)
        if weight is not None:
            x = g.let(select(mask, x * weight, 0.0))
        if each is not None:
            x = g.let(select(mask, each(g, axis, x, place), 0.0))
        found = g.added(x)
        g.store(found if total is None else total(g, axis, found, g.own[0]))
        launches += g.launch()
        shape, source = after, target
    return launches
