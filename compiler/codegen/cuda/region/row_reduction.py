"""Kernels of rows reduced by teams (thread groups), and of sweeps down many rows."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from dslc.compiler.codegen.cuda.region.reduction import Teams
from dslc.compiler.codegen.cuda.region.row_column_sweep import ROOM, Sweep
from dslc.compiler.codegen.cuda.region.schedule import WARP, Rows
from dslc.compiler.codegen.cuda.region.source import Source
from dslc.compiler.codegen.cuda.region.stage_queries import STEP, identity, used_values
from dslc.compiler.codegen.cuda.region.values import Reg
from dslc.compiler.codegen.cuda.region.writer import Index, power_of_two
from dslc.compiler.codegen.region.ir import Access, Region, Scan
from dslc.compiler.ir.types import DType

_LOADED: Final = 64  # elements loaded at once that fit the usual registers


def rows_source(name: str, region: Region, schedule: Rows) -> Source:
    """The source of a kernel of rows."""
    return _Rows(name, region, schedule).source()


def sweep_source(name: str, sweep: Sweep) -> Source:
    """The source of a kernel of rows with sums down their columns."""
    return _Sweep(name, sweep).source()


class _Rows(Teams):
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
        return super().resident() if loaded <= _LOADED else max(1, super().resident() // 2)

    @property
    def covers(self) -> int:
        return self.schedule.team * self.held * self.vector * self.chunks

    def place(self) -> None:
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
        self.leads = text.below(thread, 1) if s.team > 1 else None
        return team

    def numbers(self, chunk: Index) -> Index:
        step = self.schedule.team * self.vector
        first = self.text.plus(self.text.times(self.member, self.vector), self.text.times(chunk, step * self.held))
        return self.text.ramp(first, self.held, step)

    def elements(self, numbers: Index) -> Index:
        return self.text.ramp(numbers, self.vector, 1)

    def along(self, access: Access) -> int:
        if not self.region.inner:
            return 0
        return access.strides[-1] + sum(own.strides[-1] * own.steps[-1] for own in access.unravelled)

    def _others(self, access: Access) -> tuple[int, ...]:
        steps = [step for own in access.unravelled for step in (own.steps[:-1] if own.strides[-1] else own.steps)]
        return (*access.strides[:-1], *steps)

    def _straddles(self, access: Access) -> bool:
        along = [own for own in access.unravelled if own.strides[-1]]
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


class _Sweep(_Rows):
    """Processes rows one after the other, with the last stage's reductions down the columns in registers or shared
    memory."""

    def __init__(self, name: str, sweep: Sweep) -> None:
        partial = tuple(Access(d, (sweep.region.inner[0], 1)) for d in sweep.partial)
        super().__init__(name, replace(sweep.region, outputs=(*sweep.region.outputs, *partial)), sweep.cut)
        self.sweep, self.own = sweep, len(sweep.region.outputs)
        self.step: Index = 0

    def resident(self) -> int:
        return self._blocks if self.sweep.kept_bytes else 1

    @property
    def _blocks(self) -> int:
        """Blocks per multiprocessor if the sums are in shared memory."""
        return max(1, ROOM // self.threads())

    def source(self) -> Source:
        text, cut, [*stages, last] = self.text, self.schedule, self.region.stages
        team = self.team()
        sums = [self._zero(i, reduce.combine) for i, reduce in enumerate(last.reduces)]
        with text.loop(self.sweep.steps) as step:
            self.step = step
            row = text.plus(team, text.times(step, self.sweep.teams))
            if self._waits:
                self._announced(text.plus(row, self.sweep.teams))
            self.guard = text.below(row, cut.rows) if self.sweep.teams * self.sweep.steps > cut.rows else None
            self.outer = text.unravel(row, self.region.outer)
            for stage in stages:
                self._load_rows(stage)
                if stage.element:
                    self._element_stage(stage)
                else:
                    self._row_stage(stage)
                self._let_go()
            self._load_rows(last)
            known = self._elements(last, 0)
            for i, reduce in enumerate(last.reduces):
                reg = known[reduce.value]
                assert reg is not None
                value = self._only(reg, reduce.combine)
                if self.guard is not None:
                    zero = text.constant(identity(reduce.combine, reg.held), reg.held)
                    value = text.set(text.call("select", (), self.guard, value, zero))
                self._add(i, sums[i], text.call(STEP[reduce.combine], (), self._sum(i, sums[i]), value))
        self._partial(team, [text.set(self._sum(i, own)) for i, own in enumerate(sums)])
        return text.source(self.threads(), self.resident())

    def _over_warps(self, combine: str, count: int, text: str) -> str:
        """Alternates between two buffers of shared memory, so that warps that have finished a row can start the
        next."""
        turn = self.text.known(self.text.divmod(self.step, 2)[1])
        return self.text.call("warps", (combine, count, self.slots, 2), text, turn)

    def _zero(self, number: int, combine: str) -> str | None:
        """Initialises a sum; returns the name of its register, or None if it is in shared memory."""
        dtype = self.sweep.partial[number]
        zero = self._start(combine, dtype, self.held * self.vector)
        if not self.sweep.kept_bytes:
            return zero
        self._add(number, None, zero)
        return None

    def _sum(self, number: int, own: str | None) -> str:
        return own or self.text.call("kept", self._place_of(number))

    def _add(self, number: int, own: str | None, value: str) -> None:
        """Overwrites the sum."""
        if own is None:
            self.text.write(self.text.call("keep", self._place_of(number), value))
        else:
            self.text.set(value, own)

    def _place_of(self, number: int) -> tuple[DType, int, int, int]:
        lanes = self.held * self.vector
        before = sum(d.itemsize for d in self.sweep.partial[:number])
        return self.sweep.partial[number], lanes, self.threads(), before * lanes * self.threads()

    @property
    def _waits(self) -> bool:
        """Whether to prefetch the next row. On an H200 that gains 5 to 8 % in 16 bits, where a row is short for its
        computation. It loses as much in 32 bits, and 6 % if several other blocks load meanwhile."""
        return (not self.sweep.kept_bytes or self._blocks <= 2) and all(
            a.dtype.itemsize <= 2 for a in self._streamed().values()
        )

    def _streamed(self) -> dict[int, Access]:
        """The inputs that differ from row to row, by index."""
        inputs = enumerate(self.region.inputs)
        return {n: a for n, a in inputs if self.along(a) == 1 and any(a.strides[: self.split])}

    def _announced(self, row: Index) -> None:
        """Prefetches a row that the stages will read next."""
        there = self.text.below(row, self.schedule.rows)
        self.outer, self.only, self.guard, self.bases = self.text.unravel(row, self.region.outer), None, None, {}
        numbers, reached = self._reached(0)
        there = self.text.both(there, reached) or there
        for number, access in self._streamed().items():
            vector, at, _ = self._element_place(number, numbers, there)
            if vector * access.dtype.itemsize >= 16:
                self.text.write(self.text.call("prefetch", (access.dtype,), f"p{number}", at, there))
        self.only, self.bases, self.places = None, {}, {}

    def _let_go(self) -> None:
        """Drops values shared by all rows if registers are scarce: each stage loads them again from a cache."""
        if self.sweep.kept_bytes:
            for number, access in enumerate(self.region.inputs):
                if not any(access.strides[: self.split]):
                    self.loaded.pop(number, None)

    def _partial(self, team: Index, sums: list[str]) -> None:
        """Stores the team's partial sums."""
        self.only, self.guard, self.bases, self.outer = None, None, {}, [team]
        numbers, reached = self._reached(0)
        for i, own in enumerate(sums):
            vector, at, mask = self._element_place(len(self.region.inputs) + self.own + i, numbers, reached)
            self._store(self.own + i, vector, at, Reg(own, self.sweep.partial[i]), mask)
