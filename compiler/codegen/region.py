"""One loop nest of a region, the same for every target: pointwise chains, reductions of rows or columns, copies.

A region runs over ``outer`` axes, whose points are its rows, and for each row over ``inner`` axes. Its work is a list
of stages. A ``row`` stage computes values once a row. An ``element`` stage loops over the inner axes: it computes
values for each element and reduces some of them to values of the row. Softmax over the last axis of f32[64, 10]::

    outer (64,) inner (10,)
    x = load f32 strides (10, 1)
    element: max(x) -> top
    element: e = exp(x - top); sum(e) -> total
    element: store exp(x - top) / total

Values are numbered: the inputs, then ``INNER`` (the row-major number of the element in the inner axes, i64), then what
the stages compute, in order. A value of an element stage is known in that stage alone, one of a row from then on. Every
value is rounded to its dtype, in a register as in memory, so a region gives the bits of its ops one by one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Literal, TypeAlias

from dslc.compiler.ir.scalar import Expr, argument
from dslc.compiler.ir.types import DType

Combine: TypeAlias = Literal["sum", "max", "min"]


@dataclass(frozen=True, slots=True)
class Access:
    """Where an argument's element lies: ``offset`` plus index times stride over outer, then inner axes, in elements.

    A stride of 0 repeats; any other view (transposed, sliced, reversed) is a matter of strides and offset.
    """

    dtype: DType
    strides: tuple[int, ...]
    offset: int = 0


@dataclass(frozen=True, slots=True)
class Let:
    """The next value: ``expr``, whose arguments are numbers of earlier values, rounded to ``dtype``."""

    expr: Expr
    dtype: DType


@dataclass(frozen=True, slots=True)
class Reduce:
    """The next value, of the row: ``value`` of all elements combined. max and min give nan where there is one."""

    combine: Combine
    value: int


@dataclass(frozen=True, slots=True)
class Store:
    """Writes ``value`` to output number ``output``, of the same dtype."""

    output: int
    value: int


@dataclass(frozen=True, slots=True)
class Raise:
    """Sets output number ``output``, one b1 that an earlier launch has cleared, where ``value`` is true anywhere."""

    output: int
    value: int


@dataclass(frozen=True, slots=True)
class Stage:
    """``element``: over the inner axes; else once a row, without reductions."""

    element: bool
    lets: tuple[Let, ...] = ()
    reduces: tuple[Reduce, ...] = ()
    stores: tuple[Store, ...] = ()
    raises: tuple[Raise, ...] = ()


@dataclass(frozen=True, slots=True)
class Region:
    """Sizes of the axes, how arguments are addressed (over outer + inner axes), and the stages."""

    outer: tuple[int, ...]
    inner: tuple[int, ...]
    inputs: tuple[Access, ...]
    outputs: tuple[Access, ...]
    stages: tuple[Stage, ...]

    @property
    def rows(self) -> int:
        return prod(self.outer)

    @property
    def index(self) -> int:
        """The number of the value INNER."""
        return len(self.inputs)


class RegionBuilder:
    """Puts a region together; values are Exprs that name them."""

    def __init__(
        self, outer: Sequence[int], inner: Sequence[int], inputs: Sequence[Access], outputs: Sequence[Access]
    ) -> None:
        self._region = Region(tuple(outer), tuple(inner), tuple(inputs), tuple(outputs), ())
        self._stages: list[Stage] = []
        self._count = len(inputs) + 1
        self._open: bool | None = None
        self._lets: list[Let] = []
        self._reduces: list[Reduce] = []
        self._stores: list[Store] = []
        self._raises: list[Raise] = []

    @property
    def index(self) -> Expr:
        """INNER."""
        return argument(self._region.index)

    def input(self, number: int) -> Expr:
        return argument(number)

    def element(self) -> None:
        """Begins an element stage."""
        self._begin(True)

    def row(self) -> None:
        """Begins a row stage."""
        self._begin(False)

    def let(self, expr: Expr, dtype: DType) -> Expr:
        assert self._open is not None and not self._reduces, "values come before what reduces them"
        self._lets.append(Let(expr, dtype))
        return self._next()

    def reduce(self, combine: Combine, value: Expr) -> Expr:
        """A value of the row from one of the elements; for use in later stages."""
        assert self._open and value.function == "arg"
        self._reduces.append(Reduce(combine, value.index))
        return self._next()

    def store(self, output: int, value: Expr) -> None:
        assert value.function == "arg"
        self._stores.append(Store(output, value.index))

    def raise_flag(self, output: int, value: Expr) -> None:
        assert value.function == "arg"
        self._raises.append(Raise(output, value.index))

    def region(self) -> Region:
        """The region, its axes merged where that is possible."""
        self._begin(None)
        return collapsed(replace(self._region, stages=tuple(self._stages)))

    def _next(self) -> Expr:
        self._count += 1
        return argument(self._count - 1)

    def _begin(self, element: bool | None) -> None:
        if self._open is not None:
            lets, reduces = tuple(self._lets), tuple(self._reduces)
            self._stages.append(Stage(self._open, lets, reduces, tuple(self._stores), tuple(self._raises)))
        self._open, self._lets, self._reduces, self._stores, self._raises = element, [], [], [], []


def dense(shape: Sequence[int]) -> tuple[int, ...]:
    """The strides of a row-major tensor, 0 for axes of size 1."""
    strides = [0] * len(shape)
    step = 1
    for axis in range(len(shape) - 1, -1, -1):
        strides[axis] = step if shape[axis] != 1 else 0
        step *= shape[axis]
    return tuple(strides)


def broadcast_strides(shape: Sequence[int], wide: Sequence[int]) -> tuple[int, ...]:
    """Strides over the axes of ``wide`` of a dense tensor that numpy would broadcast to it."""
    return (0,) * (len(wide) - len(shape)) + dense(shape)


def collapsed(region: Region) -> Region:
    """The same region with axes of size 1 dropped and neighbours merged where all arguments allow it."""
    accesses = (*region.inputs, *region.outputs)
    split = len(region.outer)
    outer, outer_strides = _merged(region.outer, [a.strides[:split] for a in accesses])
    inner, inner_strides = _merged(region.inner, [a.strides[split:] for a in accesses])
    merged = [replace(a, strides=o + i) for a, o, i in zip(accesses, outer_strides, inner_strides)]
    count = len(region.inputs)
    return replace(region, outer=outer, inner=inner, inputs=tuple(merged[:count]), outputs=tuple(merged[count:]))


def _merged(sizes: Sequence[int], strides: Sequence[Sequence[int]]) -> tuple[tuple[int, ...], list[tuple[int, ...]]]:
    kept: list[int] = []
    found: list[list[int]] = [[] for _ in strides]
    for axis, size in enumerate(sizes):
        if size == 1:
            continue
        here = [s[axis] for s in strides]
        if kept and all(f[-1] == size * h for f, h in zip(found, here)):
            kept[-1] *= size
            for f, h in zip(found, here):
                f[-1] = h
            continue
        kept.append(size)
        for f, h in zip(found, here):
            f.append(h)
    return tuple(kept), [tuple(f) for f in found]
