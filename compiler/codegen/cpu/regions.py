"""A region as a kernel.

Vectors run along the last inner axis where there is one and some input is dense there; else along the last outer axis,
each lane being a row of its own (pointwise regions, and reductions of columns). What is left of an axis is a shorter
vector, whose length is known, so there are no loops over single elements.

A sum over lanes keeps one vector of partial sums and adds its halves at the end; over columns it adds in order. Both
depend on the shape alone. The tasks of a kernel are blocks of rows, of about ``_GRAIN`` elements.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from dslc.compiler.codegen.cpu.code import I64, VECTOR_BYTES, VOID, Code
from dslc.compiler.codegen.cpu.row import Facts, Row
from dslc.compiler.codegen.cpu.values import Values
from dslc.compiler.codegen.region import Region

_GRAIN: Final = 8192  # elements a task, about
_KEPT: Final = 128 << 10  # bytes of a row's values that stay on the stack from one stage to another
_STREAM: Final = 32 << 20  # bytes of a region's arguments from which on its outputs go past the caches


@dataclass(frozen=True, slots=True)
class Shape:
    """How a region is cut. ``columns``: lanes are rows, neighbours along the last outer axis.

    A task is ``block`` rows; with columns ``block`` whole lines along the last outer axis, or where ``split`` a piece
    of one line, of ``block`` rows.
    """

    columns: bool
    split: bool
    lanes: int
    block: int
    tasks: int


def cut(region: Region) -> Shape:
    """Depends on the region alone."""
    itemsize = max([4, *(a.dtype.itemsize for a in (*region.inputs, *region.outputs) if a.dtype.is_float)])
    lanes = VECTOR_BYTES // itemsize
    dense_outer = any(a.strides[len(region.outer) - 1] == 1 for a in (*region.inputs, *region.outputs) if region.outer)
    along = _dense(region, -1) if region.inner else 0
    across = _dense(region, len(region.outer) - 1) if region.outer else 0
    columns = not region.inner or across > along or (not along and dense_outer)
    work = math.prod(region.inner)
    if not columns:
        block = max(1, _GRAIN // max(1, work))
        return Shape(False, False, lanes, block, -(-region.rows // block))
    last = region.outer[-1] if region.outer else 1
    block = max(lanes, _GRAIN // max(1, work) // lanes * lanes)
    if last > block:
        return Shape(True, True, lanes, block, (region.rows // last) * -(-last // block))
    lines = max(1, block // max(1, last))
    return Shape(True, False, lanes, lines, -(-(region.rows // max(1, last)) // lines) if region.rows else 0)


def _dense(region: Region, axis: int) -> int:
    """Elements of the inputs that are dense along an axis."""
    sizes = (*region.outer, *region.inner)
    dense = (a for a in region.inputs if a.strides[axis] == 1)
    return sum(math.prod(n for n, stride in zip(sizes, a.strides) if stride) for a in dense)


def tasks_of(region: Region) -> int:
    """0 where there is nothing to write."""
    return cut(region).tasks if region.rows else 0


def emit_region(code: Code, region: Region) -> None:
    """Arguments are the inputs, then the outputs."""
    printer = Printer(code, region)
    printer.run()
    if printer.streamed and code.level.startswith("x86_64"):
        code.intrinsic("llvm.x86.sse.sfence", VOID)  # others see such stores when the task is done


def _streamed(region: Region, shape: Shape) -> frozenset[int]:
    """The outputs that are worth it: dense along the lanes, each vector at a multiple of its size. Buffers begin there
    (``ALIGNMENT``)."""
    whole = math.prod((*region.outer, *region.inner))
    arguments = (*region.inputs, *region.outputs)
    if sum(whole * a.dtype.itemsize for a in arguments if all(a.strides)) < _STREAM:
        return frozenset()
    lane_axis = len(region.outer) - 1 if shape.columns else len(region.outer) + len(region.inner) - 1
    last = (*region.outer, *region.inner)[lane_axis]
    found = set()
    for number, access in enumerate(region.outputs):
        others = [s for axis, s in enumerate(access.strides) if axis != lane_axis]
        steps = (last, access.offset, *others)
        if access.strides[lane_axis] == 1 and all(s % (VECTOR_BYTES // access.dtype.itemsize) == 0 for s in steps):
            found.add(number)
    return frozenset(found)


class Printer:
    """``pointers``: of the inputs and the outputs, where they are not the kernel's arguments in order."""

    def __init__(self, code: Code, region: Region, pointers: Sequence[Any] | None = None) -> None:
        self.code, self.b, self.region = code, code.b, region
        self.shape, self.facts = cut(region), Facts(region)
        count = len(region.inputs)
        pointers = pointers or [code.argument(i) for i in range(count + len(region.outputs))]
        self.inputs, self.outputs = list(pointers[:count]), list(pointers[count:])
        # What is one number for the whole region is read once: no output may lie on it but where there is one element.
        one, read = Values(code, 1), self.facts.read
        self.uniform = [
            one.load(p, a.offset, 0, a.dtype) if n in read and not any(a.strides) else None
            for n, (a, p) in enumerate(zip(region.inputs, self.inputs))
        ]
        row_bytes = math.prod(region.inner) * VECTOR_BYTES // (1 if self.shape.columns else self.shape.lanes)
        self.kept = self.facts.repeated if row_bytes * len(self.facts.repeated) <= _KEPT else {}
        self.streamed = _streamed(region, self.shape)

    def run(self) -> None:
        code, region, shape = self.code, self.region, self.shape
        if not shape.columns:
            self._row_blocks()
            return
        last = region.outer[-1] if region.outer else 1
        points = region.rows // last
        if shape.split:
            with code.loop(code.last, code.first) as task:
                point, number = code.divmod(task, -(-last // shape.block))
                start = code.mul(number, shape.block)
                outer = code.unravel(point, region.outer[:-1])
                self._columns(outer, start, code.least(code.add(start, shape.block), last), last)
            return
        with code.loop(code.last, code.first) as task:
            start = code.mul(task, shape.block)
            stop = code.least(code.add(start, shape.block), points)
            with code.loop(stop, start) as point:
                self._columns(code.unravel(point, region.outer[:-1]), 0, last, last)

    def _row_blocks(self) -> None:
        code, region = self.code, self.region
        with code.loop(code.last, code.first) as task:
            start = code.mul(task, self.shape.block)
            with code.loop(code.least(code.add(start, self.shape.block), region.rows), start) as row:
                Row(self, code.unravel(row, region.outer), 1, self.shape.lanes).run()

    def _columns(self, outer: list[Any], start: Any, stop: Any, last: int) -> None:
        """Rows start..stop along the last outer axis of ``last`` elements, ``lanes`` at a time."""
        code, lanes = self.code, self.shape.lanes
        if not self.region.outer:
            Row(self, [], 1, 1).run()
            return
        tail = last % lanes
        whole = last - tail
        if whole:
            end = code.least(stop, whole) if not isinstance(stop, int) else whole
            with code.loop(end, start, lanes) as column:
                Row(self, [*outer, column], lanes, lanes).run()
        if not tail:
            return
        if isinstance(stop, int):
            Row(self, [*outer, whole], tail, tail).run()
            return
        with self.b.if_then(self.b.icmp_signed("==", stop, I64(last))):
            Row(self, [*outer, whole], tail, tail).run()
