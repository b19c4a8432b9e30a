"""Gather and scatter by computed indices: regions gather; scattered rows have their own kernel; scattered elements are
reductions over all candidates.

An index that does not exist reads nothing and gives nan; a scatter sets the whole line that it would add to. Dtypes
without nan get 0, and nothing is added.
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
from dslc.compiler.codegen.region.ir import Access, RegionBuilder, dense
from dslc.compiler.codegen.target import Geometry
from dslc.compiler.ir.graph import Node
from dslc.compiler.ir.scalar import as_expr, call, select
from dslc.compiler.ir.types import DType
from dslc.compiler.ops.attrs import int_attr, int_tuple, number_attr

_BLOCK_THREADS: Final = 128
_THREAD_ELEMENTS: Final = 8  # elements of a line per thread
_MAX_SORTED_ROWS: Final = 1024  # rows of an id that a block sorts
_PLACES: Final = """struct Places {
  int *counts, *starts, *ranks, *places, *lost, *total;
};
__device__ __forceinline__ Places places_of(int *work, int count, int length) {
  int *starts = work + count, *ranks = starts + count, *places = ranks + length;
  return {work, starts, ranks, places, places + length, places + length + 1};
}
"""


@dataclass(frozen=True)
class ScatterPlaces(SizeGeneric):
    """``k(ids, work, numbers)``: step 0 to 3 of finding the rows of each id, for ``length`` ids below ``count``."""

    ids: DType
    length: int
    count: int
    step: int

    @property
    def geometry(self) -> Geometry:
        return Geometry((-(-self.length // _BLOCK_THREADS), 1, 1), (_BLOCK_THREADS, 1, 1))

    @property
    def work_bytes(self) -> int:
        """Bytes of ``work``, which is i32."""
        return 4 * (2 * self.count + 2 * self.length + 2)

    @property
    def _numbers(self) -> Numbers:
        return Numbers(LENGTH=self.length, COUNT=self.count)

    @property
    def scalar_args(self) -> ScalarArgs:
        return self._numbers.scalar_args

    @property
    def code(self) -> Code:
        text = f"using I = {C_TYPES[self.ids]};\n" + _PLACES + self._numbers.text()
        return Code("scatter_places.cu", text + constants(THREADS=_BLOCK_THREADS, STEP=self.step))


@dataclass(frozen=True)
class ScatterAdd(SizeGeneric):
    """``k(rows, ids, work, table, numbers)``: adds ``length`` rows to a table of ``count`` lines of ``inner`` elements;
    ``work``: the result of ``ScatterPlaces``."""

    dtype: DType
    ids: DType
    length: int
    count: int
    inner: int

    @property
    def geometry(self) -> Geometry:
        return Geometry((self.length, 1, 1), (_BLOCK_THREADS, 1, 1))

    @property
    def _numbers(self) -> Numbers:
        return Numbers(LENGTH=self.length, COUNT=self.count, INNER=self.inner)

    @property
    def scalar_args(self) -> ScalarArgs:
        return self._numbers.scalar_args

    @property
    def code(self) -> Code:
        each = min(_THREAD_ELEMENTS, -(-self.inner // _BLOCK_THREADS))
        text = f"using T = {C_TYPES[self.dtype]};\nusing I = {C_TYPES[self.ids]};\n" + _PLACES
        text += f"using SUM = {C_TYPES[self.dtype.computed]};\n" + self._numbers.text()
        text += constants(THREADS=_BLOCK_THREADS, EACH=each, MOST=_MAX_SORTED_ROWS, HAS_NAN=int(self.dtype.is_float))
        nan = "store(to, SUM(__uint_as_float(0x7FC00000u)))" if self.dtype.is_float else ""
        return Code("scatter.cu", text + f"__device__ __forceinline__ void put_nan(T *to) {{ {nan}; }}\n")


@lowers("gather_rows", "take", target="cuda")
def take(node: Node) -> list[Launch]:
    """An id that does not exist reads nothing and gives nan, or 0 if the dtype has no nan."""
    (table, ids), axis = node.input_types, int_attr(node.attrs, "axis") if node.op.name == "take" else 0
    length, count, inner = prod(ids.ints), table.ints[axis], prod(table.ints[axis + 1 :])
    own = 0 if axis else 1  # without an axis before them, rows have no part of the table of their own
    shape, parts = [prod(table.ints[:axis]), length, inner][own:], (count * inner, 0, 1)[own:]
    sources = [Access(table.dtype, parts), Access(ids.dtype, (0, 1, 0)[own:])]
    b = RegionBuilder(shape, (), sources, [Access(table.dtype, (length * inner, inner, 1)[own:])])
    b.row()
    found = b.let(b.input(1), DType.I64)
    known = b.let(call("and", found >= 0, found < count), DType.B1)
    x = b.fetch(0, b.let(found * inner, DType.I64), known)
    b.store(0, b.let(select(known, x, math.nan if table.dtype.is_float else 0), table.dtype))
    return [Launch(b.region(), node.inputs, node.outputs)]


@lowers("scatter_rows_add", target="cuda")
def scatter_rows_add(node: Node) -> list[Launch]:
    (rows, ids), [out] = node.input_types, node.types
    length, count = prod(ids.ints), int_attr(node.attrs, "count")
    if not length:
        return pointwise.filled(node, 0)
    dtype = as_signed(rows.dtype)
    if dtype.computed not in (DType.F32, DType.F64, DType.I32, DType.I64):
        return [_scanned(node, length, count)]
    places = [ScatterPlaces(ids.dtype, length, count, step) for step in range(4)]
    adds = ScatterAdd(dtype, ids.dtype, length, count, prod(out.ints[1:]))
    work = Scratch(0, places[0].work_bytes)
    return [
        *pointwise.filled(node, 0),
        *(Launch(step, node.inputs[1:], (work,)) for step in places),
        Launch(adds, (*node.inputs, work), node.outputs),
    ]


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


@lowers("gather", target="cuda")
def gather(node: Node) -> list[Launch]:
    (x, ids), [out], axis = node.input_types, node.types, int_attr(node.attrs, "axis")
    outer, count, length, inner = prod(x.ints[:axis]), x.ints[axis], out.ints[axis], prod(x.ints[axis + 1 :])
    own = (length * inner, inner, 1)
    sources = [Access(x.dtype, (count * inner, 0, 1)), Access(ids.dtype, own)]
    b = RegionBuilder([outer, length, inner], (), sources, [Access(x.dtype, own)])
    b.row()
    found = b.let(b.input(1), DType.I64)
    known = b.let(call("and", found >= 0, found < count), DType.B1)
    value = b.fetch(0, b.let(found * inner, DType.I64), known)
    b.store(0, b.let(select(known, value, math.nan if x.dtype.is_float else 0), x.dtype))
    return [Launch(b.region(), node.inputs, node.outputs)]


@lowers("scatter_add", target="cuda")
def scatter_add(node: Node) -> list[Launch]:
    """Each element of the result scans all indices of its line, which are usually few compared with the line."""
    (source, ids), [out], axis = node.input_types, node.types, int_attr(node.attrs, "axis")
    outer, count, length, inner = prod(out.ints[:axis]), out.ints[axis], source.ints[axis], prod(out.ints[axis + 1 :])
    if not length:
        return pointwise.filled(node, 0)
    given, place = (length * inner, 0, 1, inner), (count * inner, inner, 1, 0)
    sources = [Access(source.dtype, given), Access(ids.dtype, given)]
    b = RegionBuilder([outer, count, inner], [length], sources, [Access(out.dtype, place)], indices=(1,))
    b.element()
    found = b.let(b.input(1), DType.I64)
    known = b.let(call("and", found >= 0, found < count), DType.B1)
    hit = b.let(call("eq", found, b.along(1)), DType.B1)
    dtype = source.dtype.computed
    term = b.let(select(known, select(hit, b.input(0), 0), math.nan if dtype.is_float else 0), dtype)
    total = b.reduce("sum", term)
    b.row()
    b.store(0, b.let(total, out.dtype))
    return [Launch(b.region(), node.inputs, node.outputs)]


@lowers("pad", target="cuda")
def pad(node: Node) -> list[Launch]:
    """Pads in one launch if the last axis is padded, e.g. channels up to a vector: every result element is an input
    element or the filler. Other pads fill the result and then copy whole vectors."""
    [x], [out] = node.input_types, node.types
    low, high, interior = (int_tuple(node.attrs, name) for name in ("low", "high", "interior"))
    if any(interior) or not any((*low[-1:], *high[-1:])):
        return pointwise.pad(node)
    padded = [axis for axis in range(x.rank) if low[axis] or high[axis]]
    strides = dense(x.ints)
    source = Access(x.dtype, tuple(0 if axis in padded else stride for axis, stride in enumerate(strides)))
    b = RegionBuilder(out.ints, (), [source], [Access(out.dtype, dense(out.ints))], indices=padded)
    b.row()
    there, place = as_expr(True), as_expr(0)
    for axis in padded:
        along = b.let(b.along(axis) - low[axis], DType.I64)
        inside = b.let(call("and", along >= 0, along < x.ints[axis]), DType.B1)
        there = inside if axis == padded[0] else b.let(call("and", there, inside), DType.B1)
        place = place + along * strides[axis]
    found = b.fetch(0, b.let(place, DType.I64), there)
    b.store(0, b.let(select(there, found, number_attr(node.attrs, "value")), x.dtype))
    return [Launch(b.region(), node.inputs, node.outputs)]
