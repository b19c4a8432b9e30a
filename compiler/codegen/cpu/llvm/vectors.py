"""Vectors of known length in memory: loads and stores of their first lanes, broadcasts, transposes in registers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

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

#: Number of 64-byte vectors that fit a level's registers.
REGISTERS: Final = {"x86_64_v4": 32, "x86_64_v3": 8, "armv8_2": 8}


class Vectors:
    """Values of 64 bytes of one dtype, emitted at the code's position."""

    def __init__(self, code: Code, dtype: DType) -> None:
        self.code, self.b, self.dtype = code, code.b, dtype
        self.lanes = VECTOR_BYTES // dtype.itemsize
        self.lane = memory_type(dtype)
        self.type = wide(self.lane, self.lanes)
        self.zero = ir.Constant(self.type, [0.0 if dtype.is_float else 0] * self.lanes)

    def load(self, pointer: Any, index: Any, count: int | None = None) -> Any:
        """Elements index, index + 1, ...; zeros after the first ``count``, whose memory is not accessed."""
        place = self.code.at(pointer, index, self.lane)
        if count is None or count == self.lanes:
            return self.b.load(place, typ=self.type, align=self.dtype.itemsize)
        name = f"llvm.masked.load.{suffix(self.type)}.p0"
        return self.code.intrinsic(name, self.type, place, I32(self.dtype.itemsize), self._first(count), self.zero)

    def store(self, value: Any, pointer: Any, index: Any, count: int | None = None) -> None:
        """Stores the first ``count`` lanes of a vector of any length."""
        place = self.code.at(pointer, index, self.lane)
        lanes = value.type.count
        if count is None or count == lanes:
            self.b.store(value, place, align=self.dtype.itemsize)
            return
        name = f"llvm.masked.store.{suffix(value.type)}.p0"
        self.code.intrinsic(name, VOID, value, place, I32(self.dtype.itemsize), self._first(count, lanes))

    def _first(self, count: int, lanes: int | None = None) -> Any:
        lanes = self.lanes if lanes is None else lanes
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

    def store_columns(self, rows: Sequence[Any], pointer: Any, places: Sequence[Any]) -> None:
        """Stores lane i of all rows contiguously at ``places[i]``. At most as many places as lanes, and as many rows as
        lanes."""
        size = power_of_two(len(rows))
        if size == 1:
            for lane, place in enumerate(places):
                one = self.b.extract_element(rows[0], I64(lane))
                self.b.store(one, self.code.at(pointer, place, self.lane), align=self.dtype.itemsize)
            return
        turned = self.transpose([*rows, *[self.zero] * (size - len(rows))])
        for lane, place in enumerate(places):
            value = turned[lane % size]
            if size < self.lanes:
                start = lane // size * size
                value = self.pick(value, value, range(start, start + size))
            self.store(value, pointer, place, len(rows))

    def load_columns(self, count: int, pointer: Any, places: Sequence[Any]) -> list[Any]:
        """Loads what ``store_columns`` of ``count`` rows stores; lanes without a place are zero."""
        size = power_of_two(count)
        turned = [self.zero] * size
        for lane, place in enumerate(places):
            if size == 1:
                one = self.b.load(self.code.at(pointer, place, self.lane), typ=self.lane, align=self.dtype.itemsize)
                turned[0] = self.b.insert_element(turned[0], one, I64(lane))
                continue
            here = self.load(pointer, place, count)
            start = lane // size * size
            keep = range(self.lanes)
            moved = [self.lanes + j - start if start <= j < start + size else j for j in keep]
            turned[lane % size] = self.pick(turned[lane % size], here, moved)
        return self.transpose(turned)[:count]


def power_of_two(n: int) -> int:
    """The smallest power of two that is at least n."""
    return 1 << (n - 1).bit_length()
