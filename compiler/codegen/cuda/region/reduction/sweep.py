"""Kernels of rows that also sum over rows: one pass over memory for both.

Every block processes many rows, one after the other. Each thread accumulates its columns' sums in registers, or in
shared memory if these are scarce.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Final

from dslc.compiler.codegen.cuda.region.reduction.row_reduction import RowReduction
from dslc.compiler.codegen.cuda.region.registers import STEP, dtypes_of
from dslc.compiler.codegen.cuda.region.schedule import THREAD_ELEMENTS, rows_of, schedule
from dslc.compiler.codegen.cuda.region.source import Source, SourceKernel
from dslc.compiler.codegen.cuda.region.thread_mapping import Rows, Schedule
from dslc.compiler.codegen.cuda.region.values import Reg
from dslc.compiler.codegen.cuda.region.writer import Index
from dslc.compiler.codegen.device_model import H200
from dslc.compiler.codegen.region.ir import Access, Region
from dslc.compiler.codegen.region.queries import identity
from dslc.compiler.codegen.target import Geometry
from dslc.compiler.ir.described import described
from dslc.compiler.ir.types import DType

MULTIPROCESSORS: Final = H200.multiprocessors
RESIDENT: Final = 512  # threads per multiprocessor, with 128 registers each
_REGISTERS: Final = H200.registers  # per multiprocessor
_OTHER_REGISTERS: Final = 24  # per thread, for addresses and intermediate values
_SHARED_BYTES: Final = 160 << 10  # of shared memory that every multiprocessor has
_MAX_TEAM: Final = {True: 128, False: 512}  # most threads per row, for 16 bits and for wider dtypes


@described("Sweep", "region steps")
@dataclass(frozen=True, slots=True)
class Sweep(SourceKernel):
    """``region``, whose last stage reduces over rows instead of elements, with ``steps`` rows per team (thread group).

    The kernel's outputs are those of the region, then the partial results [teams of the grid, elements of a row] of
    each reduction of the last stage.
    """

    region: Region
    steps: int

    @property
    def cut(self) -> Rows:
        """The schedule of the region's rows."""
        found = schedule_of(self.region)
        assert isinstance(found, Rows)
        return found

    @property
    def geometry(self) -> Geometry:
        cut = self.cut
        blocks = -(-cut.rows // (cut.teams * self.steps))
        return Geometry((blocks, 1, 1), (cut.team * cut.teams, 1, 1), self.kept_bytes)

    @property
    def teams(self) -> int:
        """Teams of the whole grid: rows of the partial results."""
        return self.geometry.grid[0] * self.cut.teams

    @property
    def kept_bytes(self) -> int:
        """Bytes of shared memory for a block's sums if its registers cannot hold them in addition to a row; else 0."""
        cut, region = self.cut, self.region
        threads = cut.team * cut.teams
        sums = sum(d.itemsize for d in self.partial) * cut.held * cut.vector
        row = sum(a.dtype.computed.itemsize for a in region.inputs if any(a.strides[1:])) * cut.held * cut.vector
        registers = (sums + row) // 4 + _OTHER_REGISTERS
        crowded = registers * max(threads, RESIDENT) > _REGISTERS
        return sums * threads if crowded and sums * threads <= _SHARED_BYTES else 0

    @property
    def partial(self) -> tuple[DType, ...]:
        """The dtypes of the partial results."""
        dtypes = dtypes_of(self.region)
        return tuple(dtypes[r.value].computed for r in self.region.stages[-1].reduces)

    def source(self, name: str) -> Source:
        return _Emitter(name, self).source()


@lru_cache(256)
def schedule_of(region: Region) -> Schedule:
    """Like ``schedule``, but with as many elements per thread as possible if instructions limit the speed rather than
    registers: for 16 bits, and if a row takes most threads of a multiprocessor. On an H200 that saves 5 to 14 % of the
    time; shorter rows of 32 bits would take as much longer."""
    found = schedule(region)
    if not isinstance(found, Rows) or found.chunks != 1:
        return found
    sizes = [a.dtype.itemsize for a in region.inputs if a.moves(0, 1) and a.moves(1)]
    return rows_of(region, THREAD_ELEMENTS) if found.team > _MAX_TEAM[max(sizes) <= 2] else found


class _Emitter(RowReduction):
    """Emits the source of a sweep."""

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
        return max(1, RESIDENT // self.threads())

    def source(self) -> Source:
        text, cut, [*stages, last] = self.text, self.schedule, self.region.stages
        team = self.team()
        sums = [self._initial_sum(i, reduce.combine) for i, reduce in enumerate(last.reduces)]
        with text.loop(self.sweep.steps) as step:
            self.step = step
            row = text.plus(team, text.times(step, self.sweep.teams))
            if self._prefetches:
                self._prefetch(text.plus(row, self.sweep.teams))
            self.guard = text.below(row, cut.rows) if self.sweep.teams * self.sweep.steps > cut.rows else None
            self.outer = text.unravel(row, self.region.outer)
            for stage in stages:
                self._load_rows(stage)
                if stage.element:
                    self._element_stage(stage)
                else:
                    self._row_stage(stage)
                self._drop_shared()
            self._load_rows(last)
            known = self._elements(last, self._load_chunk(last, 0))
            for i, reduce in enumerate(last.reduces):
                reg = known[reduce.value]
                assert reg is not None
                value = self._valid_or_identity(reg, reduce.combine)
                if self.guard is not None:
                    zero = text.constant(identity(reduce.combine, reg.held), reg.held)
                    value = text.set(text.call("select", (), self.guard, value, zero))
                self._set_sum(i, sums[i], text.call(STEP[reduce.combine], (), self._sum(i, sums[i]), value))
        self._store_partial(team, [text.set(self._sum(i, own)) for i, own in enumerate(sums)])
        return text.source(self.threads(), self.resident())

    def _over_warps(self, combine: str, count: int, text: str) -> str:
        """Alternates between two buffers of shared memory, so that warps that have finished a row can start the
        next."""
        turn = self.text.known(self.text.divmod(self.step, 2)[1])
        return self.text.call("warps", (combine, count, self.slots, 2), text, turn)

    def _initial_sum(self, number: int, combine: str) -> str | None:
        """Initialises a sum; returns the name of its register, or None if it is in shared memory."""
        dtype = self.sweep.partial[number]
        zero = self._identities(combine, dtype, self.held * self.vector)
        if not self.sweep.kept_bytes:
            return zero
        self._set_sum(number, None, zero)
        return None

    def _sum(self, number: int, own: str | None) -> str:
        return own or self.text.call("kept", self._place_of(number))

    def _set_sum(self, number: int, own: str | None, value: str) -> None:
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
    def _prefetches(self) -> bool:
        """Whether to prefetch the next row. On an H200 that gains 5 to 8 % in 16 bits, where a row is short for its
        computation. It loses as much in 32 bits, and 6 % if several other blocks load meanwhile."""
        return (not self.sweep.kept_bytes or self._blocks <= 2) and all(
            a.dtype.itemsize <= 2 for a in self._streamed().values()
        )

    def _streamed(self) -> dict[int, Access]:
        """The inputs that differ from row to row, by index."""
        inputs = enumerate(self.region.inputs)
        return {n: a for n, a in inputs if self.stride_in_vector(a) == 1 and any(a.strides[: self.split])}

    def _prefetch(self, row: Index) -> None:
        """Prefetches a row that the stages will read next."""
        there = self.text.below(row, self.schedule.rows)
        self.outer = self.text.unravel(row, self.region.outer)
        self.single_chunk, self.guard, self.bases = None, None, {}
        starts, valid = self._chunk_range(0)
        there = self.text.both(there, valid) or there
        for number, access in self._streamed().items():
            vector, at, _ = self._element_address(number, starts, there)
            if vector * access.dtype.itemsize >= 16:
                self.text.write(self.text.call("prefetch", (access.dtype,), f"p{number}", at, there))
        self.single_chunk, self.bases, self.addresses = None, {}, {}

    def _drop_shared(self) -> None:
        """Drops values shared by all rows if registers are scarce: each stage loads them again from a cache."""
        if self.sweep.kept_bytes:
            for number, access in enumerate(self.region.inputs):
                if not any(access.strides[: self.split]):
                    self.loaded.pop(number, None)

    def _store_partial(self, team: Index, sums: list[str]) -> None:
        """Stores the team's partial sums."""
        self.single_chunk, self.guard, self.bases, self.outer = None, None, {}, [team]
        starts, valid = self._chunk_range(0)
        for i, own in enumerate(sums):
            vector, at, mask = self._element_address(len(self.region.inputs) + self.own + i, starts, valid)
            self._store(self.own + i, vector, at, Reg(own, self.sweep.partial[i]), mask)
