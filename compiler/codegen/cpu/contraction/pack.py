"""Copies data into layouts that a contraction reads efficiently, with borders and zeros; adds partial sums."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from dslc.compiler.codegen.cpu.kernel_spec import KernelSpec
from dslc.compiler.codegen.cpu.llvm.vectors import Vectors
from dslc.compiler.codegen.cpu.llvm.writer import Code
from dslc.compiler.ir.described import described
from dslc.compiler.ir.types import DType

_TASK_ELEMENTS: Final = 16384  # elements per task, about


@described("Pad", "dtype planes size low high")
@dataclass(frozen=True)
class Pad(KernelSpec):
    """``k(source, target)``: each of ``planes`` blocks of ``size``, with ``low`` and ``high`` zeros around each
    axis."""

    dtype: DType
    planes: int
    size: tuple[int, ...]
    low: tuple[int, ...]
    high: tuple[int, ...]

    @property
    def padded(self) -> tuple[int, ...]:
        return tuple(n + a + b for n, a, b in zip(self.size, self.low, self.high))

    @property
    def elements(self) -> int:
        return self.planes * math.prod(self.padded)

    @property
    def group(self) -> int:
        return max(1, _TASK_ELEMENTS // math.prod(self.padded))

    @property
    def tasks(self) -> int:
        return -(-self.planes // self.group)

    def emit(self, code: Code) -> None:
        v = Vectors(code, self.dtype)
        source, target = code.argument(0), code.argument(1)

        def copy(at: Any, place: Any, axis: int) -> None:
            size, low, high = self.size[axis], self.low[axis], self.high[axis]
            below = math.prod(self.padded[axis + 1 :])
            if low:
                fill(v, target, place, low * below)
            inside = code.add(place, low * below)
            if axis == len(self.size) - 1:
                each_vector(v, size, lambda k, n: v.store(
                    v.load(source, code.add(at, k), n), target, code.add(inside, k), n
                ))  # fmt: skip
            else:
                step = math.prod(self.size[axis + 1 :])
                with code.loop(size) as k:
                    copy(code.add(at, code.mul(k, step)), code.add(inside, code.mul(k, below)), axis + 1)
            if high:
                fill(v, target, code.add(inside, size * below), high * below)

        stop = code.least(code.mul(code.last, self.group), self.planes)
        with code.loop(stop, code.mul(code.first, self.group)) as plane:
            at, place = code.mul(plane, math.prod(self.size)), code.mul(plane, math.prod(self.padded))
            copy(at, place, 0)


@described("Interleave", "dtype planes size stride present")
@dataclass(frozen=True)
class Interleave(KernelSpec):
    """``k(*parts, target)``: interleaves dense ``parts``, one per residue, into target ``[planes, *size]``.

    Element ``residue + stride*i`` along each axis is element i of the part with these residues; ``present`` lists the
    residues of the parts, all others are zeros.
    """

    dtype: DType
    planes: int
    size: tuple[int, ...]
    stride: tuple[int, ...]
    present: tuple[tuple[int, ...], ...]

    @property
    def group(self) -> int:
        return max(1, _TASK_ELEMENTS // math.prod(self.size))

    @property
    def tasks(self) -> int:
        return -(-self.planes // self.group)

    def _counts(self, residues: Sequence[int]) -> list[int]:
        return [-(-(n - r) // s) for n, s, r in zip(self.size, self.stride, residues)]

    def emit(self, code: Code) -> None:
        v = Vectors(code, self.dtype)
        parts = {residues: code.argument(i) for i, residues in enumerate(self.present)}
        target = code.argument(len(self.present))

        def rows(plane: Any, chosen: tuple[int, ...], index: list[Any], place: Any) -> None:
            axis = len(chosen)
            if axis == len(self.size) - 1:
                self._row(v, parts, target, plane, chosen, index, place)
                return
            below = math.prod(self.size[axis + 1 :])
            for residue in range(min(self.stride[axis], self.size[axis])):
                with code.loop(-(-(self.size[axis] - residue) // self.stride[axis])) as i:
                    there = code.add(code.mul(i, self.stride[axis] * below), residue * below)
                    rows(plane, (*chosen, residue), [*index, i], code.add(place, there))

        stop = code.least(code.mul(code.last, self.group), self.planes)
        with code.loop(stop, code.mul(code.first, self.group)) as plane:
            rows(plane, (), [], code.mul(plane, math.prod(self.size)))

    def _row(
        self, v: Vectors, parts: dict[tuple[int, ...], Any], target: Any, plane: Any, chosen: tuple[int, ...],
        index: list[Any], place: Any,
    ) -> None:  # fmt: skip
        """A line of the target along its last axis, with as many vectors at a time as the stride has residues."""
        code, stride, size = v.code, self.stride[-1], self.size[-1]
        starts: list[tuple[int, Any, Any]] = []
        for residue in range(stride):
            pointer = parts.get((*chosen, residue))
            if pointer is None:
                continue
            counts = self._counts((*chosen, residue))
            at = plane
            for i, n in zip([*index, 0], counts):
                at = code.add(code.mul(at, n), i)
            starts.append((residue, pointer, at))

        def block(k: Any, length: int) -> None:
            """Stores ``length`` elements of the line, from element ``k*stride`` on."""
            found = {}
            for residue, pointer, at in starts:
                count = -(-(length - residue) // stride)
                if count > 0:
                    found[residue] = v.load(pointer, code.add(at, k), count)
            for number in range(-(-length // v.lanes)):
                whole = v.zero
                for residue, value in found.items():
                    lanes = [
                        v.lanes + x // stride if x % stride == residue else i
                        for i, x in enumerate(range(number * v.lanes, (number + 1) * v.lanes))
                    ]
                    whole = v.pick(whole, value, lanes)
                there = code.add(code.add(place, code.mul(k, stride)), number * v.lanes)
                v.store(whole, target, there, min(v.lanes, length - number * v.lanes))

        wide = v.lanes * stride
        whole = size - size % wide
        if whole:
            with code.loop(whole // stride, 0, v.lanes) as k:
                block(k, wide)
        if size % wide:
            block(whole // stride, size % wide)


@described("Fill", "dtype count")
@dataclass(frozen=True)
class Fill(KernelSpec):
    """``k(target)``: stores zeros."""

    dtype: DType
    count: int

    @property
    def tasks(self) -> int:
        return -(-self.count // _TASK_ELEMENTS)

    def emit(self, code: Code) -> None:
        v = Vectors(code, self.dtype)
        target = code.argument(0)
        blocks(code, self.count, lambda start, count: fill(v, target, start, count))


@described("Combine", "dtype parts count")
@dataclass(frozen=True)
class Combine(KernelSpec):
    """``k(parts, target)``: the sum of ``parts`` [parts, count] over its first axis, in order."""

    dtype: DType
    parts: int
    count: int

    @property
    def tasks(self) -> int:
        return -(-self.count // _TASK_ELEMENTS)

    def emit(self, code: Code) -> None:
        v = Vectors(code, self.dtype)
        source, target = code.argument(0), code.argument(1)

        def add(start: Any, count: int) -> None:
            def one(k: Any, n: int) -> None:
                at = code.add(start, k)
                v.store(added(v, source, at, self.parts, self.count, n), target, at, n)

            each_vector(v, count, one)

        blocks(code, self.count, add)


@described("Place", "dtype parts axes start")
@dataclass(frozen=True)
class Place(KernelSpec):
    """``k(parts, target)``: the sum of ``parts`` [parts, *sizes] over its first axis, in order. An element goes to
    ``start`` plus its index times the stride along each of ``axes`` (size, stride). Others of the target stay as they
    are."""

    dtype: DType
    parts: int
    axes: tuple[tuple[int, int], ...]
    start: int

    @property
    def count(self) -> int:
        return math.prod(size for size, _ in self.axes)

    @property
    def lines(self) -> int:
        return self.count // self.axes[-1][0]

    @property
    def group(self) -> int:
        """Lines of a task."""
        return max(1, _TASK_ELEMENTS // self.axes[-1][0])

    @property
    def tasks(self) -> int:
        return -(-self.lines // self.group)

    def emit(self, code: Code) -> None:
        v = Vectors(code, self.dtype)
        source, target = code.argument(0), code.argument(1)
        size, apart = self.axes[-1]
        stop = code.least(code.mul(code.last, self.group), self.lines)
        with code.loop(stop, code.mul(code.first, self.group)) as line:
            place: Any = self.start
            for (_, stride), at in zip(self.axes, code.unravel(line, [n for n, _ in self.axes[:-1]])):
                place = code.add(place, code.mul(at, stride))
            begin = code.mul(line, size)

            def one(k: Any, n: int, begin: Any = begin, place: Any = place) -> None:
                total = added(v, source, code.add(begin, k), self.parts, self.count, n)
                v.store(total, target, code.add(place, code.mul(k, apart)), n)

            if apart == 1:
                each_vector(v, size, one)
            else:
                with code.loop(size) as k:
                    one(k, 1)


def added(v: Vectors, source: Any, at: Any, parts: int, count: int, lanes: int) -> Any:
    """The sum of element ``at`` of all parts, of ``count`` elements each, and of those after it."""
    total = v.load(source, at, lanes)
    for part in range(1, parts):
        total = v.b.fadd(total, v.load(source, v.code.add(at, part * count), lanes))
    return total


def blocks(code: Code, count: int, body: Callable[[Any, int], None]) -> None:
    """Tasks of ``_TASK_ELEMENTS`` elements of ``count``: ``body(start, length)`` for whole ones and for the rest."""
    whole, rest = divmod(count, _TASK_ELEMENTS)
    if whole:
        with code.loop(code.least(code.last, whole), code.first) as task:
            body(code.mul(task, _TASK_ELEMENTS), _TASK_ELEMENTS)
    if rest:
        with code.b.if_then(code.b.and_(
            code.b.icmp_signed("<=", code.first, code.int(whole)), code.b.icmp_signed(">", code.last, code.int(whole))
        )):  # fmt: skip
            body(whole * _TASK_ELEMENTS, rest)


def each_vector(v: Vectors, count: int, body: Callable[[Any, int], None]) -> None:
    """``body(index, lanes)`` for each vector, and for the rest."""
    whole = count - count % v.lanes
    if whole:
        with v.code.loop(whole, 0, v.lanes) as k:
            body(k, v.lanes)
    if count % v.lanes:
        body(whole, count % v.lanes)


def fill(v: Vectors, target: Any, start: Any, count: int) -> None:
    """Stores ``count`` zeros from ``start`` on."""
    each_vector(v, count, lambda k, n: v.store(v.zero, target, v.code.add(start, k), n))
