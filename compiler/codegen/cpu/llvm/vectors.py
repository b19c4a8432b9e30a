"""Vectors of known length in memory: loads and stores of their first lanes, broadcasts, transposes in registers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from llvmlite import ir

from dslc.compiler.codegen.cpu.llvm.writer import (
    I1,
    I32,
    I64,
    VECTOR_BYTES,
    VOID,
    Code,
    memory_type,
    shuffle_of,
    suffix,
    wide,
)
from dslc.compiler.ir.types import DType


class Vectors:
    """Values of 64 bytes of one dtype, emitted at the code's position."""

    def __init__(self, code: Code, dtype: DType) -> None:
        self.code, self.b, self.dtype = code, code.b, dtype
        self.lanes = VECTOR_BYTES // dtype.itemsize
        self.lane = memory_type(dtype)
        self.type = wide(self.lane, self.lanes)
        self.zero = ir.Constant(self.type, [0.0 if dtype.is_float else 0] * self.lanes)

    def load(self, pointer: Any, index: Any, count: int | None = None, lanes: int | None = None) -> Any:
        """A vector of ``lanes`` (None: 64 bytes) with elements index, index + 1, ...; zeros after the first ``count``,
        whose memory is not accessed."""
        place, type = self.code.at(pointer, index, self.lane), wide(self.lane, lanes or self.lanes)
        if count is None or count == (lanes or self.lanes):
            return self.b.load(place, typ=type, align=self.dtype.itemsize)
        name = f"llvm.masked.load.{suffix(type)}.p0"
        zero = ir.Constant(type, [self.zero.constant[0]] * type.count)
        return self.code.intrinsic(name, type, place, I32(self.dtype.itemsize), self._first(count, type.count), zero)

    def prefetch(self, pointer: Any, index: Any) -> None:
        """Brings the cache line of an element to the nearest cache. The address need not be valid."""
        near, data = I32(3), I32(1)
        self.code.intrinsic(
            "llvm.prefetch.p0", ir.VoidType(), self.code.at(pointer, index, self.lane), I32(0), near, data
        )

    def between(self, pointer: Any, index: Any, low: int, high: int, lanes: int) -> Any:
        """Elements index, index + 1, ... in ``lanes`` lanes; zeros before lane ``low`` and from ``high`` on, whose
        memory is not accessed."""
        type = wide(self.lane, lanes)
        zero = ir.Constant(type, [self.zero.constant[0]] * lanes if lanes > 1 else self.zero.constant[0])
        inside = [int(low <= n < high) for n in range(lanes)]
        if not any(inside):
            return zero
        place = self.code.at(pointer, index, self.lane)
        if all(inside):
            return self.b.load(place, typ=type, align=self.dtype.itemsize)
        name, mask = f"llvm.masked.load.{suffix(type)}.p0", ir.Constant(wide(I1, lanes), inside)
        return self.code.intrinsic(name, type, place, I32(self.dtype.itemsize), mask, zero)

    def store(self, value: Any, pointer: Any, index: Any, count: int | None = None) -> None:
        """Stores the first ``count`` lanes of a vector of any length, or a single value."""
        place = self.code.at(pointer, index, self.lane)
        lanes = self.lanes_of(value)
        if count is None or count == lanes:
            self.b.store(value, place, align=self.dtype.itemsize)
            return
        name = f"llvm.masked.store.{suffix(value.type)}.p0"
        self.code.intrinsic(name, VOID, value, place, I32(self.dtype.itemsize), self._first(count, lanes))

    def lanes_of(self, value: Any) -> int:
        """1 for a single value."""
        return value.type.count if isinstance(value.type, ir.VectorType) else 1

    def _first(self, count: int, lanes: int) -> Any:
        return ir.Constant(wide(I1, lanes), [int(i < count) for i in range(lanes)])

    def splat(self, pointer: Any, index: Any) -> Any:
        """Broadcasts one element to all lanes."""
        one = self.b.load(self.code.at(pointer, index, self.lane), typ=self.lane, align=self.dtype.itemsize)
        undefined = ir.Constant(self.type, ir.Undefined)
        first = self.b.insert_element(undefined, one, I64(0))
        return self.b.shuffle_vector(first, undefined, shuffle_of(*[0] * self.lanes))

    def fma(self, x: Any, y: Any, z: Any) -> Any:
        return self.code.intrinsic(f"llvm.fma.{suffix(self.type)}", self.type, x, y, z)

    def pick(self, x: Any, y: Any, lanes: Sequence[int]) -> Any:
        """Picks lanes of x and, numbered after them, of y."""
        return self.b.shuffle_vector(x, y, shuffle_of(*lanes))

    def transpose(self, rows: Sequence[Any]) -> list[Any]:
        """P vectors (P a power of two up to the lanes): lane ``h*P + i`` of vector j goes to lane ``h*P + j`` of i.

        With P = lanes this is the transpose. It is its own inverse. A butterfly of log2(P) steps (Eklundh 1972).
        """
        found, lanes, step = list(rows), self.lanes, 1
        while step < len(rows):
            for i in range(len(rows)):
                if i & step:
                    continue
                x, y = found[i], found[i + step]
                found[i] = self.pick(x, y, [lanes + j - step if j & step else j for j in range(lanes)])
                found[i + step] = self.pick(x, y, [lanes + j if j & step else j + step for j in range(lanes)])
            step *= 2
        return found

    def columns(self, rows: Sequence[Any], count: int) -> list[Any]:
        """Of at most as many rows as lanes, the first ``count`` columns: vectors whose first lanes are the elements of
        the rows; single values for one row."""
        size = power_of_two(len(rows))
        if size == 1:
            return [self.b.extract_element(rows[0], I64(lane)) for lane in range(count)]
        turned = self.transpose([*rows, *[self.zero] * (size - len(rows))])
        found = []
        for lane in range(count):
            value, start = turned[lane % size], lane // size * size
            found.append(value if size == self.lanes else self.pick(value, value, range(start, start + size)))
        return found

    def gathered(self, pointer: Any, places: Sequence[Any]) -> Any:
        """Lane i from element ``places[i]``; zeros after the last place."""
        found = self.zero
        for lane, place in enumerate(places):
            one = self.b.load(self.code.at(pointer, place, self.lane), typ=self.lane, align=self.dtype.itemsize)
            found = self.b.insert_element(found, one, I64(lane))
        return found


def power_of_two(n: int) -> int:
    """The smallest power of two that is at least n."""
    return 1 << (n - 1).bit_length()
