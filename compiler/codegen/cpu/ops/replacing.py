"""Scatters that replace elements: the ids of a line are gone through in order, so the last one of equal ids wins."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any

from dslc.compiler.codegen.cpu.llvm.values import Values
from dslc.compiler.codegen.cpu.llvm.writer import I1, I32, Code, memory_type
from dslc.compiler.codegen.cpu.ops.indexing import ScatterAdd, Table
from dslc.compiler.codegen.launch import Launch
from dslc.compiler.codegen.lowerings import lowers
from dslc.compiler.codegen.region.ir import Access, dense
from dslc.compiler.codegen.region.pointwise import copy, filled
from dslc.compiler.ir.described import described
from dslc.compiler.ir.graph import Node
from dslc.compiler.ir.types import DType
from dslc.compiler.ops.attrs import int_attr, optional_int_attr


@described("Put", "table places lost")
@dataclass(frozen=True)
class Put(ScatterAdd):
    """``k([source, ]ids, table)``: elements of ``source`` are put into the table; without it, with ``places``, their
    places along the axis. ``lost``: what fills a line with an id that does not exist, of a table of integers; None:
    such an id has no effect there."""

    places: bool
    lost: int | None

    @property
    def filler(self) -> Any:
        return super().filler if self.lost is None else memory_type(self.table.dtype)(self.lost)

    def emit(self, code: Code) -> None:
        t = self.table
        *source, ids, table = (code.argument(i) for i in range(2 if self.places else 3))
        one, missed = Values(code, 1), code.local(I1)
        for outer, first, lanes in self.columns(code):
            code.b.store(I1(0), missed)
            with code.loop(t.length) as j:
                row = code.mul(code.add(code.mul(outer, t.length), j), t.inner)
                with code.loop(lanes) as k:
                    column = code.add(first, k)
                    at = code.add(row, column)
                    known, place = t.find(code, ids, outer, at)
                    with code.b.if_else(known, likely=True) as (then, otherwise):
                        with then:
                            here = code.add(place, column)
                            if source:
                                one.store(one.load(source[0], at, 0, t.dtype), table, here, 1)
                            else:
                                one.store_value(code.b.trunc(code.int(j), I32), t.dtype, table, here, 1)
                        with otherwise:
                            code.b.store(I1(1), missed)
            if self.filler is not None:
                with code.b.if_then(code.b.load(missed, typ=I1), likely=False):
                    self._fill(code, ids, table, outer, first, lanes)

    def _fill(self, code: Code, ids: Any, table: Any, outer: Any, first: Any, lanes: int) -> None:
        """Fills the lines of some columns that have an id which does not exist."""
        t = self.table
        with code.loop(t.length) as j, code.loop(lanes) as k:
            column = code.add(first, k)
            at = code.add(code.mul(code.add(code.mul(outer, t.length), j), t.inner), column)
            known, _ = t.find(code, ids, outer, at)
            with code.b.if_then(code.b.not_(known), likely=False), code.loop(t.count) as line:
                lost = code.add(code.mul(code.add(code.mul(outer, t.count), line), t.inner), column)
                Values(code, 1).store_value(self.filler, t.dtype, table, lost, 1)


@lowers("scatter_last", target="cpu")
def scatter_last(node: Node) -> list[Launch]:
    src, index, *x = node.inputs
    shape, dtype = node.types[0].ints, node.types[0].dtype
    whole = Access(dtype, dense(shape))
    before = [Launch(copy(shape, whole, whole), (x[0],), node.outputs)] if x else filled(node, 0)
    return [*before, Launch(Put(_table(node, index.type.dtype), False, None), (src, index), node.outputs)]


@lowers("last_places", target="cpu")
def last_places(node: Node) -> list[Launch]:
    [index] = node.inputs
    spec = Put(_table(node, index.type.dtype), True, optional_int_attr(node.attrs, "lost"))
    return [*filled(node, -1), Launch(spec, node.inputs, node.outputs)]


def _table(node: Node, ids: DType) -> Table:
    axis, type = int_attr(node.attrs, "axis"), node.types[0]
    shape = node.input_types[0].ints  # of the ids, as of the source
    return Table(type.dtype, ids, prod(shape[:axis]), shape[axis], type.ints[axis], prod(shape[axis + 1 :]), False)
