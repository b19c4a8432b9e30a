"""Kernels of column reductions: each thread handles a vector of rows."""

from __future__ import annotations

from dslc.compiler.codegen.cuda.hardware import LOAD_BYTES
from dslc.compiler.codegen.cuda.region.reduction.reduction import Reduction
from dslc.compiler.codegen.cuda.region.schedule import draws
from dslc.compiler.codegen.cuda.region.source import Source
from dslc.compiler.codegen.cuda.region.thread_mapping import Columns
from dslc.compiler.codegen.cuda.region.writer import Index
from dslc.compiler.codegen.region.ir import Access, Region, Scan


def columns_source(name: str, region: Region, schedule: Columns) -> Source:
    """The kernel's source."""
    return ColumnReduction(name, region, schedule).source()


class ColumnReduction(Reduction):
    def __init__(self, name: str, region: Region, schedule: Columns) -> None:
        super().__init__(name, region, schedule.vector, schedule.held, schedule.chunks)
        self.schedule, self.lanes = schedule, schedule.vector

    def threads(self) -> int:
        return self.schedule.width * self.schedule.parts

    def resident(self) -> int:
        """Half as many if threads draw random numbers for vectors of two loads: they hold twice as much in half as
        large blocks."""
        most = super().resident()
        moved = (a for a in (*self.region.inputs, *self.region.outputs) if a.moves(self.split))
        wide = self.vector * max((a.dtype.itemsize for a in moved), default=1) > LOAD_BYTES
        return max(1, most // 2) if wide and draws(self.region) else most

    @property
    def ordered(self) -> bool:
        return True

    @property
    def covers(self) -> int:
        return self.schedule.parts * self.held * self.chunks

    def find_rows(self) -> None:
        text, s = self.text, self.schedule
        part, across = text.divmod(text.here("thread"), s.width)
        line, piece = text.divmod(text.here("block"), s.blocks)
        first = text.times(text.plus(text.times(piece, s.width), across), s.vector)
        self.guard = text.below(text.known(first), s.line) if s.line % (s.width * s.vector) else None
        self.part = part
        self.leader = text.below(text.known(part), 1) if s.parts > 1 else None
        self.outer = [*text.unravel(line if s.lines > 1 else 0, self.region.outer[:-1]), first]

    def vector_starts(self, chunk: Index) -> Index:
        parts = self.schedule.parts
        first = self.text.plus(self.part, self.text.times(chunk, parts * self.held))
        return self.text.ramp(first, self.held, parts)

    def element_indices(self, starts: Index) -> Index:
        return self.text.set(self.text.call("each", (self.vector,), starts)) if self.vector > 1 else starts

    def stride_in_vector(self, access: Access) -> int:
        return access.strides[self.split - 1]

    def _other_strides(self, access: Access) -> tuple[int, ...]:
        steps = [step for own in access.mixed_radix for step in own.steps]
        return (*access.strides[: self.split - 1], *access.strides[self.split :], *steps)

    def running(self, scan: Scan, value: str) -> str:
        assert self.schedule.parts == self.held == 1, "a scan needs one thread per column"
        return self._identities(scan.combine, self.dtypes[scan.value], self.lanes) if scan.exclusive else value

    def total(self, combine: str, text: str) -> str:
        if self.schedule.parts == 1:
            return text
        self.slots += 1
        for_all = int(not self.totals_for_leaders)
        across = (combine, self.schedule.parts, self.schedule.width, self.slots, for_all)
        return self.text.set(self.text.call("across", across, text))
