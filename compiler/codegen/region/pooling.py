"""Regions of pools with any windows and of adaptive pools, and of their gradients."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from dslc.compiler.codegen.launch import Launch
from dslc.compiler.codegen.lowerings import lowers
from dslc.compiler.codegen.region.builder import RegionBuilder
from dslc.compiler.codegen.region.ir import Access, dense
from dslc.compiler.codegen.region.window_sum import Gathered, Run, space, summed, with_channels_last
from dslc.compiler.ir.graph import Node
from dslc.compiler.ir.scalar import Expr, as_expr, call, select
from dslc.compiler.ops.attrs import int_tuple


@dataclass(frozen=True)
class _Pool:
    """A pool with ``windows`` windows along one axis of an image of ``size``."""

    size: int
    windows: int
    k: int
    stride: int
    pad: int
    dilation: int = 1

    def forth(self) -> Run:
        """The elements of a window."""
        return Run(self.size, self.k, lambda i, t: i * self.stride + self._apart(t) - self.pad)

    def _apart(self, t: Expr) -> Expr:
        return t * self.dilation if self.dilation > 1 else t

    def back(self) -> Run:
        """The windows that contain an element."""
        return Run(
            self.windows,
            -(-self.k // self.stride),
            lambda i, t: call("floordiv", i + self.pad, self.stride) - t,
            lambda i, window: self.inside(i, window) < self.k,
        )

    def inside(self, i: Expr, window: Expr) -> Expr:
        """The offset of element i in a window."""
        return i + self.pad - window * self.stride


def _pools(node: Node, image: Sequence[int], windows: Sequence[int]) -> list[_Pool]:
    k, stride, pad = (int_tuple(node.attrs, name) for name in ("k", "stride", "pad"))
    return [_Pool(*sizes) for sizes in zip(image, windows, k, stride, pad)]


@lowers("avgpool", "avgpool_last")
def avgpool(node: Node) -> list[Launch]:
    pools = _pools(node, *zip(*space(node)))
    return summed(node, [p.forth() for p in pools], float(math.prod(p.k for p in pools)))


@lowers("avgpool_grad", "avgpool_grad_last")
def avgpool_grad(node: Node) -> list[Launch]:
    """Adjacent windows without overlap repeat each dy. Otherwise each element sums the windows that contain it."""
    pools = _pools(node, *reversed([*zip(*space(node))]))
    count = float(math.prod(p.k for p in pools))
    exact = all(p.k == p.stride and p.pad == 0 and p.size == p.windows * p.k for p in pools)
    if exact and not with_channels_last(node):
        return _repeated(node, [p.k for p in pools], count)
    return summed(node, [p.back() for p in pools], count)


def _repeated(node: Node, k: Sequence[int], divisor: float) -> list[Launch]:
    """Divides each element and repeats it ``k`` times along each axis."""
    [x], [y] = node.input_types, node.types
    source, target = dense(x.ints), dense(y.ints)
    outer, read, write = list(y.ints[:2]), list(source[:2]), list(target[:2])
    for axis, each in enumerate(k[:-1], 2):
        outer += [x.ints[axis], each]
        read += [source[axis], 0]
        write += [target[axis] * each, target[axis]]
    inputs = [Access(x.dtype, (*read, 1), repeat=k[-1])]
    builder = RegionBuilder((*outer, y.ints[-1]), (), inputs, [Access(y.dtype, (*write, 1))])
    builder.row()
    builder.store(0, builder.let(builder.input(0) / divisor, y.dtype))
    return [Launch(builder.region(), node.inputs, node.outputs)]


@lowers("maxpool", "maxpool_last")
def maxpool(node: Node) -> list[Launch]:
    pools = _pools(node, *zip(*space(node)))
    return _greatest(node, [p.forth() for p in pools], in_image=False)


@lowers("maxpool_places")
def maxpool_places(node: Node) -> list[Launch]:
    return _greatest(node, placed(node), in_image=True)


def placed(node: Node) -> list[Run]:
    """The runs of ``maxpool_places``."""
    k, stride, pad, dilation = (int_tuple(node.attrs, name) for name in ("k", "stride", "pad", "dilation"))
    return [_Pool(*sizes).forth() for sizes in zip(*zip(*space(node)), k, stride, pad, dilation)]


@lowers("adaptive_maxpool", "adaptive_maxpool_last")
def adaptive_maxpool(node: Node) -> list[Launch]:
    return _greatest(node, adaptive(node), in_image=True)


def _greatest(node: Node, runs: Sequence[Run], in_image: bool) -> list[Launch]:
    """The first maximum of each run (nan before any number) and its index: in the image, or in the window. Padding is
    never taken: if all elements are minus infinity, the first of them is."""
    g = Gathered(node, runs)
    where, mask, _ = g.element()
    top = g.b.reduce("max", g.let(select(mask, g.fetch(0, where, mask), -math.inf)))
    where, mask, _ = g.element()
    x = g.let(select(mask, g.fetch(0, where, mask), -math.inf))
    equal = call("and", mask, call("or", call("eq", x, top), call("ne", x, x)))
    place, none = g.place(g.b.index), math.prod(r.steps for r in runs)
    if in_image:
        place, none = where, math.prod(r.size for r in runs)
    first = g.b.reduce("min", g.place(select(equal, place, none)))
    if in_image:
        g.b.row()
        g.store(g.fetch(0, first))
    else:  # 0.0 and -0.0 are equal, so the first maximum may differ in bits from ``top``
        where, mask, _ = g.element()
        x = select(call("and", mask, call("eq", g.place(g.b.index), first)), g.fetch(0, where, mask), -math.inf)
        found = g.b.reduce("max", g.let(x))
        g.b.row()
        g.store(found)
    g.store(first, 1)
    return g.launch()


@lowers("maxpool_grad", "maxpool_grad_last")
def maxpool_grad(node: Node) -> list[Launch]:
    """Each element sums the dy of the windows whose maximum it is."""
    pools = _pools(node, *reversed([*zip(*space(node))]))
    g = Gathered(node, [p.back() for p in pools], (0, 1))
    where, mask, _ = g.element()
    taken, own = g.place(g.fetch(1, where, mask)), as_expr(0)
    for pool, i, window in zip(pools, g.own, g.unravelled(where)):
        own = g.place(own * pool.k + pool.inside(i, window))
    hit = g.holds(call("and", mask, call("eq", own, taken)))
    g.store(g.added(g.let(select(hit, g.fetch(0, where, mask), 0.0))))
    return g.launch()


def adaptive(node: Node) -> list[Run]:
    """Window i of m over n elements: floor(i*n/m) to ceil((i + 1)*n/m). The windows that contain an element follow from
    the same formula with n and m exchanged."""
    return [_share(n, m) for n, m in space(node)]


def _share(n: int, m: int) -> Run:
    return Run(
        n,
        max(-(-(i + 1) * n // m) - i * n // m for i in range(m)),
        lambda i, t: call("floordiv", i * n, m) + t,
        lambda i, place: place < _end(i, n, m),
    )


def _end(i: Expr, n: int, m: int) -> Expr:
    return call("floordiv", (i + 1) * n + (m - 1), m)


def window_size(g: Gathered, places: Sequence[Expr], sizes: Sequence[tuple[int, int]]) -> Expr:
    """The number of elements of the window at these indices, as a float."""
    count = as_expr(1)
    for i, (n, m) in zip(places, sizes):
        count = g.place(count * (_end(i, n, m) - call("floordiv", i * n, m)))
    return g.let(count)


@lowers("adaptive_avgpool", "adaptive_avgpool_last")
def adaptive_avgpool(node: Node) -> list[Launch]:
    g = Gathered(node, adaptive(node))
    count = window_size(g, g.own, space(node))
    where, mask, _ = g.element()
    g.store(g.added(g.fetch(0, where, mask)) / count)
    return g.launch()


@lowers("adaptive_avgpool_grad", "adaptive_avgpool_grad_last")
def adaptive_avgpool_grad(node: Node) -> list[Launch]:
    g = Gathered(node, adaptive(node))
    where, mask, _ = g.element()
    count = window_size(g, g.unravelled(where), [(n, m) for m, n in space(node)])
    value = g.let(g.fetch(0, where, mask) / count)
    g.store(g.added(g.let(select(mask, value, 0.0))))
    return g.launch()
