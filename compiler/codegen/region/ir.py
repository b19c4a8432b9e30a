"""One loop nest, the same for every target: pointwise chains, reductions of rows or columns, copies.

A region iterates over the ``outer`` axes, whose points are its rows, and for each row over the ``inner`` axes. Its work
is a list of stages. A ``row`` stage computes values once per row. An ``element`` stage loops over the inner axes: it
computes values for each element and reduces some of them to values of the row. Softmax over the last axis of f32[64,
10]::

    outer (64,) inner (10,)
    x = load f32 strides (10, 1)
    element: max(x) -> top
    element: e = exp(x - top); sum(e) -> total
    element: store exp(x - top) / total

Values are numbered in this order: the inputs; ``INNER`` (the row-major index of the element in the inner axes, i64);
the index along each axis of ``indices`` (i64); the values that the stages compute. A value of an element stage is valid
only in that stage; a row value is valid from its stage on. Every value is rounded to its dtype, in registers as in
memory, so a region gives the same bits as its ops one by one.

A ``Fetch`` (gather) reads an input at a computed index that strides cannot express. A ``Scan`` passes a value from
element to element in row-major order, as running sums need.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Literal, TypeAlias

from dslc.compiler.ir.described import described
from dslc.compiler.ir.scalar import Expr
from dslc.compiler.ir.types import DType

Combine: TypeAlias = Literal["sum", "prod", "max", "min"]


@described("Unravelled", "strides sizes steps offset")
@dataclass(frozen=True, slots=True)
class MixedRadix:
    """Several axes of an argument that are one axis of the region. ``offset`` plus index times stride over outer, then
    inner axes gives a row-major index into axes of ``sizes``; each of these moves the argument by its entry in
    ``steps``."""

    strides: tuple[int, ...]
    sizes: tuple[int, ...]
    steps: tuple[int, ...]
    offset: int = 0


@described("Access", "dtype strides offset repeat bits unravelled")
@dataclass(frozen=True, slots=True)
class Access:
    """The address of an argument's element: ``offset`` plus index times stride over outer, then inner axes, in
    elements.

    A stride of 0 repeats; strides and offset express any other view (transposed, sliced, reversed). Along the last
    outer axis ``repeat`` neighbours share an element: its index is divided by ``repeat``, rounded down; this is for
    inputs of regions without inner axes. ``bits``: of b1, element i is bit ``i % 8`` of byte ``i // 8``; strides other
    than 0 and 1 are multiples of 8, and so is the size of an axis with stride 1. ``mixed_radix``: more terms
    of an input's address, in regions with inner axes. Both are for GPUs.
    """

    dtype: DType
    strides: tuple[int, ...]
    offset: int = 0
    repeat: int = 1
    bits: bool = False
    mixed_radix: tuple[MixedRadix, ...] = ()

    def moves(self, first: int = 0, end: int | None = None) -> bool:
        """Whether elements differ along axes from ``first`` up to ``end``."""
        return any(self.strides[first:end]) or any(any(u.strides[first:end]) for u in self.mixed_radix)


@described("Let", "expr dtype")
@dataclass(frozen=True, slots=True)
class Let:
    """The next value: ``expr``, whose arguments are indices of earlier values, rounded to ``dtype``."""

    expr: Expr
    dtype: DType


@described("Fetch", "input index mask")
@dataclass(frozen=True, slots=True)
class Fetch:
    """The next value (gather): the element of input ``input`` that is ``index`` elements (a value of i32 or i64) after
    its access's address. If ``mask`` is given and false, the value is 0 and nothing is read."""

    input: int
    index: int
    mask: int | None = None


@described("Scan", "combine value exclusive")
@dataclass(frozen=True, slots=True)
class Scan:
    """The next value: ``value`` of this element and all before it in the row combined, or only of those before it if
    ``exclusive``. For element stages."""

    combine: Combine
    value: int
    exclusive: bool = False


@described("Bits", "key row_elements seed step row place")
@dataclass(frozen=True, slots=True)
class Bits:
    """The next value: 16 random bits of the element, as i32, by Philox (``ops/random/philox.py``). ``seed``, ``step``
    and ``row`` are indices of i64 values that are the same for all elements. The element's index is the address that
    ``place`` gives, plus ``row`` times ``row_elements``. For element stages and regions without inner axes, on GPUs."""

    key: int
    row_elements: int
    seed: int
    step: int
    row: int
    place: Access


@described("Reduce", "combine value")
@dataclass(frozen=True, slots=True)
class Reduce:
    """The next value, of the row: ``value`` of all elements combined. max and min give nan if an element is nan."""

    combine: Combine
    value: int


@described("Store", "output value")
@dataclass(frozen=True, slots=True)
class Store:
    """Writes ``value`` to output ``output``, of the same dtype."""

    output: int
    value: int


@described("Raise", "output value")
@dataclass(frozen=True, slots=True)
class SetFlag:
    """Sets output ``output``, one b1 that an earlier launch has cleared, if ``value`` is true for any element."""

    output: int
    value: int


@described("Stage", "element lets reduces stores raises")
@dataclass(frozen=True, slots=True)
class Stage:
    """``element``: runs over the inner axes; otherwise once per row, without reductions."""

    element: bool
    lets: tuple[Let | Fetch | Scan | Bits, ...] = ()
    reduces: tuple[Reduce, ...] = ()
    stores: tuple[Store, ...] = ()
    flags: tuple[SetFlag, ...] = ()

    @property
    def computed(self) -> tuple[Let | Fetch | Scan, ...]:
        """``lets``, which must not contain random bits."""
        assert not any(isinstance(let, Bits) for let in self.lets), "only GPU kernels draw random bits"
        return tuple(let for let in self.lets if not isinstance(let, Bits))


@described("Region", "outer inner inputs outputs stages indices whole")
@dataclass(frozen=True, slots=True)
class Region:
    """Sizes of the axes, accesses of the arguments (over outer + inner axes), the stages, and the axes (of outer +
    inner) whose indices are values. ``canonical_strides``: row-major strides of the reduced tensor (if known). They
    define adjacency independently of the arguments' layouts."""

    outer: tuple[int, ...]
    inner: tuple[int, ...]
    inputs: tuple[Access, ...]
    outputs: tuple[Access, ...]
    stages: tuple[Stage, ...]
    indices: tuple[int, ...] = ()
    canonical_strides: tuple[int, ...] = ()

    @property
    def rows(self) -> int:
        return prod(self.outer)

    @property
    def index(self) -> int:
        """The index of the value INNER."""
        return len(self.inputs)

    @property
    def first(self) -> int:
        """The index of the first value that a stage computes."""
        return len(self.inputs) + 1 + len(self.indices)


def dense(shape: Sequence[int]) -> tuple[int, ...]:
    """The strides of a row-major tensor, 0 for axes of size 1."""
    strides = [0] * len(shape)
    step = 1
    for axis in range(len(shape) - 1, -1, -1):
        strides[axis] = step if shape[axis] != 1 else 0
        step *= shape[axis]
    return tuple(strides)


def all_strides(shape: Sequence[int]) -> tuple[int, ...]:
    """Row-major strides, including those of axes of size 1."""
    return tuple(prod(shape[axis + 1 :]) for axis in range(len(shape)))


def broadcast_strides(shape: Sequence[int], wide: Sequence[int]) -> tuple[int, ...]:
    """Strides over the axes of ``wide`` of a dense tensor broadcast to it as in numpy."""
    return (0,) * (len(wide) - len(shape)) + dense(shape)
