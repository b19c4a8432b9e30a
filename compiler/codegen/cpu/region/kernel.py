"""Emits a region as a CPU kernel.

Vectors run along the last inner axis if one exists and some input is contiguous along it. Otherwise they run along the
last outer axis, with one row per lane (pointwise regions, and column reductions). The rest of an axis is a shorter
vector of known length, so no scalar loops are needed.

If long columns are reduced, a task sweeps over its piece of the lines one after the other, with the partial results of
all columns in the L1 cache. So memory is read in order.

A sum over lanes keeps one vector of partial sums and finally adds its halves; a sum over columns adds in order. Both
depend only on the shape. The tasks of a kernel are blocks of rows, with about ``_TASK_ELEMENTS`` elements each.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from dslc.compiler.codegen.cpu.kernel_spec import KernelSpec
from dslc.compiler.codegen.cpu.llvm.values import Values
from dslc.compiler.codegen.cpu.llvm.writer import I64, VECTOR_BYTES, Code, lane_type
from dslc.compiler.codegen.cpu.region.row import Nest, RegionFacts, Row
from dslc.compiler.codegen.region.ir import Region, Scan
from dslc.compiler.codegen.region.queries import identity

_TASK_ELEMENTS: Final = 8192  # elements per task, about
_SWEEP_VECTORS: Final = 64  # vectors whose partial results a sweep keeps: 4 KiB
_MIN_SWEEP_LENGTH: Final = 32  # elements of a column from which on a sweep pays
_MAX_KEPT_BYTES: Final = 128 << 10  # most bytes of a row's values that stay on the stack between stages


@dataclass(frozen=True, slots=True)
class Shape:
    """The schedule of a region. ``columns``: lanes are rows, adjacent along the last outer axis.

    A task is ``block`` rows. With columns, it is ``block`` whole lines along the last outer axis or, if ``split``, a
    piece of one line with ``block`` rows. ``swept``: line by line.
    """

    columns: bool
    split: bool
    lanes: int
    block: int
    tasks: int
    swept: bool = False


def cut(region: Region) -> Shape:
    """The schedule; depends only on the region."""
    itemsize = max([4, *(a.dtype.itemsize for a in (*region.inputs, *region.outputs) if a.dtype.is_float)])
    lanes = VECTOR_BYTES // itemsize
    dense_outer = any(a.strides[len(region.outer) - 1] == 1 for a in (*region.inputs, *region.outputs) if region.outer)
    along = _dense(region, -1) if region.inner else 0
    across = _dense(region, len(region.outer) - 1) if region.outer else 0
    columns = not region.inner or across > along or (not along and dense_outer)
    work = math.prod(region.inner)
    if not columns:
        block = max(1, _TASK_ELEMENTS // max(1, work))
        return Shape(False, False, lanes, block, -(-region.rows // block))
    last = region.outer[-1] if region.outer else 1
    block, swept = max(lanes, _TASK_ELEMENTS // max(1, work) // lanes * lanes), _swept(region, lanes)
    if swept:
        block = max(block, _SWEEP_VECTORS * lanes)
    if last > block:
        return Shape(True, True, lanes, block, (region.rows // last) * -(-last // block), swept)
    lines = 1 if swept else max(1, block // max(1, last))
    count = -(-(region.rows // max(1, last)) // lines) if region.rows else 0
    return Shape(True, False, lanes, lines, count, swept)


def _swept(region: Region, lanes: int) -> bool:
    """Whether each column is reduced in one stage, only row stages follow, and both axes are long."""
    first, *others = region.stages
    plain = first.element and first.reduces and not (first.stores or first.flags or region.indices)
    plain = plain and not any(isinstance(let, Scan) for let in first.lets) and not any(s.element for s in others)
    return bool(
        plain and region.outer and region.outer[-1] >= 4 * lanes and math.prod(region.inner) >= _MIN_SWEEP_LENGTH
    )


def _dense(region: Region, axis: int) -> int:
    """The number of elements of the inputs that are contiguous along an axis."""
    sizes = (*region.outer, *region.inner)
    dense = (a for a in region.inputs if a.strides[axis] == 1)
    return sum(math.prod(n for n, stride in zip(sizes, a.strides) if stride) for a in dense)


@dataclass(frozen=True, slots=True)
class RegionKernel(KernelSpec):
    """The kernel of a region. Its arguments are the inputs, then the outputs."""

    region: Region

    @property
    def tasks(self) -> int:
        return cut(self.region).tasks if self.region.rows else 0

    def emit(self, code: Code) -> None:
        Emitter(code, self.region).run()


class Emitter:
    """``pointers``: of the inputs and the outputs, if they are not the kernel's arguments in order."""

    def __init__(self, code: Code, region: Region, pointers: Sequence[Any] | None = None) -> None:
        self.code, self.b, self.region = code, code.b, region
        self.shape, self.facts = cut(region), RegionFacts(region)
        count = len(region.inputs)
        pointers = pointers or [code.argument(i) for i in range(count + len(region.outputs))]
        self.inputs, self.outputs = list(pointers[:count]), list(pointers[count:])
        # Scalar inputs of the whole region are loaded once. No output may overlap one unless the region has a single
        # element.
        one, read = Values(code, 1), self.facts.read
        self.uniform = [
            one.load(p, a.offset, 0, a.dtype) if n in read and not any(a.strides) else None
            for n, (a, p) in enumerate(zip(region.inputs, self.inputs))
        ]
        row_bytes = math.prod(region.inner) * VECTOR_BYTES // (1 if self.shape.columns else self.shape.lanes)
        self.kept = self.facts.repeated if row_bytes * len(self.facts.repeated) <= _MAX_KEPT_BYTES else {}

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
        if not self.region.outer:
            Row(self, [], 1, 1).run()
        elif self.shape.swept:
            self._sweep(outer, start, stop, last)
        else:
            self._vectors(start, stop, last, lambda column, lanes: Row(self, [*outer, column], lanes, lanes).run())

    def _sweep(self, outer: list[Any], start: Any, stop: Any, last: int) -> None:
        """Runs the element stage line by line, then the row stages."""
        code, stage = self.code, self.region.stages[0]
        dtypes = [self.facts.dtypes[r.value] for r in stage.reduces]
        count = -(-min(last, self.shape.block if self.shape.split else last) // self.shape.lanes) * self.shape.lanes
        buffers = [code.local(lane_type(d), count, align=VECTOR_BYTES) for d in dtypes]
        each = list(zip(stage.reduces, dtypes, buffers))

        def clear(column: Any, lanes: int) -> None:
            for reduce, dtype, buffer in each:
                values = Values(code, lanes)
                empty = values.const(identity(reduce.combine, dtype), dtype)
                values.store(empty, buffer, self._from_start(column, start), 1)

        def take(index: list[Any], number: Any) -> Callable[[Any, int], None]:
            def vector(column: Any, lanes: int) -> None:
                values, at = Values(code, lanes), self._from_start(column, start)
                found = Row(self, [*outer, column], lanes, lanes).reduced(stage, index, number)
                for (reduce, dtype, buffer), new in zip(each, found):
                    old = values.load(buffer, at, 1, dtype)
                    values.store(values.combine(reduce.combine, old, new), buffer, at, 1)

            return vector

        def finish(column: Any, lanes: int) -> None:
            at = self._from_start(column, start)
            totals = [Values(code, lanes).load(buffer, at, 1, dtype) for _, dtype, buffer in each]
            Row(self, [*outer, column], lanes, lanes).finish(totals)

        self._vectors(start, stop, last, clear)
        with Nest(code, self.region.inner) as (index, number):
            self._vectors(start, stop, last, take(index, number))
        self._vectors(start, stop, last, finish)

    def _from_start(self, column: Any, start: Any) -> Any:
        return column if isinstance(start, int) and start == 0 else self.b.sub(self.code.int(column), start)

    def _vectors(self, start: Any, stop: Any, last: int, work: Callable[[Any, int], None]) -> None:
        """``work`` for each vector of the lanes start..stop, and for the rest at the end of the axis."""
        code, lanes = self.code, self.shape.lanes
        tail = last % lanes
        whole = last - tail
        if whole:
            end = code.least(stop, whole) if not isinstance(stop, int) else whole
            with code.loop(end, start, lanes) as column:
                work(column, lanes)
        if not tail:
            return
        if isinstance(stop, int):
            work(whole, tail)
            return
        with self.b.if_then(self.b.icmp_signed("==", stop, I64(last))):
            work(whole, tail)
