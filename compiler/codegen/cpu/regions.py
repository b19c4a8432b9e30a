"""A region as a kernel.

Vectors run along the last inner axis where there is one and some input is dense there; else along the last outer axis,
each lane being a row of its own (pointwise regions, and reductions of columns). What is left of an axis is a shorter
vector, whose length is known, so there are no loops over single elements.

A sum over lanes keeps one vector of partial sums and adds its halves at the end; over columns it adds in order. Both
depend on the shape alone. The tasks of a kernel are blocks of rows, of about ``_GRAIN`` elements.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Final

from llvmlite import ir

from dslc.compiler.codegen.cpu.code import I8, I64, VECTOR_BYTES, Code, memory_type, wide
from dslc.compiler.codegen.cpu.values import Reg, Values
from dslc.compiler.codegen.region import Access, Reduce, Region, Stage
from dslc.compiler.ir.types import DType

_GRAIN: Final = 8192  # elements a task, about


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
    dense_inner = bool(region.inner) and any(a.strides[-1] == 1 for a in region.inputs)
    dense_outer = any(a.strides[len(region.outer) - 1] == 1 for a in (*region.inputs, *region.outputs) if region.outer)
    columns = not region.inner or (not dense_inner and bool(region.outer) and dense_outer)
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


def tasks_of(region: Region) -> int:
    """0 where there is nothing to write."""
    return cut(region).tasks if region.rows else 0


def emit_region(code: Code, region: Region) -> None:
    """Arguments are the inputs, then the outputs."""
    _Printer(code, region).run()


class _Printer:
    def __init__(self, code: Code, region: Region) -> None:
        self.code, self.b, self.region = code, code.b, region
        self.shape = cut(region)
        count = len(region.inputs)
        self.inputs = [code.argument(i) for i in range(count)]
        self.outputs = [code.argument(count + i) for i in range(len(region.outputs))]
        # What is one number for the whole region is read once: no output may lie on it but where there is one element.
        one = Values(code, 1)
        self.uniform = [
            None if any(a.strides) else one.load(p, a.offset, 0, a.dtype) for a, p in zip(region.inputs, self.inputs)
        ]

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
                _Row(self, code.unravel(row, region.outer), 1, self.shape.lanes).run()

    def _columns(self, outer: list[Any], start: Any, stop: Any, last: int) -> None:
        """Rows start..stop along the last outer axis of ``last`` elements, ``lanes`` at a time."""
        code, lanes = self.code, self.shape.lanes
        if not self.region.outer:
            _Row(self, [], 1, 1).run()
            return
        tail = last % lanes
        whole = last - tail
        if whole:
            end = code.least(stop, whole) if not isinstance(stop, int) else whole
            with code.loop(end, start, lanes) as column:
                _Row(self, [*outer, column], lanes, lanes).run()
        if not tail:
            return
        if isinstance(stop, int):
            _Row(self, [*outer, whole], tail, tail).run()
            return
        with self.b.if_then(self.b.icmp_signed("==", stop, I64(last))):
            _Row(self, [*outer, whole], tail, tail).run()


class _Row:
    """One row, or ``lanes`` rows side by side, whose first has the index ``outer``."""

    def __init__(self, printer: _Printer, outer: list[Any], lanes: int, width: int) -> None:
        self.p, self.code, self.b, self.region = printer, printer.code, printer.b, printer.region
        self.outer, self.lanes, self.width = outer, lanes, width
        self.columns = printer.shape.columns
        self.values = Values(self.code, lanes)
        self.known: list[Reg | None] = [None] * (len(self.region.inputs) + 1)
        self.split = len(self.region.outer)
        self.bases = [self._base(a) for a in self.region.inputs]
        self.out_bases = [self._base(a) for a in self.region.outputs]

    def run(self) -> None:
        for number, access in enumerate(self.region.inputs):
            uniform = self.p.uniform[number]
            if uniform is not None:
                self.known[number] = Reg(self.values.splat(uniform.value), uniform.dtype)
            elif not any(access.strides[self.split :]):
                self.known[number] = self.values.load(
                    self.p.inputs[number], self.bases[number], self._row_stride(access), access.dtype
                )
        for stage in self.region.stages:
            if stage.element:
                self._element_stage(stage)
            else:
                self._compute(stage, self.known, self.values)
                self._stores(stage, self.known, self.values, self.out_bases, [self._row_stride(a) for a in self._outs])

    @property
    def _outs(self) -> tuple[Access, ...]:
        return self.region.outputs

    def _row_stride(self, access: Access) -> int:
        return access.strides[self.split - 1] if self.split and self.columns else 0

    def _base(self, access: Access) -> Any:
        found: Any = access.offset
        for index, stride in zip(self.outer, access.strides):
            found = self.code.add(found, self.code.mul(index, stride))
        return found

    def _compute(self, stage: Stage, known: list[Reg | None], values: Values) -> None:
        for let in stage.lets:
            known.append(values.evaluate(let.expr, known, let.dtype))

    def _stores(
        self, stage: Stage, known: list[Reg | None], values: Values, bases: list[Any], strides: list[int]
    ) -> None:
        for store in stage.stores:
            reg = known[store.value]
            assert reg is not None and reg.dtype is self._outs[store.output].dtype
            values.store(reg, self.p.outputs[store.output], bases[store.output], strides[store.output])
        for flag in stage.raises:
            reg = known[flag.value]
            assert reg is not None
            mask = reg.value
            if values.lanes > 1:
                bits = self.b.bitcast(mask, ir.IntType(values.lanes))
                mask = self.b.icmp_unsigned("!=", bits, ir.Constant(bits.type, 0))
            with self.b.if_then(mask, likely=False):
                self.b.store(ir.Constant(I8, 1), self.p.outputs[flag.output], align=1)

    def _element_stage(self, stage: Stage) -> None:
        first = len(self.known) + len(stage.lets)
        places = [self._accumulator(stage, r, first) for r in stage.reduces]
        inner = self.region.inner
        if self.columns:
            with self._loops(inner) as (index, number):
                self._elements(stage, index, number, self.lanes, 0, places)
        else:
            with self._loops(inner[:-1]) as (index, number):
                self._along(stage, index, number, places)
        self.known += [None] * len(stage.lets)
        for reduce, (place, start) in zip(stage.reduces, places):
            self.known.append(self._total(reduce, place, start))

    def _loops(self, sizes: tuple[int, ...]) -> Any:
        return _nest(self.code, sizes)

    def _along(self, stage: Stage, index: list[Any], number: Any, places: list[Any]) -> None:
        size, lanes = self.region.inner[-1], self.width
        whole = size - size % lanes
        number = self.code.mul(number, size)
        if whole:
            with self.code.loop(whole, 0, lanes) as at:
                self._elements(stage, [*index, at], self.code.add(number, at), lanes, 1, places)
        if size % lanes:
            self._elements(stage, [*index, whole], self.code.add(number, whole), size % lanes, 1, places)

    def _elements(self, stage: Stage, index: list[Any], number: Any, lanes: int, along: int, places: list[Any]) -> None:
        """The stage for ``lanes`` elements of one row (``along``), or one element of each of ``lanes`` rows."""
        values = Values(self.code, lanes)
        known: list[Reg | None] = []
        used = self._used(stage)
        for n, access in enumerate(self.region.inputs):
            row = self.known[n]
            if row is not None:
                known.append(Reg(values.splat(row.value), row.dtype) if along else row)
                continue
            if n not in used:
                known.append(None)
                continue
            stride = access.strides[-1] if along else self._row_stride(access)
            known.append(
                values.load(self.p.inputs[n], self._inside(self.bases[n], access, index), stride, access.dtype)
            )
        if self.region.index in used:
            counted = values.counting(number) if along else Reg(values.splat(self.code.int(number)), DType.I64)
            known.append(counted)
        else:
            known.append(None)
        for row in self.known[self.region.index + 1 :]:
            known.append(row if row is None or not along else Reg(values.splat(row.value), row.dtype))
        self._compute(stage, known, values)
        if stage.stores or stage.raises:
            bases = [self._inside(b, a, index) for b, a in zip(self.out_bases, self._outs)]
            strides = [a.strides[-1] if along else self._row_stride(a) for a in self._outs]
            self._stores(stage, known, values, bases, strides)
        for reduce, (place, start) in zip(stage.reduces, places):
            reg = known[reduce.value]
            assert reg is not None
            self._accumulate(reduce, reg, place, start, lanes)

    def _inside(self, base: Any, access: Access, index: list[Any]) -> Any:
        for i, stride in zip(index, access.strides[self.split :]):
            base = self.code.add(base, self.code.mul(i, stride))
        return base

    def _used(self, stage: Stage) -> set[int]:
        found = {r.value for r in stage.reduces}
        found |= {s.value for s in stage.stores} | {r.value for r in stage.raises}
        stack = [let.expr for let in stage.lets]
        while stack:
            expr = stack.pop()
            if expr.function == "arg":
                found.add(expr.index)
            stack.extend(expr.args)
        return found

    def _dtype(self, stage: Stage, reduce: Reduce, first: int) -> DType:
        """The dtype of what is reduced: a let of this stage, or an input."""
        if reduce.value >= first - len(stage.lets):
            return stage.lets[reduce.value - first + len(stage.lets)].dtype
        assert reduce.value < len(self.region.inputs)
        return self.region.inputs[reduce.value].dtype

    def _accumulator(self, stage: Stage, reduce: Reduce, first: int) -> tuple[Any, Reg]:
        dtype = self._dtype(stage, reduce, first)
        width = self.lanes if self.columns else self.width
        values = Values(self.code, width)
        start = values.const(_identity(reduce.combine, dtype), dtype)
        place = self.code.local(wide(memory_type(dtype), width))
        self.b.store(start.value, place)
        return place, start

    def _accumulate(self, reduce: Reduce, reg: Reg, place: Any, start: Reg, lanes: int) -> None:
        width = self.lanes if self.columns else self.width
        values = Values(self.code, width)
        value = reg.value
        if lanes != width:  # what is missing has no effect
            if lanes == 1:
                value = self.b.insert_element(start.value, value, I64(0))
            else:
                pad = Values(self.code, lanes).const(_identity(reduce.combine, reg.dtype), reg.dtype).value
                picks = [min(i, lanes) for i in range(width)]
                value = self.b.shuffle_vector(value, pad, ir.Constant(wide(ir.IntType(32), width), picks))
        old = Reg(self.b.load(place, typ=start.value.type), reg.dtype)
        self.b.store(values.combine(reduce.combine, old, Reg(value, reg.dtype)).value, place)

    def _total(self, reduce: Reduce, place: Any, start: Reg) -> Reg:
        reg = Reg(self.b.load(place, typ=start.value.type), start.dtype)
        if self.columns:
            return reg
        width = self.width
        while width > 1:
            width //= 2
            low, high = (
                self.b.shuffle_vector(reg.value, reg.value, ir.Constant(wide(ir.IntType(32), width), picks))
                if width > 1
                else self.b.extract_element(reg.value, I64(picks[0]))
                for picks in (list(range(width)), list(range(width, 2 * width)))
            )
            reg = Values(self.code, width).combine(reduce.combine, Reg(low, reg.dtype), Reg(high, reg.dtype))
        return reg


def _identity(combine: str, dtype: DType) -> float | int:
    if combine == "sum":
        return 0.0 if dtype.is_float else 0
    if dtype.is_float:
        return -math.inf if combine == "max" else math.inf
    if dtype is DType.U8:
        return 0 if combine == "max" else 255
    half = 1 << (8 * dtype.itemsize - 1)
    return -half if combine == "max" else half - 1


class _nest:
    """Loops over all of ``sizes``: gives the index on each axis and the row-major number."""

    def __init__(self, code: Code, sizes: tuple[int, ...]) -> None:
        self.code, self.sizes = code, sizes
        self.open: list[Any] = []

    def __enter__(self) -> tuple[list[Any], Any]:
        index: list[Any] = []
        number: Any = 0
        for size in self.sizes:
            loop = self.code.loop(size)
            index.append(loop.__enter__())
            self.open.append(loop)
            number = self.code.add(self.code.mul(number, size), index[-1])
        return index, number

    def __exit__(self, *error: Any) -> None:
        while self.open:
            self.open.pop().__exit__(*error)
