"""The inner loop of contractions: rows of A times a packed panel of B, in registers.

A panel holds ``PANEL_BYTES`` of columns for each k, in the order of k, with zeros past the matrix's edge. A tile of
``rows`` by ``vectors`` accumulators stays in registers over all k. Products are fused multiply-adds in the order of k,
so the bits do not depend on how rows, columns or k are split. A contraction is one op, so its internal rounding is its
own choice.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from llvmlite import ir

from dslc.compiler.codegen.cpu.llvm.values import Values
from dslc.compiler.codegen.cpu.llvm.writer import I64, VECTOR_BYTES, Code, lane_type, lanes_of, shuffle_of, suffix, wide
from dslc.compiler.ir.types import DType

PANEL_BYTES: Final = 2 * VECTOR_BYTES
#: By registers the rows and vectors of a tile.
TILES: Final = {32: (12, 2), 8: (6, 1)}
ROWS: Final = 12  # tasks start at multiples of it: a multiple of the rows of every tile


def columns_of(dtype: DType) -> int:
    """Columns per panel."""
    return PANEL_BYTES // dtype.itemsize


@dataclass(frozen=True)
class Matrix:
    """A strided matrix in memory, from element ``base`` of ``pointer``."""

    pointer: Any
    base: Any
    row: int
    column: int = 1


@dataclass(frozen=True)
class Multiply:
    """C[rows start..stop, columns] = A * panel; adds to C instead if the i1 ``again`` is true.

    ``loops``: the axes of k, outermost first, as (count, stride in A); counts may be i64 values. ``rows``: of the whole
    matrix. ``columns``: of this panel.
    """

    code: Code
    dtype: DType
    a: Matrix
    panel: Any
    loops: tuple[tuple[Any, int], ...]
    c: Matrix
    rows: int
    columns: int
    again: Any = None

    def run(self, start: Any, stop: Any) -> None:
        """``start`` is a multiple of ROWS; ``stop`` is one, too, or the end."""
        high, width = TILES[self.code.registers]
        tail = self.rows % high
        vectors = -(-self.columns // lanes_of(self.dtype))
        if self.rows - tail:
            end = self.code.least(stop, self.rows - tail) if not isinstance(stop, int) else min(stop, self.rows - tail)
            with self.code.loop(end, start, high) as row:
                self._across(row, high, width, vectors)
        if not tail:
            return
        if isinstance(stop, int):
            self._across(self.rows - tail, tail, width, vectors)
            return
        with self.code.b.if_then(self.code.b.icmp_signed("==", stop, I64(self.rows))):
            self._across(self.rows - tail, tail, width, vectors)

    def _across(self, row: Any, high: int, width: int, vectors: int) -> None:
        for first in range(0, vectors, width):
            self._tile(row, high, first, min(width, vectors - first))

    def _tile(self, row: Any, high: int, first: int, width: int) -> None:
        code, lanes = self.code, lanes_of(self.dtype)
        type = wide(lane_type(self.dtype), lanes)
        sums = [ir.Constant(type, [0.0] * lanes)] * (high * width)
        if self.again is not None:
            sums = code.if_then(self.again, sums, lambda: self._loaded(row, first, high, width))
        self._products(row, sums, high, first)
        self._stored(row, first, high, sums)

    def _products(self, row: Any, sums: list[Any], high: int, first: int) -> None:
        code, b, lanes = self.code, self.code.b, lanes_of(self.dtype)
        element = lane_type(self.dtype)
        type, values = wide(element, lanes), Values(code, lanes)
        start = code.add(self.a.base, code.mul(row, self.a.row))

        def product(offset: Any, k: Any) -> None:
            line = code.mul(k, columns_of(self.dtype))
            right = []
            for v in range(len(sums) // high):
                place = code.at(self.panel, code.add(line, (first + v) * lanes), element)
                right.append(b.load(place, typ=type, align=VECTOR_BYTES))
            left = code.at(self.a.pointer, offset, element)
            for r in range(high):
                one = b.load(code.at(left, r * self.a.row, element), typ=element, align=self.dtype.itemsize)
                factor = values.splat(one)
                for number, vector in enumerate(right, r * len(right)):
                    sums[number] = code.intrinsic(f"llvm.fma.{suffix(type)}", type, factor, vector, sums[number])

        def nested(loops: tuple[tuple[Any, int], ...], offset: Any, k: Any) -> None:
            if not loops:
                product(offset, k)
                return
            count, stride = loops[0]
            with code.loop(count, carried=sums) as i:
                nested(loops[1:], code.add(offset, code.mul(i, stride)), code.add(code.mul(k, count), i))

        nested(self.loops, start, 0)

    def _places(self, row: Any, first: int, high: int, width: int) -> Iterator[tuple[Any, int]]:
        """The offset in C of each vector of a tile, and its lanes in use."""
        code, lanes = self.code, lanes_of(self.dtype)
        for r in range(high):
            line = code.add(self.c.base, code.mul(code.add(row, r), self.c.row))
            for v in range(width):
                begin = (first + v) * lanes
                yield code.add(line, begin * self.c.column), min(lanes, self.columns - begin)

    def _loaded(self, row: Any, first: int, high: int, width: int) -> list[Any]:
        code, c = self.code, self.c
        return [
            resized(code, Values(code, count).load(c.pointer, offset, c.column, self.dtype).value, lanes_of(self.dtype))
            for offset, count in self._places(row, first, high, width)
        ]

    def _stored(self, row: Any, first: int, high: int, sums: list[Any]) -> None:
        code, c = self.code, self.c
        for value, (offset, count) in zip(sums, self._places(row, first, high, len(sums) // high), strict=True):
            part = resized(code, value, count)
            Values(code, count).store_value(part, self.dtype, c.pointer, offset, c.column)


def resized(code: Code, vector: Any, lanes: int) -> Any:
    """The vector shortened, or extended with zeros; a single value for one lane."""
    old = vector.type.count if isinstance(vector.type, ir.VectorType) else 1
    if old == lanes:
        return vector
    element = vector.type.element if old > 1 else vector.type
    if lanes == 1:
        return code.b.extract_element(vector, I64(0))
    if old == 1:
        return code.b.insert_element(ir.Constant(wide(element, lanes), [0.0] * lanes), vector, I64(0))
    zeros = ir.Constant(vector.type, [0.0] * old)
    picks = [min(i, old) for i in range(lanes)]
    return code.b.shuffle_vector(vector, zeros, shuffle_of(*picks))
