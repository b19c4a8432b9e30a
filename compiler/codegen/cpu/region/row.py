"""Emits one row of a region, or a vector of adjacent rows: its stages, one after the other."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from llvmlite import ir

from dslc.compiler.codegen.cpu.llvm.values import Values, is_vector
from dslc.compiler.codegen.cpu.llvm.writer import I8, VECTOR_BYTES, Code, Reg, lane_type
from dslc.compiler.codegen.cpu.region.accumulate import Accumulator, Running
from dslc.compiler.codegen.cpu.region.facts import costly
from dslc.compiler.codegen.cpu.region.schedule import reduced_at
from dslc.compiler.codegen.region.ir import Access, Fetch, Let, Scan, Stage
from dslc.compiler.codegen.region.queries import used_values
from dslc.compiler.ir.types import DType

if TYPE_CHECKING:
    from dslc.compiler.codegen.cpu.region.kernel import Emitter

_PARTIAL_RESULTS: Final = 4  # partial results of a cheap reduction
_MAX_CHEAP_VALUES: Final = 6  # most values of a stage for which that pays


class Row:
    """One row, or ``lanes`` adjacent rows, the first of which has the index ``outer``. ``width``: lanes of a vector."""

    def __init__(self, emitter: Emitter, outer: list[Any], lanes: int, width: int) -> None:
        self.p, self.code, self.b, self.region = emitter, emitter.code, emitter.b, emitter.region
        self.outer, self.lanes, self.width = outer, lanes, width
        self.columns = emitter.shape.columns
        self.values = Values(self.code, lanes)
        self.split = len(self.region.outer)
        self.bases = [self._base(a) for a in self.region.inputs]
        self.out_bases = [self._base(a) for a in self.region.outputs]
        self.known: list[Reg | None] = [self._input(n) for n in range(len(self.region.inputs))]
        self.known.append(None)
        self.known += [self._outer_index(axis) for axis in self.region.indices]
        self.kept: dict[tuple[int, int], Any] = {}

    def run(self) -> None:
        for number, stage in enumerate(self.region.stages):
            if stage.element:
                self._element_stage(number, stage)
            else:
                self._row_stage(stage)

    def reduced(self, index: list[Any], number: Any) -> list[Reg]:
        """The operands that one element of each of ``lanes`` rows contributes to the reductions of the only element
        stage."""
        at, stage = self._before()
        known = _Elements(self, at, stage, {}, []).run(index, number, self.lanes, 0)
        found = [known[reduce.value] for reduce in stage.reduces]
        return [self.values.in_lanes(reg) for reg in found if reg is not None]

    def finish(self, totals: list[Reg]) -> None:
        """Runs the row stages around the only element stage, whose reductions are given."""
        at, stage = self._before()
        self.known += [*[None] * len(stage.computed), *totals]
        for after in self.region.stages[at + 1 :]:
            self._row_stage(after)

    def _before(self) -> tuple[int, Stage]:
        """Runs the row stages before the only element stage; returns its number and itself."""
        at = reduced_at(self.region)
        for stage in self.region.stages[:at]:
            self._row_stage(stage)
        return at, self.region.stages[at]

    def _row_stage(self, stage: Stage) -> None:
        for let in stage.computed:
            self.known.append(self.value(let, self.known, self.values, self.bases, self.row_stride))
        self.stores(stage, self.known, self.values, self.out_bases, [self.row_stride(a) for a in self.outs])

    def _input(self, number: int) -> Reg | None:
        """An input with one value per row; None for other inputs."""
        access, uniform = self.region.inputs[number], self.p.uniform[number]
        if uniform is not None:
            return uniform
        if number not in self.p.facts.read or any(access.strides[self.split :]):
            return None
        pointer = self.p.inputs[number]
        if access.repeat > 1:
            base = self._base(access, self.split - 1)
            return self.values.repeated(pointer, base, self.outer[-1], access.repeat, access.dtype)
        stride = self.row_stride(access)
        return (self.values if stride else Values(self.code, 1)).load(pointer, self.bases[number], stride, access.dtype)

    def _outer_index(self, axis: int) -> Reg | None:
        if axis >= self.split:
            return None
        if self.columns and axis == self.split - 1:
            return self.values.counting(self.outer[axis])
        return Reg(self.code.int(self.outer[axis]), DType.I64)

    @property
    def outs(self) -> tuple[Access, ...]:
        return self.region.outputs

    def row_stride(self, access: Access) -> int:
        return access.strides[self.split - 1] if self.split and self.columns else 0

    def _base(self, access: Access, axes: int | None = None) -> Any:
        found: Any = self.p.offset(access)
        for index, stride in list(zip(self.outer, access.strides))[:axes]:
            found = self.code.add(found, self.code.mul(index, self.p.number(stride)))
        return found

    def value(
        self,
        let: Let | Fetch | Scan,
        known: list[Reg | None],
        values: Values,
        bases: list[Any],
        stride: Callable[[Access], int],
    ) -> Reg:
        """Computes or fetches a value; ``stride``: of an argument from lane to lane."""
        assert not isinstance(let, Scan), "only element stages have scans"
        if isinstance(let, Let):
            return values.evaluate(let.expr, known, let.dtype)
        index, mask = known[let.index], None if let.mask is None else known[let.mask]
        access = self.region.inputs[let.input]
        assert index is not None
        return values.gather(self.p.inputs[let.input], bases[let.input], stride(access), index, mask, access.dtype)

    def stores(
        self, stage: Stage, known: list[Reg | None], values: Values, bases: list[Any], strides: list[int]
    ) -> None:
        for store in stage.stores:
            reg = known[store.value]
            assert reg is not None and reg.dtype is self.outs[store.output].dtype
            values.store(values.in_lanes(reg), self.p.outputs[store.output], bases[store.output], strides[store.output])
        for flag in stage.flags:
            reg = known[flag.value]
            assert reg is not None
            mask = reg.value
            if is_vector(reg):
                bits = self.b.bitcast(mask, ir.IntType(values.lanes))
                mask = self.b.icmp_unsigned("!=", bits, ir.Constant(bits.type, 0))
            with self.b.if_then(mask, likely=False):
                place = self.code.at(self.p.outputs[flag.output], self.p.offset(self.outs[flag.output]), I8)
                self.b.store(ir.Constant(I8, 1), place, align=1)

    def _element_stage(self, place: int, stage: Stage) -> None:
        dtypes, inner = self.p.facts.dtypes, self.region.inner
        vectors = inner[-1] // self.width if inner and not self.columns else 0
        scans = {
            at: Running(self.code, let.combine, dtypes[let.value], let.exclusive, self.lanes if self.columns else 1)
            for at, let in enumerate(stage.computed)
            if isinstance(let, Scan)
        }
        cheap = len(stage.computed) <= _MAX_CHEAP_VALUES and not any(map(costly, stage.computed)) and not scans
        ways = _PARTIAL_RESULTS if stage.reduces and cheap and vectors >= 2 * _PARTIAL_RESULTS else 1
        width = self.lanes if self.columns else self.width
        totals = [Accumulator(self.code, r.combine, dtypes[r.value], width, ways) for r in stage.reduces]
        body = _Elements(self, place, stage, scans, totals)
        if self.columns:
            with Nest(self.code, inner) as (index, number):
                body.run(index, number, self.lanes, 0)
        else:
            with Nest(self.code, inner[:-1]) as (index, number):
                self._along(body, index, number, ways)
        self.known += [None] * len(stage.computed)
        self.known += [t.lanes() if self.columns else t.total() for t in totals]

    def _along(self, body: _Elements, index: list[Any], number: Any, ways: int) -> None:
        size, lanes = self.region.inner[-1], self.width
        number = self.code.mul(number, size)

        def piece(at: Any, count: int, way: int) -> None:
            body.run([*index, at], self.code.add(number, at), count, 1, way)

        whole = size - size % lanes
        unrolled = whole - whole % (lanes * ways)
        if unrolled:
            with self.code.loop(unrolled, 0, lanes * ways) as at:
                for way in range(ways):
                    piece(self.code.add(at, way * lanes), lanes, way)
        if whole > unrolled:
            with self.code.loop(whole, unrolled, lanes) as at:
                piece(at, lanes, 0)
        if size % lanes:
            piece(whole, size % lanes, 0)

    def keep(self, first: tuple[int, int], dtype: DType) -> Any:
        """The stack memory that holds a value for all elements of a row (of each of ``lanes`` rows) between two
        stages."""
        if first not in self.kept:
            count = math.prod(self.region.inner) * (self.lanes if self.columns else 1)
            self.kept[first] = self.code.local(lane_type(dtype), count, align=VECTOR_BYTES)
        return self.kept[first]


class _Elements:
    """Emits an element stage."""

    def __init__(
        self, row: Row, place: int, stage: Stage, scans: dict[int, Running], totals: list[Accumulator]
    ) -> None:
        self.row, self.code, self.place, self.stage = row, row.code, place, stage
        self.scans, self.totals, self.used = scans, totals, used_values(stage)

    def run(self, index: list[Any], number: Any, lanes: int, along: int, way: int = 0) -> list[Reg | None]:
        """The stage for ``lanes`` elements of one row (if ``along``), or one element of each of ``lanes`` rows. Returns
        all values known then."""
        row, stage, region = self.row, self.stage, self.row.region
        values = Values(self.code, lanes)

        def stride(access: Access) -> int:
            return access.strides[-1] if along else row.row_stride(access)

        bases = [self._inside(b, a, index) for b, a in zip(row.bases, region.inputs)]
        known = [*row.known]
        for n, access in enumerate(region.inputs):
            if known[n] is None and n in self.used:
                step = stride(access)
                known[n] = (values if step else Values(self.code, 1)).load(
                    row.p.inputs[n], bases[n], step, access.dtype
                )
        if region.index in self.used:
            known[region.index] = values.counting(number) if along else Reg(self.code.int(number), DType.I64)
        for n, axis in enumerate(region.indices, region.index + 1):
            if axis >= row.split and n in self.used:
                at = index[axis - row.split]
                last = along and axis == row.split + len(index) - 1
                known[n] = values.counting(at) if last else Reg(self.code.int(at), DType.I64)
        for at, let in enumerate(stage.computed):
            known.append(self._value(at, let, known, values, bases, stride, number, along))
        if stage.stores or stage.flags:
            outs = [self._inside(b, a, index) for b, a in zip(row.out_bases, row.outs)]
            row.stores(stage, known, values, outs, [stride(a) for a in row.outs])
        for reduce, total in zip(stage.reduces, self.totals):
            reg = known[reduce.value]
            assert reg is not None
            total.add(values.in_lanes(reg), lanes, way)
        return known

    def _value(
        self,
        at: int,
        let: Let | Fetch | Scan,
        known: list[Reg | None],
        values: Values,
        bases: list[Any],
        stride: Callable[[Access], int],
        number: Any,
        along: int,
    ) -> Reg:
        row = self.row
        if isinstance(let, Scan):
            reg = known[let.value]
            assert reg is not None
            reg = values.in_lanes(reg)
            return self.scans[at].along(reg, values.lanes) if along else self.scans[at].of_rows(reg)
        first = row.p.kept.get((self.place, at))
        if first is None:
            return row.value(let, known, values, bases, stride)
        assert isinstance(let, Let)
        memory, start = row.keep(first, let.dtype), number if along else self.code.mul(number, values.lanes)
        if first != (self.place, at):
            return values.load(memory, start, 1, let.dtype)
        reg = values.in_lanes(values.evaluate(let.expr, known, let.dtype))
        values.store(reg, memory, start, 1)
        return reg

    def _inside(self, base: Any, access: Access, index: list[Any]) -> Any:
        for i, stride in zip(index, access.strides[self.row.split :]):
            base = self.code.add(base, self.code.mul(i, self.row.p.number(stride)))
        return base


class Nest:
    """Loops over all of ``sizes``; yields the index on each axis and the row-major index."""

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
