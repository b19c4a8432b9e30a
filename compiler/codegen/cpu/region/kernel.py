"""Emits a region as a CPU kernel.

A sum over lanes keeps one vector of partial sums and finally adds its halves; a sum over columns adds in order. Both
depend only on the shape.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

from dslc.compiler.codegen.cpu.kernel_spec import ARGUMENT, KernelCode
from dslc.compiler.codegen.cpu.llvm.values import Values
from dslc.compiler.codegen.cpu.llvm.writer import I64, VECTOR_BYTES, Code, lane_type, memory_type
from dslc.compiler.codegen.cpu.region.facts import RegionFacts
from dslc.compiler.codegen.cpu.region.numbers import argument_count
from dslc.compiler.codegen.cpu.region.row import Nest, Row
from dslc.compiler.codegen.cpu.region.schedule import Schedule, reduced_at
from dslc.compiler.codegen.region.ir import Access, Region
from dslc.compiler.codegen.region.queries import identity
from dslc.compiler.ir.described import described
from dslc.compiler.ir.types import DType

_MAX_KEPT_BYTES: Final = 128 << 10  # most bytes of a row's values that stay on the stack between stages


@described("CpuRegion", "region schedule")
@dataclass(frozen=True, slots=True)
class RegionKernel(KernelCode):
    """The code of a region whose numbers from ``ARGUMENT`` on are arguments. The arguments are the inputs, the outputs,
    then these numbers."""

    region: Region
    schedule: Schedule

    def emit(self, code: Code) -> None:
        Emitter(code, self.region, self.schedule, *arguments_of(code, self.region, self.schedule.block)).run()


def arguments_of(code: Code, region: Region, *others: int) -> tuple[list[Any], list[Any]]:
    """The pointers of a region's inputs and outputs, moved by offsets that are arguments, and the arguments by
    value; ``others``: numbers of the kernel that may be arguments, too."""
    accesses = (*region.inputs, *region.outputs)
    numbers = [code.scalar(len(accesses) + i, DType.I64) for i in range(argument_count(region, *others))]
    pointers = [code.argument(i) for i in range(len(accesses))]
    with code.at_start():
        for place, access in enumerate(accesses):
            if access.offset >= ARGUMENT:
                offset = numbers[access.offset - ARGUMENT]
                pointers[place] = code.at(pointers[place], offset, memory_type(access.dtype))
    return pointers, numbers


@dataclass(frozen=True, slots=True)
class _LineEnd:
    """A vector on the stack, ``copy``, for the elements of an argument from ``first`` to the end of its only line."""

    code: Code
    type: Any
    argument: Any
    copy: Any
    first: Any

    def fill(self, lanes: int, last: Any) -> None:
        """Copies the elements of a line of ``last``; in lanes after it, the last one."""
        code, b = self.code, self.code.b
        with code.loop(lanes) as lane:
            at = code.least(code.add(self.first, lane), b.sub(last, I64(1)))
            b.store(b.load(code.at(self.argument, at, self.type), typ=self.type), code.at(self.copy, lane, self.type))

    def write_back(self, last: Any) -> None:
        """Copies the elements of a line of ``last`` to the argument."""
        code, b = self.code, self.code.b
        with code.loop(b.sub(last, self.first)) as lane:
            value = b.load(code.at(self.copy, lane, self.type), typ=self.type)
            b.store(value, code.at(self.argument, code.add(self.first, lane), self.type))

    def unless(self, in_place: Any) -> Any:
        """The argument if ``in_place``; else the pointer by which the first element of the copy has its own index."""
        b = self.code.b
        return b.select(in_place, self.argument, self.code.at(self.copy, b.neg(self.first), self.type))


class Emitter:
    """``pointers``: of the inputs and the outputs, moved by offsets that are arguments. ``numbers``: the arguments by
    value."""

    def __init__(
        self, code: Code, region: Region, schedule: Schedule, pointers: Sequence[Any], numbers: Sequence[Any] = ()
    ) -> None:
        self.code, self.b, self.region = code, code.b, region
        self.shape, self.facts, self.numbers = schedule, RegionFacts(region), numbers
        count = len(region.inputs)
        self.sizes = [self.number(size) for size in region.outer]
        self.inputs, self.outputs = list(pointers[:count]), list(pointers[count:])
        # Scalar inputs of the whole region are loaded once. No output may overlap one unless the region has a single
        # element.
        one, read = Values(code, 1), self.facts.read
        self.uniform = [
            one.load(p, self.offset(a), 0, a.dtype) if n in read and not any(a.strides) else None
            for n, (a, p) in enumerate(zip(region.inputs, self.inputs))
        ]
        row_bytes = math.prod(region.inner) * VECTOR_BYTES // (1 if self.shape.columns else self.shape.lanes)
        self.kept = self.facts.repeated if row_bytes * len(self.facts.repeated) <= _MAX_KEPT_BYTES else {}

    def number(self, value: int) -> Any:
        """A number of the region: itself, or an argument's value."""
        return value if value < ARGUMENT else self.numbers[value - ARGUMENT]

    def offset(self, access: Access) -> int:
        """The offset of an access, except one by which its pointer was moved."""
        return access.offset if access.offset < ARGUMENT else 0

    def run(self) -> None:
        code, region, shape = self.code, self.region, self.shape
        if not shape.columns:
            self._row_blocks()
            return
        last = self.sizes[-1] if region.outer else 1
        points, block = self._product(self.sizes[:-1]), self.number(shape.block)
        if shape.split:
            with code.loop(code.last, code.first) as task:
                point, number = (0, task) if len(self.sizes) == 1 else code.divmod(task, self._pieces(last))
                start = code.mul(number, shape.block)
                outer = code.unravel(point, self.sizes[:-1])
                self._columns(outer, start, code.least(code.add(start, shape.block), last), last)
            return
        with code.loop(code.last, code.first) as task:
            start = code.mul(task, block)
            stop = code.least(code.add(start, block), points)
            with self._points(start, stop, self.sizes[:-1]) as outer:
                self._columns(outer, 0, last, last)

    def _row_blocks(self) -> None:
        code = self.code
        with code.loop(code.last, code.first) as task:
            start = code.mul(task, self.shape.block)
            stop = code.least(code.add(start, self.shape.block), self._product(self.sizes))
            with self._points(start, stop, self.sizes) as outer:
                Row(self, outer, 1, self.shape.lanes).run()

    @contextmanager
    def _points(self, start: Any, stop: Any, sizes: list[Any]) -> Iterator[list[Any]]:
        """A loop over the points from ``start`` to ``stop`` of outer axes, and the index of a point along each axis:
        counted from point to point, so that the sizes divide only once."""
        code = self.code
        index = [code.int(x) for x in code.unravel(start, sizes)]
        with code.loop(stop, start, carried=index):
            here, step = [*index], I64(1)
            yield here
            for axis in reversed(range(len(sizes))):
                index[axis] = self.b.add(here[axis], step)
                if axis:
                    over = self.b.icmp_signed("==", index[axis], code.int(sizes[axis]))
                    index[axis] = self.b.select(over, I64(0), index[axis])
                    step = self.b.zext(over, I64)

    def _pieces(self, size: Any) -> Any:
        """The number of tasks of a line of ``size`` elements."""
        block = self.shape.block
        return -(-size // block) if isinstance(size, int) else self.b.udiv(self.code.add(size, block - 1), I64(block))

    def _product(self, sizes: Sequence[Any]) -> Any:
        return functools.reduce(self.code.mul, sizes, 1)

    def _columns(self, outer: list[Any], start: Any, stop: Any, last: Any) -> None:
        """Rows start..stop along the last outer axis of ``last`` elements, ``lanes`` at a time."""
        if not self.region.outer:
            Row(self, [], 1, 1).run()
        elif self.shape.swept:
            self._sweep(outer, start, stop, last)
        elif self.shape.rest is None:
            self._line(start, stop, last)
        else:
            self._vectors(start, stop, last, lambda column, lanes: Row(self, [*outer, column], lanes, lanes).run())

    def _line(self, start: Any, stop: Any, last: Any) -> None:
        """The elements start..stop of a single line of ``last`` elements. The code of whole vectors runs twice: where
        the line is, and for its rest in copies on the stack, filled with the last element."""
        code, b, lanes = self.code, self.b, self.shape.lanes
        rest = b.and_(last, I64(-lanes))  # where it begins
        has_rest = b.and_(b.icmp_signed("==", stop, last), b.icmp_signed("<", rest, last))
        inputs = [self._line_end(a, p, rest) for a, p in zip(self.region.inputs, self.inputs)]
        outputs = [self._line_end(a, p, rest) for a, p in zip(self.region.outputs, self.outputs)]
        with b.if_then(has_rest):
            for end in filter(None, inputs):
                end.fill(lanes, last)
        with code.loop(b.select(has_rest, I64(2), I64(1))) as part:
            in_place = b.icmp_signed("==", part, I64(0))
            ours = self.inputs, self.outputs
            self.inputs = [end.unless(in_place) if end else p for end, p in zip(inputs, self.inputs)]
            self.outputs = [end.unless(in_place) if end else p for end, p in zip(outputs, self.outputs)]
            part_stop = b.select(in_place, code.least(stop, rest), b.add(rest, I64(1)))
            with code.loop(part_stop, b.select(in_place, code.int(start), rest), lanes) as column:
                Row(self, [column], lanes, lanes).run()
            self.inputs, self.outputs = ours
        with b.if_then(has_rest):
            for end in filter(None, outputs):
                end.write_back(last)

    def _line_end(self, access: Access, pointer: Any, first: Any) -> _LineEnd | None:
        """None for an argument with one element for all of a line."""
        if not access.strides[0]:
            return None
        type = memory_type(access.dtype)
        return _LineEnd(self.code, type, pointer, self.code.local(type, self.shape.lanes, align=VECTOR_BYTES), first)

    def _sweep(self, outer: list[Any], start: Any, stop: Any, last: Any) -> None:
        """Runs the element stage line by line, then the row stages."""
        code, stage = self.code, self.region.stages[reduced_at(self.region)]
        dtypes = [self.facts.dtypes[r.value] for r in stage.reduces]
        count = -(-(self.shape.block if self.shape.split else last) // self.shape.lanes) * self.shape.lanes
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
                found = Row(self, [*outer, column], lanes, lanes).reduced(index, number)
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

    def _vectors(self, start: Any, stop: Any, last: Any, work: Callable[[Any, int], None]) -> None:
        """``work`` for each vector of the lanes start..stop, and for the rest at the end of the axis."""
        code, lanes = self.code, self.shape.lanes
        tail = self.shape.rest
        assert tail is not None
        whole = last - tail if isinstance(last, int) else code.b.sub(last, I64(tail))
        if not isinstance(whole, int) or whole:
            end = code.least(stop, whole) if not isinstance(stop, int) else whole
            with code.loop(end, start, lanes) as column:
                work(column, lanes)
        if not tail:
            return
        if isinstance(stop, int):
            work(whole, tail)
            return
        with self.b.if_then(self.b.icmp_signed("==", stop, code.int(last))):
            work(whole, tail)
