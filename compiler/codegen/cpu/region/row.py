"""Emits one row of a region, or a vector of adjacent rows: its stages, one after the other."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final

from dslc.compiler.codegen.cpu.llvm.values import Values
from dslc.compiler.codegen.cpu.llvm.writer import VECTOR_BYTES, Code, Reg, lane_type
from dslc.compiler.codegen.cpu.region.accumulate import Accumulator, Running
from dslc.compiler.codegen.cpu.region.element_stage import Elements, ElementStage
from dslc.compiler.codegen.cpu.region.facts import costly
from dslc.compiler.codegen.cpu.region.lanes import Lanes
from dslc.compiler.codegen.cpu.region.schedule import reduced_at
from dslc.compiler.codegen.region.ir import Access, Scan, Stage
from dslc.compiler.ir.types import DType

if TYPE_CHECKING:
    from dslc.compiler.codegen.cpu.region.kernel import Emitter

_PARTIAL_RESULTS: Final = 4  # partial results of a cheap reduction
_MAX_CHEAP_VALUES: Final = 6  # most values of a stage for which that pays


class Row:
    """One row, or ``lanes`` adjacent rows, the first of which has the index ``outer``. ``width``: lanes of a vector."""

    def __init__(self, emitter: Emitter, outer: list[Any], lanes: int, width: int) -> None:
        self.emitter, self.code, self.region = emitter, emitter.code, emitter.region
        self.outer, self.lanes, self.width = outer, lanes, width
        self.columns = emitter.shape.columns
        self.values = Values(self.code, lanes)
        self.split = len(self.region.outer)
        self.bases = [self._base(a) for a in self.region.inputs]
        self.out_bases = [self._base(a) for a in self.region.outputs]
        self.known: list[Reg | None] = [self._input(n) for n in range(len(self.region.inputs))]
        self.known.append(None)
        self.known += [self._outer_index(axis) for axis in self.region.indices]
        self._kept: dict[tuple[int, int], Any] = {}

    def run(self) -> None:
        for place, stage in enumerate(self.region.stages):
            if stage.element:
                self._element_stage(place, stage)
            else:
                self._row_stage(stage)

    def reduced(self, index: list[Any], number: Any) -> list[Reg]:
        """The operands that one element of each of ``lanes`` rows contributes to the reductions of the only element
        stage."""
        place, stage = self._before()
        known = ElementStage(self, place, stage, {}, []).run(Elements(index, number, self.lanes, in_one_row=False))
        operands = [known[reduce.value] for reduce in stage.reduces]
        return [self.values.in_lanes(reg) for reg in operands if reg is not None]

    def finish(self, totals: list[Reg]) -> None:
        """Runs the row stages around the only element stage, whose reductions are given."""
        place, stage = self._before()
        self.known += [*[None] * len(stage.computed), *totals]
        for after in self.region.stages[place + 1 :]:
            self._row_stage(after)

    def _before(self) -> tuple[int, Stage]:
        """Runs the row stages before the only element stage; returns its number and itself."""
        place = reduced_at(self.region)
        for stage in self.region.stages[:place]:
            self._row_stage(stage)
        return place, self.region.stages[place]

    def _row_stage(self, stage: Stage) -> None:
        rows = Lanes(self.emitter, self.values, self.known, self.bases, self.row_stride)
        for let in stage.computed:
            assert not isinstance(let, Scan), "only element stages have scans"
            self.known.append(rows.compute(let))
        rows.store(stage, self.out_bases)

    def _input(self, number: int) -> Reg | None:
        """An input with one value per row; None for other inputs."""
        emitter, access, uniform = self.emitter, self.region.inputs[number], self.emitter.uniform[number]
        if uniform is not None:
            return uniform
        if number not in emitter.facts.read or any(access.strides[self.split :]):
            return None
        pointer = emitter.inputs[number]
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

    def row_stride(self, access: Access) -> int:
        """How many elements of an argument a row is from the next, if the lanes are rows."""
        return access.strides[self.split - 1] if self.split and self.columns else 0

    def _base(self, access: Access, axes: int | None = None) -> Any:
        """The index at which an argument's row begins; ``axes``: the outer axes that count, by default all."""
        base: Any = self.emitter.offset(access)
        for index, stride in list(zip(self.outer, access.strides))[:axes]:
            base = self.code.add(base, self.code.mul(index, self.emitter.number(stride)))
        return base

    def _element_stage(self, place: int, stage: Stage) -> None:
        """Loops over the inner axes, and the totals of their reductions."""
        inner = self.region.inner
        scans, ways = self._scans(stage), self._ways(stage)
        totals = self._accumulators(stage, ways)
        body = ElementStage(self, place, stage, scans, totals)
        if self.columns:
            with Nest(self.code, inner) as (index, number):
                body.run(Elements(index, number, self.lanes, in_one_row=False))
        else:
            with Nest(self.code, inner[:-1]) as (index, number):
                self._along(body, index, number, ways)
        self.known += [None] * len(stage.computed)
        self.known += [t.lanes() if self.columns else t.total() for t in totals]

    def _scans(self, stage: Stage) -> dict[int, Running]:
        """The scans of an element stage, by the numbers of its values."""
        dtypes, rows = self.emitter.facts.dtypes, self.lanes if self.columns else 1
        return {
            number: Running(self.code, let.combine, dtypes[let.value], let.exclusive, rows)
            for number, let in enumerate(stage.computed)
            if isinstance(let, Scan)
        }

    def _ways(self, stage: Stage) -> int:
        """The number of partial results of each reduction: several if an element takes less time than an addition
        waits for the one before."""
        inner = self.region.inner
        vectors = inner[-1] // self.width if inner and not self.columns else 0
        if not stage.reduces or vectors < 2 * _PARTIAL_RESULTS or len(stage.computed) > _MAX_CHEAP_VALUES:
            return 1
        is_cheap = not any(isinstance(let, Scan) or costly(let) for let in stage.computed)
        return _PARTIAL_RESULTS if is_cheap else 1

    def _accumulators(self, stage: Stage, ways: int) -> list[Accumulator]:
        dtypes, width = self.emitter.facts.dtypes, self.lanes if self.columns else self.width
        return [Accumulator(self.code, r.combine, dtypes[r.value], width, ways) for r in stage.reduces]

    def _along(self, body: ElementStage, index: list[Any], number: Any, ways: int) -> None:
        """The elements along the last inner axis: several vectors at a time, then single vectors, then the rest that
        fills none."""
        size, lanes = self.region.inner[-1], self.width
        number = self.code.mul(number, size)

        def run(start: Any, count: int, way: int) -> None:
            body.run(Elements([*index, start], self.code.add(number, start), count, in_one_row=True), way)

        in_vectors = size - size % lanes
        unrolled = in_vectors - in_vectors % (lanes * ways)
        if unrolled:
            with self.code.loop(unrolled, 0, lanes * ways) as start:
                for way in range(ways):
                    run(self.code.add(start, way * lanes), lanes, way)
        if in_vectors > unrolled:
            with self.code.loop(in_vectors, unrolled, lanes) as start:
                run(start, lanes, 0)
        if size % lanes:
            run(in_vectors, size % lanes, 0)

    def kept_memory(self, first: tuple[int, int], dtype: DType) -> Any:
        """The stack memory that holds a value for all elements of a row (of each of ``lanes`` rows) between two
        stages; ``first``: the stage that computes the value, and the value's number in it."""
        if first not in self._kept:
            count = math.prod(self.region.inner) * (self.lanes if self.columns else 1)
            self._kept[first] = self.code.local(lane_type(dtype), count, align=VECTOR_BYTES)
        return self._kept[first]


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
