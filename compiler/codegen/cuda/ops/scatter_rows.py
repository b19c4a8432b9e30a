"""scatter_rows_add as GPU kernels: the rows of each id are found and put in order, then added.

The rows of an id that has many are added in parts, by many blocks. The order of a sum depends on the number of all rows
and the places of its own alone.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from math import prod
from typing import Final

from dslc.compiler.codegen.cuda.cuda_cpp import C_TYPES, Code, Numbers, constants
from dslc.compiler.codegen.launch import Launch, ScalarArgs, Scratch, SizeGeneric
from dslc.compiler.codegen.lowerings import lowers
from dslc.compiler.codegen.region import pointwise
from dslc.compiler.codegen.region.ir import Access, RegionBuilder
from dslc.compiler.codegen.target import Geometry
from dslc.compiler.ir.graph import Node
from dslc.compiler.ir.scalar import call, select
from dslc.compiler.ir.types import DType
from dslc.compiler.ops.attrs import int_attr

_BLOCK_THREADS: Final = 128
_ORDER_THREADS: Final = 256
_ORDER_WORDS: Final = 4096  # of 32 rows each: 16 KiB of shared memory
_THREAD_ELEMENTS: Final = 8  # elements of a line per thread
_LOADS: Final = 32  # of a thread under way
_ZERO_VECTORS: Final = 4  # of 16 bytes, of a thread
_PART_RANGE: Final = (64, 1024)  # least and most rows that one block adds
_PLACES: Final = """struct Places {
  int *counts, *starts, *ranks, *places, *order, *longs, *lost, *total, *many;
};
__device__ __forceinline__ Places places_of(int *work, int count, int length, int part) {
  int *starts = work + count, *ranks = starts + count, *places = ranks + length, *order = places + length;
  int *longs = order + length, *lost = longs + length / (part + 1);
  return {work, starts, ranks, places, order, longs, lost, lost + 1, lost + 2};
}
"""


@dataclass(frozen=True)
class Scattered:
    """``length`` rows with ids below ``count``; an id with more than ``part`` rows is added in parts of as many."""

    ids: DType
    length: int
    count: int
    part: int

    @property
    def longs(self) -> int:
        """Most ids with more than ``part`` rows."""
        return self.length // (self.part + 1)

    @property
    def parts(self) -> int:
        """Most parts: an id that has any begins at twice the number of its first row divided by ``part``."""
        return 2 * self.length // self.part if self.longs else 0

    @property
    def work_bytes(self) -> int:
        """Bytes of ``work``, which is i32: ``Places``."""
        return 4 * (2 * self.count + 3 * self.length + self.longs + 3)

    @property
    def head(self) -> str:
        return f"using I = {C_TYPES[self.ids]};\n" + _PLACES

    def numbers(self, **more: int) -> Numbers:
        return Numbers(LENGTH=self.length, COUNT=self.count, PART=self.part, **more)


@dataclass(frozen=True)
class ScatterZero(SizeGeneric):
    """``k(table, work, numbers)``: zeros for a table of ``bytes`` and for counting the rows of each id."""

    rows: Scattered
    bytes: int

    @property
    def geometry(self) -> Geometry:
        return Geometry((-(-self.bytes // (16 * _ZERO_VECTORS * _BLOCK_THREADS)), 1, 1), (_BLOCK_THREADS, 1, 1))

    @property
    def _numbers(self) -> Numbers:
        numbers = self.rows.numbers()
        numbers.add("BYTES", self.bytes, "i64")
        return numbers

    @property
    def scalar_args(self) -> ScalarArgs:
        return self._numbers.scalar_args

    @property
    def code(self) -> Code:
        text = self.rows.head + self._numbers.text()
        return Code("scatter_zero.cu", text + constants(THREADS=_BLOCK_THREADS, EACH=_ZERO_VECTORS))


@dataclass(frozen=True)
class ScatterPlaces(SizeGeneric):
    """``k(ids, work, numbers)``: step 0 to 2 of finding the rows of each id."""

    rows: Scattered
    step: int

    @property
    def geometry(self) -> Geometry:
        return Geometry((-(-self.rows.length // _BLOCK_THREADS), 1, 1), (_BLOCK_THREADS, 1, 1))

    @property
    def scalar_args(self) -> ScalarArgs:
        return self.rows.numbers().scalar_args

    @property
    def code(self) -> Code:
        text = self.rows.head + self.rows.numbers().text()
        return Code("scatter_places.cu", text + constants(THREADS=_BLOCK_THREADS, STEP=self.step))


@dataclass(frozen=True)
class ScatterOrder(SizeGeneric):
    """``k(work, numbers)``: puts the places of ids with many rows in order."""

    rows: Scattered

    @property
    def geometry(self) -> Geometry:
        return Geometry((self.rows.longs, 1, 1), (_ORDER_THREADS, 1, 1))

    @property
    def scalar_args(self) -> ScalarArgs:
        return self.rows.numbers().scalar_args

    @property
    def code(self) -> Code:
        text = self.rows.head + self.rows.numbers().text()
        return Code("scatter_order.cu", text + constants(THREADS=_ORDER_THREADS, WORDS=_ORDER_WORDS))


@dataclass(frozen=True)
class ScatterAdd(SizeGeneric):
    """``k(rows, ids, work, table, parts, numbers)``: adds rows to a table of lines of ``inner`` elements, or to
    ``parts``."""

    rows: Scattered
    dtype: DType
    inner: int

    @property
    def geometry(self) -> Geometry:
        return Geometry((self.rows.length, 1, 1), (_BLOCK_THREADS, 1, 1))

    @property
    def scalar_args(self) -> ScalarArgs:
        return self.rows.numbers(INNER=self.inner).scalar_args

    @property
    def head(self) -> str:
        """Types and functions, for ``ScatterJoin``, too."""
        text = f"using T = {C_TYPES[self.dtype]};\nusing SUM = {C_TYPES[self.dtype.computed]};\n" + self.rows.head
        return text + self.rows.numbers(INNER=self.inner).text() + constants(HAS_NAN=int(self.dtype.is_float))

    @property
    def code(self) -> Code:
        each = min(_THREAD_ELEMENTS, -(-self.inner // _BLOCK_THREADS))
        ahead = min(_LOADS // _THREAD_ELEMENTS * 2, _LOADS // each)
        text = self.head + constants(THREADS=_BLOCK_THREADS, EACH=each, AHEAD=ahead, MOST=_PART_RANGE[1])
        nan = "store(to, SUM(__uint_as_float(0x7FC00000u)))" if self.dtype.is_float else ""
        return Code("scatter.cu", text + f"__device__ __forceinline__ void put_nan(T *to) {{ {nan}; }}\n")


@dataclass(frozen=True)
class ScatterJoin(SizeGeneric):
    """``k(work, parts, table, numbers)``: adds up the parts of ids with many rows."""

    adds: ScatterAdd

    @property
    def geometry(self) -> Geometry:
        blocks = self.adds.rows.longs * -(-self.adds.inner // _BLOCK_THREADS)
        return Geometry((blocks, 1, 1), (_BLOCK_THREADS, 1, 1))

    @property
    def scalar_args(self) -> ScalarArgs:
        return self.adds.scalar_args

    @property
    def code(self) -> Code:
        return Code("scatter_join.cu", self.adds.head + constants(THREADS=_BLOCK_THREADS))


def part_of(length: int) -> int:
    """The rows that one block adds: about the square root of all rows, so that there are as many parts."""
    least, most = _PART_RANGE
    return min(most, max(least, 1 << (math.isqrt(max(0, length - 1))).bit_length()))


@lowers("scatter_rows_add", target="cuda")
def scatter_rows_add(node: Node) -> list[Launch]:
    (rows, ids), [out] = node.input_types, node.types
    length, count = prod(ids.ints), int_attr(node.attrs, "count")
    if not length:
        return pointwise.filled(node, 0)
    dtype = as_signed(rows.dtype)
    if dtype.computed not in (DType.F32, DType.F64, DType.I32, DType.I64):
        return [_scanned(node, length, count)]
    spec = Scattered(ids.dtype, length, count, part_of(length))
    adds = ScatterAdd(spec, dtype, prod(out.ints[1:]))
    work = Scratch(0, spec.work_bytes)
    parts = Scratch(1, max(1, spec.parts) * adds.inner * dtype.computed.itemsize)
    found = [
        Launch(ScatterZero(spec, out.bytes), (), (*node.outputs, work)),
        *(Launch(ScatterPlaces(spec, step), node.inputs[1:], (work,)) for step in range(3)),
    ]
    if spec.longs:
        found.append(Launch(ScatterOrder(spec), (), (work,)))
    found.append(Launch(adds, (*node.inputs, work), (*node.outputs, parts)))
    if spec.longs:
        found.append(Launch(ScatterJoin(adds), (work, parts), node.outputs))
    return found


def as_signed(dtype: DType) -> DType:
    """The dtype with the same bits that adds and multiplies alike; as an index, what a signed one cannot hold is
    negative, and so outside of each axis."""
    return {DType.U64: DType.I64, DType.U32: DType.I32}.get(dtype, dtype)


def _scanned(node: Node, length: int, count: int) -> Launch:
    """scatter_rows_add of integers of 8 and 16 bits: each element of the table scans all ids."""
    (rows, ids), inner = node.input_types, prod(node.types[0].ints[1:])
    sources = [Access(rows.dtype, (0, 1, inner)), Access(ids.dtype, (0, 0, 1))]
    b = RegionBuilder([count, inner], [length], sources, [Access(rows.dtype, (inner, 1, 0))], indices=(0,))
    b.element()
    hit = b.let(call("eq", b.let(b.input(1), DType.I64), b.along(0)), DType.B1)
    total = b.reduce("sum", b.let(select(hit, b.input(0), 0), rows.dtype))
    b.row()
    b.store(0, total)
    return Launch(b.region(), node.inputs, node.outputs)
