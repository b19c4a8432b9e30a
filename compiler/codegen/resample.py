"""Regions of images of another size: pools over any windows, adaptive pools, interpolation, and their gradients.

Each element of the result goes over the elements that it is made of, along each spatial axis a run whose start follows
from its own place; runs have the length of the longest, what is too much is left out by a mask. So a gradient gathers
too, and nothing is added by two threads.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from dslc.compiler.codegen.launch import Launch
from dslc.compiler.codegen.region import Access, RegionBuilder, dense
from dslc.compiler.ir.graph import Node
from dslc.compiler.ir.scalar import Expr, as_expr, call, select
from dslc.compiler.ir.types import DType, TensorType
from dslc.compiler.ops.attrs import int_tuple, str_attr


@dataclass(frozen=True)
class Run:
    """What an element of the result is made of along one axis.

    ``place(i, t)`` is the source's place at step t of ``steps`` for element i; it counts where it is from 0 to
    ``size`` - 1 and ``inside(i, place)`` is true. ``weight(g, i, place)`` is its share, if not 1.
    """

    size: int
    steps: int
    place: Callable[[Expr, Expr], Expr]
    inside: Callable[[Expr, Expr], Expr] | None = None
    weight: Callable[[Gathered, Expr, Expr], Expr] | None = None


class Gathered:
    """A region over the elements of a result [B, C, *space], with the steps of all runs as inner axes.

    ``inputs``: the numbers of the node's inputs that it reads, each of the source's shape.
    """

    def __init__(self, node: Node, runs: Sequence[Run], inputs: Sequence[int] = (0,)) -> None:
        shape, axes = node.types[0].ints, len(runs)
        self.node, self.runs, self.dtype = node, runs, node.types[0].dtype
        source = dense((*shape[:2], *(r.size for r in runs)))
        planes = (*source[:2], *(0,) * (2 * axes))
        sources = [Access(node.input_types[n].dtype, planes) for n in inputs]
        targets = [Access(t.dtype, dense(shape) + (0,) * axes) for t in node.types]
        self.reads = tuple(node.inputs[n] for n in inputs)
        self.b = RegionBuilder(shape, [r.steps for r in runs], sources, targets, range(2, 2 + 2 * axes))
        greatest = max(2 * (r.size + 1) * (n + 1) for r, n in zip(runs, shape[2:]))
        self.places = DType.I32 if max(greatest, *(math.prod(t.ints) for t in _types(node))) < 1 << 31 else DType.I64
        self.b.row()
        self.own = [self.place(self.b.along(2 + n)) for n in range(axes)]

    def place(self, expr: Expr) -> Expr:
        """An integer in the type of places."""
        return self.b.let(expr, self.places)

    def let(self, expr: Expr) -> Expr:
        """A value of the tensor's dtype."""
        return self.b.let(expr, self.dtype)

    def holds(self, expr: Expr) -> Expr:
        return self.b.let(expr, DType.B1)

    def element(self) -> tuple[Expr, Expr, Expr | None]:
        """Begins an element stage: the source's place in its plane, whether it counts, and its weight."""
        self.b.element()
        where, mask, weight = as_expr(0), as_expr(True), None
        for n, run in enumerate(self.runs):
            step = self.place(self.b.along(2 + len(self.runs) + n))
            place = self.place(run.place(self.own[n], step))
            counts = call("and", place >= 0, place < run.size)
            if run.inside is not None:
                counts = call("and", counts, run.inside(self.own[n], place))
            mask = self.holds(call("and", mask, counts))
            where = self.place(where * run.size + place)
            if run.weight is not None:
                share = run.weight(self, self.own[n], place)
                weight = share if weight is None else self.let(weight * share)
        return where, mask, weight

    def unravelled(self, where: Expr) -> list[Expr]:
        """The place along each axis of the source."""
        found: list[Expr] = []
        for run in reversed(self.runs):
            found.append(self.place(call("mod", where, run.size)))
            where = self.place(call("floordiv", where, run.size))
        return found[::-1]

    def added(self, value: Expr) -> Expr:
        """The sum over the steps; a row stage is open."""
        total = self.b.reduce("sum", value)
        self.b.row()
        return total

    def store(self, expr: Expr, output: int = 0) -> None:
        self.b.store(output, self.b.let(expr, self.node.types[output].dtype))

    def launch(self) -> list[Launch]:
        return [Launch(self.b.region(), self.reads, self.node.outputs)]


def _types(node: Node) -> tuple[TensorType, ...]:
    return (*node.input_types, *node.types)


def _space(node: Node) -> list[tuple[int, int]]:
    """Along each spatial axis: the input's size, the output's."""
    return list(zip(node.input_types[0].ints[2:], node.types[0].ints[2:]))


