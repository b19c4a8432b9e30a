"""Regions in which each result element gathers the source elements that it depends on: pools, interpolation.

Along each spatial axis these form a run whose start follows from the element's own index. All runs have the length of
the longest; a mask excludes the surplus. So a gradient gathers, too, and no two threads add to one element.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product

from dslc.compiler.codegen.launch import Launch, Scratch
from dslc.compiler.codegen.region.builder import RegionBuilder
from dslc.compiler.codegen.region.ir import Access, dense
from dslc.compiler.ir.graph import Node, Value
from dslc.compiler.ir.index_limits import I32_ELEMENTS
from dslc.compiler.ir.scalar import Expr, as_expr, call, select
from dslc.compiler.ir.types import DType, TensorType


@dataclass(frozen=True)
class Run:
    """The source elements of a result element along one axis.

    ``place(i, t)`` is the source index at step t of ``steps`` for result element i. It counts if it is in 0 to ``size``
    - 1 and ``inside(i, place)`` is true. ``weight(g, i, place)`` is its weight, if not 1. ``reach`` is more than any
    integer that these compute, if that is not obvious from the sizes. ``clamped``: a source index outside counts as
    that of the border.
    """

    size: int
    steps: int
    place: Callable[[Expr, Expr], Expr]
    inside: Callable[[Expr, Expr], Expr] | None = None
    weight: Callable[[Gathered, Expr, Expr], Expr] | None = None
    reach: int = 0
    clamped: bool = False


class Gathered:
    """A region over the elements of a result [B, C, *space], or [B, *space, C] of an op with channels last, with the
    steps of all runs as inner axes.

    ``inputs``: indices of the node's inputs that it reads, each with the source's shape.
    """

    def __init__(self, node: Node, runs: Sequence[Run], inputs: Sequence[int] = (0,)) -> None:
        shape, axes = node.types[0].ints, len(runs)
        self.runs, self.dtype = runs, node.types[0].dtype
        last = with_channels_last(node)
        first = 1 if last else 2  # the first axis of space
        #: Elements between neighbours in a plane.
        self.step = shape[-1] if last else 1
        planes = [0] * (2 + 2 * axes)
        channels = first + axes if last else 1
        source = dense((shape[0], shape[channels], math.prod(r.size for r in runs)))
        planes[0], planes[channels] = source[0], 1 if last and shape[-1] > 1 else source[1]
        sources = [Access(node.input_types[n].dtype, tuple(planes)) for n in inputs]
        targets = [Access(t.dtype, dense(shape) + (0,) * axes) for t in node.types]
        self.reads: tuple[Value | Scratch, ...] = tuple(node.inputs[n] for n in inputs)
        self.writes: tuple[Value | Scratch, ...] = node.outputs
        self.dtypes = [t.dtype for t in node.types]
        indices = (*range(first, first + axes), *range(2 + axes, 2 + 2 * axes))
        self.b = self._builder(shape, [r.steps for r in runs], sources, targets, indices)
        greatest = max(max(2 * (r.size + 1) * (n + 1), r.reach) for r, n in zip(runs, image_of(node, node.types[0])))
        greatest = max(greatest, *(math.prod(t.ints) for t in _types(node)))
        self.places = DType.I32 if greatest < I32_ELEMENTS else DType.I64
        self.b.row()
        self.own = [self.place(self.b.along(first + n)) for n in range(axes)]

    def _builder(
        self, shape: Sequence[int], steps: Sequence[int], reads: list[Access], writes: list[Access],
        indices: Sequence[int],
    ) -> RegionBuilder:  # fmt: skip
        return RegionBuilder(shape, steps, reads, writes, indices)

    def place(self, expr: Expr) -> Expr:
        """An integer in the index type (i32 or i64)."""
        return self.b.let(expr, self.places)

    def let(self, expr: Expr) -> Expr:
        """A value of the tensor's dtype."""
        return self.b.let(expr, self.dtype)

    def holds(self, expr: Expr) -> Expr:
        return self.b.let(expr, DType.B1)

    def element(self) -> tuple[Expr, Expr, Expr | None]:
        """Begins an element stage: the source index in its plane, whether it counts, and its weight."""
        self.b.element()
        where, mask, weight = as_expr(0), as_expr(True), None
        for n, run in enumerate(self.runs):
            index, counts, share = self._along(n, self.place(self.b.step(n)))
            mask = self.holds(call("and", mask, counts))
            where = self.place(where * run.size + index)
            if share is not None:
                weight = share if weight is None else self.let(weight * share)
        return where, mask, weight

    def _along(self, axis: int, step: Expr) -> tuple[Expr, Expr, Expr | None]:
        """At a step along an axis: the source index, whether it counts, and its weight."""
        run, own = self.runs[axis], self.own[axis]
        place = self.place(run.place(own, step))
        index = self.place(call("min", call("max", place, 0), run.size - 1)) if run.clamped else place
        counts = call("and", index >= 0, index < run.size)
        if run.inside is not None:
            counts = call("and", counts, run.inside(own, index))
        return index, counts, None if run.weight is None else run.weight(self, own, place)

    def fetch(self, number: int, where: Expr, mask: Expr | None = None) -> Expr:
        """The element of input ``number`` at an index in its plane."""
        return self.b.fetch(number, where if self.step == 1 else self.place(self.step * where), mask)

    def unravelled(self, where: Expr) -> list[Expr]:
        """The index along each axis of the source."""
        found: list[Expr] = []
        for run in reversed(self.runs):
            found.append(self.place(call("mod", where, run.size)))
            where = self.place(call("floordiv", where, run.size))
        return found[::-1]

    def added(self, value: Expr) -> Expr:
        """The sum over the steps; leaves a row stage open."""
        total = self.b.reduce("sum", value)
        self.b.row()
        return total

    def store(self, expr: Expr, output: int = 0) -> None:
        self.b.store(output, self.b.let(expr, self.dtypes[output]))

    def launch(self) -> list[Launch]:
        return [Launch(self.b.region(), self.reads, self.writes)]


