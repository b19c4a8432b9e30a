"""Kernels of rows reduced by teams (thread groups)."""

from __future__ import annotations

from typing import Final

from dslc.compiler.codegen.cuda.hardware import WARP
from dslc.compiler.codegen.cuda.region.reduction.reduction import Reduction
from dslc.compiler.codegen.cuda.region.source import Source
from dslc.compiler.codegen.cuda.region.thread_mapping import Rows
from dslc.compiler.codegen.cuda.region.writer import Index, power_of_two
from dslc.compiler.codegen.region.ir import Access, Region, Scan
from dslc.compiler.codegen.region.queries import used_values

_MAX_LOADED: Final = 64  # elements loaded at once that fit the usual registers


def rows_source(name: str, region: Region, schedule: Rows) -> Source:
    """The source of a kernel of rows."""
    return RowReduction(name, region, schedule).source()


class RowReduction(Reduction):
    def __init__(self, name: str, region: Region, schedule: Rows) -> None:
        super().__init__(name, region, schedule.vector, schedule.held, schedule.chunks)
        self.schedule, self.lanes = schedule, 1

    def threads(self) -> int:
        return self.schedule.team * self.schedule.teams

    def resident(self) -> int:
        """Half as many if the elements that a thread loads at once would fill the usual number of registers."""
        stages = [used_values(stage) for stage in self.region.stages if stage.element]
        moving = {n for n, access in enumerate(self.region.inputs) if access.moves(self.split)}
        loaded = max((len(used & moving) for used in stages), default=0) * self.held * self.vector
        return super().resident() if loaded <= _MAX_LOADED else max(1, super().resident() // 2)

    @property
    def covers(self) -> int:
        return self.schedule.team * self.held * self.vector * self.chunks

    def find_rows(self) -> None:
        row = self.team()
        self.guard = self.text.below(row, self.schedule.rows) if self.schedule.rows % self.schedule.teams else None
        self.outer = self.text.unravel(row, self.region.outer)

    def team(self) -> Index:
        """The index of the thread's team in the grid; also sets the thread's index in the team."""
        text, s = self.text, self.schedule
        team: Index = text.here("block")
        thread: Index = text.here("thread")
        if s.teams > 1:
            part, thread = text.divmod(thread, s.team)
            team = text.plus(text.times(team, s.teams), part)
        self.member = thread
        self.leader = text.below(thread, 1) if s.team > 1 else None
        return team

    def vector_starts(self, chunk: Index) -> Index:
        step = self.schedule.team * self.vector
        first = self.text.plus(self.text.times(self.member, self.vector), self.text.times(chunk, step * self.held))
        return self.text.ramp(first, self.held, step)

    def element_indices(self, starts: Index) -> Index:
        return self.text.ramp(starts, self.vector, 1)

    def stride_in_vector(self, access: Access) -> int:
        if not self.region.inner:
            return 0
        return access.strides[-1] + sum(own.strides[-1] * own.steps[-1] for own in access.mixed_radix)

    def _other_strides(self, access: Access) -> tuple[int, ...]:
        steps = [step for own in access.mixed_radix for step in (own.steps[:-1] if own.strides[-1] else own.steps)]
        return (*access.strides[:-1], *steps)

    def _crosses_edges(self, access: Access) -> bool:
        along = [own for own in access.mixed_radix if own.strides[-1]]
        return any(power_of_two(own.sizes[-1], own.offset, *own.strides[:-1]) % self.vector for own in along)

    def running(self, scan: Scan, value: str) -> str:
        team = self.schedule.team
        assert team <= WARP and self.held == 1
        return self.text.set(self.text.call("running", (scan.combine, team, self.vector, int(scan.exclusive)), value))

    def total(self, combine: str, text: str) -> str:
        team = self.schedule.team
        if team > 1:
            text = self.text.set(self.text.call("group", (combine, min(team, WARP)), text))
        if team > WARP:
            self.slots += 1
            text = self.text.set(self._over_warps(combine, team // WARP, text))
        return text

    def _over_warps(self, combine: str, count: int, text: str) -> str:
        return self.text.call("warps", (combine, count, self.slots, 1), text)
