"""Gather and scatter_add by computed indices, of single elements or whole rows.

An index that does not exist reads and writes nothing. Invalid input data was already refused. If the model itself
computes such an index, the result is nan, which exposes it: the element of a gather, or the whole line that a scatter
would add to. Dtypes without nan get zeros, and nothing is added.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from dslc.compiler.codegen.cpu.contraction.axes import spans
from dslc.compiler.codegen.cpu.kernel_spec import KernelSpec
from dslc.compiler.codegen.cpu.llvm.halves import NAN_BITS
from dslc.compiler.codegen.cpu.llvm.values import Values
from dslc.compiler.codegen.cpu.llvm.writer import I1, I64, VECTOR_BYTES, VOID, Code, Reg, memory_type
from dslc.compiler.codegen.launch import Launch
from dslc.compiler.codegen.lowerings import lowers
from dslc.compiler.codegen.region.ir import Access, dense
from dslc.compiler.codegen.region.pointwise import copy, filled
from dslc.compiler.ir.described import described
from dslc.compiler.ir.graph import Node
from dslc.compiler.ir.types import DType, TensorType
from dslc.compiler.ops.attrs import int_attr, optional_int_attr, str_attr

_TASK_ELEMENTS: Final = 16384  # elements per task, about


@described("Table", "dtype ids outer length count inner rows")
@dataclass(frozen=True)
class Table:
    """The shapes of a gather or scatter: the table is ``[outer, count, inner]``; gathered or scattered elements are
    ``[outer, length, inner]``.

    ``rows``: one index selects a row of ``inner`` elements, and ``ids`` is ``[outer, length]``; else each element has
    its own index.
    """

    dtype: DType
    ids: DType
    outer: int
    length: int
    count: int
    inner: int
    rows: bool

    def find(self, code: Code, ids: Any, outer: Any, number: Any) -> tuple[Any, Any]:
        """Whether id ``number`` is valid, and the table index of the first element of the row that it selects."""
        one = Values(code, 1)
        found = one.convert(one.load(ids, number, 0, self.ids), DType.I64).value
        known = code.b.icmp_unsigned("<", found, I64(self.count))
        return known, code.mul(code.add(code.mul(outer, self.count), found), self.inner)

    @property
    def nothing(self) -> Any:
        """The value for an invalid id: nan, or 0 if the dtype has no nan."""
        if self.dtype.is_half:
            return memory_type(self.dtype)(NAN_BITS[self.dtype])
        return memory_type(self.dtype)(math.nan if self.dtype.is_float else 0)


@described("Gather", "table")
@dataclass(frozen=True)
class Gather(KernelSpec):
    """``k(table, ids, out)``."""

    table: Table

    @property
    def group(self) -> int:
        """Rows per task."""
        return max(1, _TASK_ELEMENTS // max(1, self.table.inner))

    @property
    def tasks(self) -> int:
        return -(-self.table.outer * self.table.length // self.group) if self.table.inner else 0

    def emit(self, code: Code) -> None:
        t = self.table
        stop = code.least(code.mul(code.last, self.group), t.outer * t.length)
        source, ids, out = (code.argument(i) for i in range(3))
        lane = memory_type(t.dtype)

        def move(known: Any, place: Any, target: Any, count: int) -> None:
            with code.b.if_else(known, likely=True) as (then, otherwise):
                with then:
                    _copy(code, code.at(out, target, lane), code.at(source, place, lane), count * t.dtype.itemsize)
                with otherwise, code.loop(count) as k:
                    Values(code, 1).store_value(t.nothing, t.dtype, out, code.add(target, k), 1)

        with code.loop(stop, code.mul(code.first, self.group)) as row:
            (outer, line), target = code.divmod(row, t.length), code.mul(row, t.inner)
            if t.rows:
                move(*t.find(code, ids, outer, self._id(row, line)), target, t.inner)
            else:
                with code.loop(t.inner) as k:
                    known, place = t.find(code, ids, outer, code.add(target, k))
                    move(known, code.add(place, k), code.add(target, k), 1)

    def _id(self, row: Any, line: Any) -> Any:
        """The place in ``ids`` of the id of ``row``, which is row ``line`` of its part of the table."""
        return row


@described("Take", "table")
@dataclass(frozen=True)
class Take(Gather):
    """``k(table, ids, out)`` of rows, where all parts of the table have the same ``length`` ids."""

    def _id(self, row: Any, line: Any) -> Any:
        return line


@described("ScatterAdd", "table")
@dataclass(frozen=True)
class ScatterAdd(KernelSpec):
    """``k(source, ids, table)``: adds each source element to the table at its index, in order; the table starts as
    zeros.

    A unit is a part of the inner axis and processes all of its indices. So one unit alone decides what is added to an
    element, and in which order.
    """

    table: Table

    @property
    def width(self) -> int:
        """Elements of the inner axis per unit."""
        return min(self.table.inner, 2 * VECTOR_BYTES // self.table.dtype.itemsize)

    @property
    def units(self) -> int:
        return self.table.outer * -(-self.table.inner // self.width) if self.table.inner else 0

    @property
    def group(self) -> int:
        """Units per task."""
        return max(1, _TASK_ELEMENTS // max(1, self.table.length * self.width))

    @property
    def tasks(self) -> int:
        return -(-self.units // self.group) if self.table.length and self.table.count else 0

    def emit(self, code: Code) -> None:
        t = self.table
        pointers = [code.argument(i) for i in range(3)]
        for outer, first, lanes in self.columns(code):
            with code.loop(t.length) as j:
                self._row(code, pointers, outer, code.add(code.mul(outer, t.length), j), first, lanes)

    def columns(self, code: Code) -> Iterator[tuple[Any, Any, int]]:
        """Emits the loop over the units of the tasks. Yields the place of a unit along the outer axis, the first of its
        elements along the inner axis, and their number."""
        inner = self.table.inner
        stop = code.least(code.mul(code.last, self.group), self.units)
        with code.loop(stop, code.mul(code.first, self.group)) as unit:
            outer, part = code.divmod(unit, -(-inner // self.width))
            start = code.mul(part, self.width)
            end = inner if self.width == inner else code.least(code.add(start, self.width), inner)
            for first, lanes in spans(code, start, end, inner, self.width):
                yield outer, first, lanes

    def combined(self, values: Values, old: Reg, new: Reg) -> Reg:
        """An element of the table with one of the source."""
        return values.combine("sum", old, new)

    @property
    def filler(self) -> Any:
        """The value of a line with an index that does not exist; None: such an index has no effect."""
        return self.table.nothing if self.table.dtype.is_float else None

    def _row(self, code: Code, pointers: list[Any], outer: Any, row: Any, first: Any, lanes: int) -> None:
        t, (source, ids, table) = self.table, pointers
        at = code.add(code.mul(row, t.inner), first)

        def add(known: Any, place: Any, at: Any, column: Any, lanes: int) -> None:
            values = Values(code, lanes)
            with code.b.if_else(known, likely=True) as (then, otherwise):
                with then:
                    here = code.add(place, column)
                    old, new = (values.load(p, i, 1, t.dtype) for p, i in ((table, here), (source, at)))
                    values.store(self.combined(values, old, new), table, here, 1)
                with otherwise:
                    if self.filler is not None:
                        with code.loop(t.count) as line, code.loop(lanes) as k:
                            lost = code.mul(code.add(code.mul(outer, t.count), line), t.inner)
                            lost = code.add(code.add(lost, column), k)
                            Values(code, 1).store_value(self.filler, t.dtype, table, lost, 1)

        if t.rows:
            add(*t.find(code, ids, outer, row), at, first, lanes)
        else:
            with code.loop(lanes) as k:
                there = code.add(at, k)
                add(*t.find(code, ids, outer, there), there, code.add(first, k), 1)


@described("ScatterReduce", "table how lost")
@dataclass(frozen=True)
class ScatterReduce(ScatterAdd):
    """Like ScatterAdd, but elements are multiplied, or the greatest or least one stays. The table starts as a copy.

    ``lost``: the filler of a table of integers, at least as great as its elements.
    """

    how: str
    lost: int | None

    def combined(self, values: Values, old: Reg, new: Reg) -> Reg:
        return values.combine(self.how, old, new)

    @property
    def filler(self) -> Any:
        return super().filler if self.lost is None else memory_type(self.table.dtype)(self.lost)


@described("Unsort", "table")
@dataclass(frozen=True)
class Unsort(ScatterAdd):
    """Puts each element at its index, which no other element has."""

    def combined(self, values: Values, old: Reg, new: Reg) -> Reg:
        return new


def _copy(code: Code, target: Any, source: Any, count: int) -> None:
    code.intrinsic("llvm.memcpy.p0.p0.i64", VOID, target, source, I64(count), I1(0))


@lowers("gather_rows", target="cpu")
def gather_rows(node: Node) -> list[Launch]:
    table, ids = node.input_types
    length, inner = math.prod(ids.ints), math.prod(table.ints[1:])
    return [Launch(Gather(Table(table.dtype, ids.dtype, 1, length, table.ints[0], inner, True)),
                   node.inputs, node.outputs)]  # fmt: skip


@lowers("take", target="cpu")
def take(node: Node) -> list[Launch]:
    (x, ids), axis = node.input_types, int_attr(node.attrs, "axis")
    outer, inner = math.prod(x.ints[:axis]), math.prod(x.ints[axis + 1 :])
    table = Table(x.dtype, ids.dtype, outer, math.prod(ids.ints), x.ints[axis], inner, True)
    return [Launch(Take(table), node.inputs, node.outputs)]


@lowers("gather", target="cpu")
def gather(node: Node) -> list[Launch]:
    spec = Gather(_along(node, node.input_types[0].ints, node.types[0].ints))
    return [Launch(spec, node.inputs, node.outputs)]


@lowers("scatter_add", target="cpu")
def scatter_add(node: Node) -> list[Launch]:
    spec = ScatterAdd(_along(node, node.types[0].ints, node.input_types[0].ints))
    return [*filled(node, 0), Launch(spec, node.inputs, node.outputs)]


@lowers("scatter_reduce", target="cpu")
def scatter_reduce(node: Node) -> list[Launch]:
    x, src, index = node.inputs
    shape, dtype, axis = x.type.ints, x.type.dtype, int_attr(node.attrs, "axis")
    table = _table(dtype, index.type, axis, shape, src.type.ints)
    lost = optional_int_attr(node.attrs, "lost")
    whole = Access(dtype, dense(shape))
    return [
        Launch(copy(shape, whole, whole), (x,), node.outputs),
        Launch(ScatterReduce(table, str_attr(node.attrs, "how"), lost), (src, index), node.outputs),
    ]


@lowers("unsort", target="cpu")
def unsort(node: Node) -> list[Launch]:
    shape = node.types[0].ints
    return [Launch(Unsort(_along(node, shape, shape)), node.inputs, node.outputs)]


def _along(node: Node, table: tuple[int, ...], picked: tuple[int, ...]) -> Table:
    return _table(node.types[0].dtype, node.input_types[1], int_attr(node.attrs, "axis"), table, picked)


def _table(dtype: DType, ids: TensorType, axis: int, table: tuple[int, ...], picked: tuple[int, ...]) -> Table:
    outer, inner = math.prod(table[:axis]), math.prod(table[axis + 1 :])
    return Table(dtype, ids.dtype, outer, picked[axis], table[axis], inner, ids.rank < len(table))