@dataclass(frozen=True)
class Point:
    """A source element: its index in the plane and along each axis, whether it counts, and its weight."""

    where: Expr
    places: tuple[Expr, ...]
    mask: Expr
    weight: Expr | None


class Unrolled(Gathered):
    """The same without inner axes: the steps are written one after the other, each axis's once."""

    def _builder(
        self, shape: Sequence[int], steps: Sequence[int], reads: list[Access], writes: list[Access],
        indices: Sequence[int],
    ) -> RegionBuilder:  # fmt: skip
        outer, count = [i for i in indices if i < len(shape)], len(shape)
        inputs, outputs = ([replace(a, strides=a.strides[:count]) for a in each] for each in (reads, writes))
        return RegionBuilder(shape, (), inputs, outputs, outer)

    def fetch(self, number: int, where: Expr, mask: Expr | None = None) -> Expr:
        """Like that of all regions, but loads do not depend on the mask: none waits for another in a branch."""
        if mask is None:
            return super().fetch(number, where)
        found = super().fetch(number, self.place(select(mask, where, 0)))
        return self.let(select(mask, found, 0.0))

    def points(self) -> Iterator[Point]:
        """The source elements in row-major order."""
        lines = []
        for axis, run in enumerate(self.runs):
            line = [self._along(axis, as_expr(step)) for step in range(run.steps)]
            lines.append([(index, self.holds(counts), weight) for index, counts, weight in line])
        for each in product(*lines):
            where, mask, weight = each[0]
            for run, (index, counts, share) in zip(self.runs[1:], each[1:]):
                where, mask = self.place(where * run.size + index), self.holds(call("and", mask, counts))
                weight = share if weight is None else weight if share is None else self.let(weight * share)
            yield Point(where, tuple(index for index, _, _ in each), mask, weight)


class Line(Gathered):
    """The same over one axis of ``shape``, which gets ``count`` elements: from ``source`` to ``target``."""

    def __init__(
        self, dtype: DType, shape: Sequence[int], axis: int, count: int, run: Run,
        source: Value | Scratch, target: Value | Scratch,
    ) -> None:  # fmt: skip
        before, size, after = math.prod(shape[:axis]), shape[axis], math.prod(shape[axis + 1 :])
        self.runs, self.dtype, self.dtypes, self.step = [run], dtype, [dtype], after
        self.reads, self.writes = (source,), (target,)
        row = 1 if after > 1 else 0
        read, written = Access(dtype, (size * after, 0, row, 0)), Access(dtype, (count * after, after, row, 0))
        self.b = RegionBuilder((before, count, after), [run.steps], [read], [written], (1, 3))
        greatest = max(2 * (size + 1) * (count + 1), run.reach, before * after * max(size, count))
        self.places = DType.I32 if greatest < I32_ELEMENTS else DType.I64
        self.b.row()
        self.own = [self.place(self.b.along(1))]


def _types(node: Node) -> tuple[TensorType, ...]:
    return (*node.input_types, *node.types)


def with_channels_last(node: Node) -> bool:
    """Whether the images of an op have their channels last."""
    return node.op.name.endswith("_last")


def image_of(node: Node, type: TensorType) -> tuple[int, ...]:
    """The size of the images in a tensor of the node."""
    return type.ints[1:-1] if with_channels_last(node) else type.ints[2:]


def space(node: Node) -> list[tuple[int, int]]:
    """Along each spatial axis: the sizes of the input and of the output."""
    return list(zip(image_of(node, node.input_types[0]), image_of(node, node.types[0])))


def summed(node: Node, runs: Sequence[Run], divisor: float | None = None) -> list[Launch]:
    """The weighted sum of the source elements of each result element."""
    g = Gathered(node, runs)
    where, mask, weight = g.element()
    value = g.fetch(0, where, mask)
    if weight is not None:
        value = g.let(select(mask, value * weight, 0.0))
    total = g.added(value)
    g.store(total if divisor is None else total / divisor)
    return g.launch()