def _summed(node: Node, runs: Sequence[Run], divisor: float | None = None) -> list[Launch]:
    """The weighted sum of what each element is made of."""
    g = Gathered(node, runs)
    where, mask, weight = g.element()
    value = g.b.fetch(0, where, mask)
    if weight is not None:
        value = g.let(select(mask, value * weight, 0.0))
    total = g.added(value)
    g.store(total if divisor is None else total / divisor)
    return g.launch()


@dataclass(frozen=True)
class _Pool:
    """A pool along one axis of an image of ``size``, of which there are ``windows``."""

    size: int
    windows: int
    k: int
    stride: int
    pad: int

    def forth(self) -> Run:
        """The elements of a window."""
        return Run(self.size, self.k, lambda i, t: i * self.stride + t - self.pad)

    def back(self) -> Run:
        """The windows that hold an element."""
        return Run(
            self.windows,
            -(-self.k // self.stride),
            lambda i, t: call("floordiv", i + self.pad, self.stride) - t,
            lambda i, window: self.inside(i, window) < self.k,
        )

    def inside(self, i: Expr, window: Expr) -> Expr:
        """The place of element i in a window."""
        return i + self.pad - window * self.stride


def _pools(node: Node, image: Sequence[int], windows: Sequence[int]) -> list[_Pool]:
    k, stride, pad = (int_tuple(node.attrs, name) for name in ("k", "stride", "pad"))
    return [_Pool(*sizes) for sizes in zip(image, windows, k, stride, pad)]


def avgpool(node: Node) -> list[Launch]:
    pools = _pools(node, node.input_types[0].ints[2:], node.types[0].ints[2:])
    return _summed(node, [p.forth() for p in pools], float(math.prod(p.k for p in pools)))


def avgpool_grad(node: Node) -> list[Launch]:
    """Windows that lie side by side: each dy is repeated. Else every element adds up the windows that it lies in."""
    pools = _pools(node, node.types[0].ints[2:], node.input_types[0].ints[2:])
    count = float(math.prod(p.k for p in pools))
    if all(p.k == p.stride and p.pad == 0 and p.size == p.windows * p.k for p in pools):
        return _repeated(node, [p.k for p in pools], count)
    return _summed(node, [p.back() for p in pools], count)


def _repeated(node: Node, k: Sequence[int], divisor: float) -> list[Launch]:
    """Each element divided, and repeated ``k`` times along each axis."""
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


def maxpool(node: Node) -> list[Launch]:
    pools = _pools(node, node.input_types[0].ints[2:], node.types[0].ints[2:])
    return _greatest(node, [p.forth() for p in pools], in_image=False)


def adaptive_maxpool(node: Node) -> list[Launch]:
    return _greatest(node, _adaptive(node), in_image=True)


def _greatest(node: Node, runs: Sequence[Run], in_image: bool) -> list[Launch]:
    """The greatest element of each run, nan before any number, and the place of the first that is equal: in the image,
    or in the window, where padding counts as minus infinity."""
    g = Gathered(node, runs)
    where, mask, _ = g.element()
    top = g.b.reduce("max", g.let(select(mask, g.b.fetch(0, where, mask), -math.inf)))
    where, mask, _ = g.element()
    x = g.let(select(mask, g.b.fetch(0, where, mask), -math.inf))
    equal = call("or", call("eq", x, top), call("ne", x, x))
    place, none = g.place(g.b.index), math.prod(r.steps for r in runs)
    if in_image:
        equal, place, none = call("and", mask, equal), where, math.prod(r.size for r in runs)
    first = g.b.reduce("min", g.place(select(equal, place, none)))
    g.b.row()
    g.store(top)
    g.store(first, 1)
    return g.launch()


def maxpool_grad(node: Node) -> list[Launch]:
    """Every element adds up the dy of the windows that took it."""
    pools = _pools(node, node.types[0].ints[2:], node.input_types[0].ints[2:])
    g = Gathered(node, [p.back() for p in pools], (0, 1))
    where, mask, _ = g.element()
    taken, own = g.place(g.b.fetch(1, where, mask)), as_expr(0)
    for pool, i, window in zip(pools, g.own, g.unravelled(where)):
        own = g.place(own * pool.k + pool.inside(i, window))
    hit = g.holds(call("and", mask, call("eq", own, taken)))
    g.store(g.added(g.let(select(hit, g.b.fetch(0, where, mask), 0.0))))
    return g.launch()


def _adaptive(node: Node) -> list[Run]:
    """Window i of m over n elements: floor(i*n/m) to ceil((i + 1)*n/m). The windows that hold an element are found by
    the same formula with n and m exchanged."""
    return [_share(n, m) for n, m in _space(node)]


def _share(n: int, m: int) -> Run:
    return Run(
        n,
        max(-(-(i + 1) * n // m) - i * n // m for i in range(m)),
        lambda i, t: call("floordiv", i * n, m) + t,
        lambda i, place: place < _end(i, n, m),
    )


def _end(i: Expr, n: int, m: int) -> Expr:
    return call("floordiv", (i + 1) * n + (m - 1), m)


def _count(g: Gathered, places: Sequence[Expr], sizes: Sequence[tuple[int, int]]) -> Expr:
    """How many elements the window at these places has, as a float."""
    count = as_expr(1)
    for i, (n, m) in zip(places, sizes):
        count = g.place(count * (_end(i, n, m) - call("floordiv", i * n, m)))
    return g.let(count)


def adaptive_avgpool(node: Node) -> list[Launch]:
    g = Gathered(node, _adaptive(node))
    count = _count(g, g.own, _space(node))
    where, mask, _ = g.element()
    g.store(g.added(g.b.fetch(0, where, mask)) / count)
    return g.launch()


def adaptive_avgpool_grad(node: Node) -> list[Launch]:
    g = Gathered(node, _adaptive(node))
    where, mask, _ = g.element()
    count = _count(g, g.unravelled(where), [(n, m) for m, n in _space(node)])
    value = g.let(g.b.fetch(0, where, mask) / count)
    g.store(g.added(g.let(select(mask, value, 0.0))))
    return g.launch()


def interpolate(node: Node) -> list[Launch]:
    make = _nearest if str_attr(node.attrs, "mode") == "nearest" else _linear
    return _summed(node, [_whole(n) if n == m else make(n, m) for n, m in _space(node)])


def interpolate_grad(node: Node) -> list[Launch]:
    make = _nearest_back if str_attr(node.attrs, "mode") == "nearest" else _linear_back
    return _summed(node, [_whole(n) if n == m else make(n, m) for m, n in _space(node)])


def _whole(n: int) -> Run:
    """An axis that stays."""
    return Run(n, 1, lambda i, t: i)


def _nearest(n: int, m: int) -> Run:
    """The pixel of n that pixel i of m is."""
    return Run(n, 1, lambda i, t: call("floordiv", i * n, m))


def _nearest_back(n: int, m: int) -> Run:
    """The pixels of m that pixel j of n became."""
    taken = [i * n // m for i in range(m)]
    return Run(
        m,
        max(map(taken.count, range(n))),
        lambda j, t: call("floordiv", j * m + (n - 1), n) + t,
        lambda j, i: call("eq", call("floordiv", i * n, m), j),
    )


def _neighbours(g: Gathered, i: Expr, n: int, m: int) -> tuple[Expr, Expr, Expr]:
    """The pixel of n below pixel i of m, its weight, and that of the one above."""
    low = g.place(call("floordiv", _centre(i, n, m), 2 * m))
    above = g.let(g.let(call("mod", _centre(i, n, m), 2 * m)) / float(2 * m))
    return low, g.let(select(call("eq", low, n - 1), 1.0, 1 - above)), above


def _centre(i: Expr, n: int, m: int) -> Expr:
    """(i + 0.5)*n/m - 0.5, held at 0, as a numerator over 2*m."""
    return call("max", i * (2 * n) + (n - m), 0)


def _linear(n: int, m: int) -> Run:
    """The neighbours in n pixels that pixel i of m is made of."""

    def weight(g: Gathered, i: Expr, place: Expr) -> Expr:
        low, below, above = _neighbours(g, i, n, m)
        return g.let(select(call("eq", low, place), below, above))

    return Run(n, 2, lambda i, t: call("floordiv", _centre(i, n, m), 2 * m) + t, None, weight)


def _linear_back(n: int, m: int) -> Run:
    """The pixels of m that pixel j of n is a neighbour of."""
    low = [max((2 * i + 1) * n - m, 0) // (2 * m) for i in range(m)]

    def begin(j: Expr) -> Expr:
        return select(j < 2, 0, call("floordiv", j * (2 * m) + (n - m - 1), 2 * n))

    def weight(g: Gathered, j: Expr, i: Expr) -> Expr:
        first, below, above = _neighbours(g, i, n, m)
        return g.let(select(call("eq", first, j), below, select(call("eq", first + 1, j), above, 0.0)))

    return Run(m, max(low.count(j - 1) + low.count(j) for j in range(n)), lambda j, t: begin(j) + t, None, weight)


LOWERED: Final[Mapping[str, Callable[[Node], list[Launch]]]] = {
    "avgpool": avgpool,
    "avgpool_grad": avgpool_grad,
    "maxpool": maxpool,
    "maxpool_grad": maxpool_grad,
    "adaptive_avgpool": adaptive_avgpool,
    "adaptive_avgpool_grad": adaptive_avgpool_grad,
    "adaptive_maxpool": adaptive_maxpool,
    "interpolate": interpolate,
    "interpolate_grad": interpolate_grad,
}
