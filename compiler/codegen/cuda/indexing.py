"""Rows of tables by computed indices: gather as a region that fetches, scatter as a kernel of its own."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import prod
from typing import Final

from dslc.compiler.codegen import pointwise
from dslc.compiler.codegen.cuda.cpp import C_TYPES, Code, Numbers, constants, register_sized
from dslc.compiler.codegen.launch import Given, Launch
from dslc.compiler.codegen.region import Access, RegionBuilder
from dslc.compiler.codegen.target import Geometry
from dslc.compiler.ir.graph import Node
from dslc.compiler.ir.scalar import call, select
from dslc.compiler.ir.types import DType
from dslc.compiler.ops.attrs import int_attr

_THREADS: Final = 128
_EACH: Final = 8  # elements of a line a thread


@dataclass(frozen=True)
class ScatterAdd:
    """``k(rows, ids, table, numbers)``: ``outer`` tables of ``count`` lines of ``inner`` elements; ``length`` rows for
    each."""

    dtype: DType
    ids: DType
    outer: int
    length: int
    count: int
    inner: int

    @property
    def geometry(self) -> Geometry:
        return Geometry((self.outer * self.length, 1, 1), (_THREADS, 1, 1))

    @property
    def _numbers(self) -> Numbers:
        return Numbers(LENGTH=self.length, COUNT=self.count, INNER=self.inner)

    @property
    def given(self) -> Given:
        return self._numbers.given

    @property
    def code(self) -> Code:
        each = min(_EACH, -(-self.inner // _THREADS))
        text = f"using T = {C_TYPES[self.dtype]};\nusing I = {C_TYPES[self.ids]};\n"
        text += f"using SUM = {C_TYPES[self.dtype.computed]};\n" + self._numbers.text()
        text += constants(THREADS=_THREADS, EACH=each, HAS_NAN=int(self.dtype.is_float))
        nan = "store(to, SUM(__uint_as_float(0x7FC00000u)))" if self.dtype.is_float else ""
        return Code("scatter.cu", text + f"__device__ __forceinline__ void put_nan(T *to) {{ {nan}; }}\n")


register_sized(ScatterAdd)


def gather_rows(node: Node) -> list[Launch]:
    """An id that does not exist reads nothing and gives nan, or 0 where the dtype has no nan."""
    table, ids = node.input_types
    length, count, inner = prod(ids.ints), table.ints[0], prod(table.ints[1:])
    sources = [Access(table.dtype, (0, 1)), Access(ids.dtype, (1, 0))]
    b = RegionBuilder([length, inner], (), sources, [Access(table.dtype, (inner, 1))])
    b.row()
    found = b.let(b.input(1), DType.I64)
    known = b.let(call("and", found >= 0, found < count), DType.B1)
    x = b.fetch(0, b.let(found * inner, DType.I64), known)
    b.store(0, b.let(select(known, x, math.nan if table.dtype.is_float else 0), table.dtype))
    return [Launch(b.region(), node.inputs, node.outputs)]


def scatter_rows_add(node: Node) -> list[Launch] | None:
    (rows, ids), [out] = node.input_types, node.types
    if rows.dtype.computed not in (DType.F32, DType.F64, DType.I32, DType.I64):
        return None
    spec = ScatterAdd(rows.dtype, ids.dtype, 1, prod(ids.ints), int_attr(node.attrs, "count"), prod(out.ints[1:]))
    return [*pointwise.filled(node, 0), *([Launch(spec, node.inputs, node.outputs)] if spec.length else [])]


LOWERED: Final[Mapping[str, Callable[[Node], list[Launch] | None]]] = {
    "gather_rows": gather_rows,
    "scatter_rows_add": scatter_rows_add,
}
