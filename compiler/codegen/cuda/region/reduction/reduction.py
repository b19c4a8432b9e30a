"""Emits regions with reductions: rows by teams (thread groups), or columns by vectors of rows.

Both have the same form. A thread handles ``lanes`` rows and ``held`` vectors of their elements at once. With rows, a
vector consists of neighbours in one row; with columns, of one element from each of several rows. Every element stage
loops over the chunks. If there is only one chunk, loaded values stay in registers for later stages.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from dslc.compiler.codegen.cuda.region.reduction.stage_values import StageValues
from dslc.compiler.codegen.cuda.region.source import Source
from dslc.compiler.codegen.cuda.region.values import Reg
from dslc.compiler.codegen.cuda.region.writer import Index
from dslc.compiler.codegen.region.ir import Access, Fetch, Region, Scan, Stage
from dslc.compiler.codegen.region.queries import used_values
from dslc.compiler.ir.types import DType

RESIDENT: Final = 1024  # threads per multiprocessor: enough to load while others reduce
_AHEAD: Final = 16  # elements of a scan that a thread loads at once


@dataclass(frozen=True, slots=True)
class _Chunk:
    """A chunk: what ``_chunk_range`` gives, where its elements are, and the values loaded."""

    starts: Index
    valid: str | None
    mask: str | None
    indices: list[Index] | None
    addresses: dict[Access, tuple[int, str, str | None]]
    known: list[Reg | None]


class Reduction(StageValues):
    """The common part of both forms. ``leader``: whether the thread stores its rows' values; None: it does."""

    leader: str | None

    def __init__(self, name: str, region: Region, vector: int, held: int, chunks: int) -> None:
        super().__init__(name, region, vector, held, chunks)
        self.loaded: dict[int, Reg] = {}  # loaded elements kept in registers
        self.repeated: dict[str, str] = {}  # row values repeated for all vectors
        self.slots = 0  # of shared memory, for totals over several warps
        self.single_chunk: tuple[Index, str | None] | None = None  # what ``_chunk_range`` gives, if there is one chunk
        self.full_chunk = False  # whether the current chunk is full
        self.totals_for_leaders = False  # whether only the threads that store totals need them

    def source(self) -> Source:
        self.find_rows()
        for n, axis in enumerate(self.region.indices):
            if axis < self.split:
                last = axis == self.split - 1
                index = self.text.ramp(self.outer[axis], self.lanes, 1) if last else self.outer[axis]
                self.known[self.region.index + 1 + n] = self._as_i64(index)
        for number, stage in enumerate(self.region.stages):
            self.totals_for_leaders = not any(s.element or _fetches(s) for s in self.region.stages[number + 1 :])
            self._load_rows(stage)
            if stage.element:
                self._element_stage(stage)
            else:
                self._row_stage(stage)
        return self.text.source(self.threads(), self.resident())

    # The methods that differ between the forms.

    @abstractmethod
    def find_rows(self) -> None:
        """Finds the thread's rows; sets lanes, guard, leader, outer."""

    @abstractmethod
    def threads(self) -> int:
        """Threads of a block."""

    def resident(self) -> int:
        """Blocks that a multiprocessor must have room for."""
        wide = any(access.dtype is DType.F64 for access in (*self.region.inputs, *self.region.outputs))
        return 1 if wide else max(1, RESIDENT // self.threads())

    @property
    @abstractmethod
    def covers(self) -> int:
        """How many elements of a row all chunks together cover."""

    # Rows.

    def _load_rows(self, stage: Stage) -> None:
        """Loads the row inputs that the stage reads."""
        for number in sorted(used_values(stage)):
            if number < len(self.region.inputs) and self.known[number] is None:
                access = self._access(number)
                if access.moves(self.split):
                    continue
                vector, at = self._row_address(number)
                self.known[number] = self._load(number, vector, at, self.guard)

    def _row_stage(self, stage: Stage) -> None:
        self._lets(stage, self.known, None, self.guard)
        mask = self.text.both(self.guard, self.leader) if stage.stores or stage.flags else None
        for store in stage.stores:
            reg = self.known[store.value]
            assert reg is not None
            vector, at = self._row_address(len(self.region.inputs) + store.output)
            self._store(store.output, vector, at, reg, mask)
        self._set_flags(stage, self.known, mask)

    # Elements.

    def _element_stage(self, stage: Stage) -> None:
        sums: list[Reg] = []
        if self.ordered:
            for reduce in stage.reduces:
                dtype = self.dtypes[reduce.value]
                sums.append(Reg(self._identities(reduce.combine, dtype, self.vector), dtype))
        self.carries = [
            self._identities(let.combine, self.dtypes[let.value], self.lanes)
            for let in stage.lets
            if isinstance(let, Scan) and self.chunks != 1
        ]
        self.repeated = {}
        self._repeat_rows(stage)
        self._find_bases(stage)
        for first, count, together, full in self._chunk_groups(stage):
            self.full_chunk = full
            with self.text.loop(count) as step:
                start = self.text.plus(self.text.times(step, together), first)
                self._chunks(stage, [self.text.plus(start, n) for n in range(together)], sums)
        self.full_chunk = False
        self.known += [None] * len(stage.lets)
        self.known += self._totals(stage, sums)

    def _chunk_groups(self, stage: Stage) -> list[tuple[int, int, int, bool]]:
        """Groups of chunks that share code: the first, how often, how many at once, and whether all their elements are
        in range. Peels the last, partial chunk so that full chunks need no bounds check. Of scans, which wait for each
        chunk, several are loaded at once."""
        full = self.length * self.chunks // self.covers if self.covers else 0
        if self.chunks > 1 and any(isinstance(let, Scan) for let in stage.lets):
            together = min(self.chunks, self._loaded_together(stage))
            steps = full // together
            left = self.chunks - steps * together
            groups = [(0, steps, together, True), (steps * together, 1, left, full == self.chunks)]
            return [group for group in groups if group[1] * group[2]]
        if full in (0, self.chunks):
            return [(0, self.chunks, 1, False)]
        return [(0, full, 1, True), (full, self.chunks - full, 1, False)]

    def _loaded_together(self, stage: Stage) -> int:
        """Chunks of a scan whose elements a thread loads before it computes the first of them."""
        used = used_values(stage)
        loads = sum(n in used and access.moves(self.split) for n, access in enumerate(self.region.inputs))
        return max(1, _AHEAD // (self.vector * max(1, loads)))

    def _chunks(self, stage: Stage, chunks: Sequence[Index], sums: list[Reg]) -> None:
        """Loads some chunks, then computes each one and adds its elements to the sums."""
        for loaded in [self._load_chunk(stage, chunk) for chunk in chunks]:
            known = self._elements(stage, loaded)
            for i, reduce in enumerate(stage.reduces):
                reg = known[reduce.value]
                assert reg is not None
                value = self._valid_or_identity(reg, reduce.combine)
                if self.ordered:
                    total = self.text.call("added", (reduce.combine, self.held, self.vector), sums[i].text, value)
                    self.text.set(total, sums[i].text)
                else:
                    sums.append(Reg(value, reg.dtype))

    @property
    def ordered(self) -> bool:
        """Whether a thread combines its vectors one after the other, so that the bits do not depend on how many it
        holds."""
        return self.chunks != 1

    def _totals(self, stage: Stage, sums: list[Reg]) -> list[Reg | None]:
        """Totals over all elements of the rows; pairs of equal reductions share one pass through the threads."""
        found: list[Reg | None] = [None] * len(sums)
        kinds: dict[tuple[str, DType], list[int]] = {}
        for i, (reduce, reg) in enumerate(zip(stage.reduces, sums)):
            kinds.setdefault((reduce.combine, reg.held), []).append(i)
        for (combine, held), members in kinds.items():
            for first in range(0, len(members), 2):
                pair = members[first : first + 2]
                own = [self._folded(combine, sums[i].text, 1 if self.ordered else self.held) for i in pair]
                if len(pair) == 1:
                    totals = [self.total(combine, own[0])]
                else:
                    both = self.total(combine, self.text.set(self.text.call("joined", (), *own)))
                    totals = [self.text.set(self.text.call("part", (i,), both)) for i in range(2)]
                for i, text in zip(pair, totals):
                    found[i] = Reg(text, sums[i].dtype if combine in ("min", "max") else held)
        return found

    def _load_chunk(self, stage: Stage, chunk: Index) -> _Chunk:
        """Loads what the stage reads of the elements of a chunk."""
        starts, valid = self._chunk_range(chunk)
        used = used_values(stage)
        known: list[Reg | None] = []
        for n, row in enumerate(self.known):
            if row is not None:
                known.append(Reg(self.repeated.get(row.text, row.text), row.dtype))
            elif n < len(self.region.inputs) and n in used:
                known.append(self._element(n, starts, valid))
            elif n == self.region.index and n in used:
                known.append(self._as_i64(self.element_indices(starts)))
            elif self.region.index < n < self.region.first and n in used:
                axis = self.region.indices[n - self.region.index - 1] - self.split
                known.append(self._as_i64(self.text.unravel(self.element_indices(starts), self.region.inner)[axis]))
            else:
                known.append(None)
        return _Chunk(starts, valid, self.mask, self.indices, self.addresses, known)

    def _elements(self, stage: Stage, chunk: _Chunk) -> list[Reg | None]:
        """Values of the stage for the elements of a chunk; also emits its stores."""
        starts, valid, known = chunk.starts, chunk.valid, chunk.known
        self.mask, self.indices, self.addresses = chunk.mask, chunk.indices, chunk.addresses
        self._lets(stage, known, starts, valid)
        for store in stage.stores:
            reg = known[store.value]
            assert reg is not None
            vector, at, mask = self._element_address(len(self.region.inputs) + store.output, starts, valid)
            self._store(store.output, vector, at, reg, mask)
        if stage.flags:
            ragged = valid is not None and self.mask is not None
            self._set_flags(stage, known, self.text.call("each", (self.vector,), str(valid)) if ragged else valid)
        return known

    def _chunk_range(self, chunk: Index) -> tuple[Index, str | None]:
        """The indices of a chunk's vectors and the mask of those in range; computed once if there is only one chunk."""
        if self.chunks == 1 and self.single_chunk is not None:
            return self.single_chunk
        starts = self.vector_starts(chunk)
        ragged = self.covers > self.length and not self.full_chunk
        self.mask = self.text.below(self.text.known(starts), self.length) if ragged else None
        self.indices, self.addresses = None, {}
        self.single_chunk = starts, self.text.both(self.mask, self.guard)
        return self.single_chunk

    def _repeat_rows(self, stage: Stage) -> None:
        """Repeats the row values that the stage reads for each vector."""
        if self.lanes == 1 or self.held == 1:
            return
        for n in sorted(used_values(stage)):
            row = self.known[n] if n < len(self.known) else None
            if row is not None:
                self.repeated[row.text] = self.text.set(self.text.call("tile", (self.held, self.lanes), row.text))

    def _element(self, number: int, starts: Index, mask: str | None) -> Reg:
        if number in self.loaded:
            return self.loaded[number]
        vector, at, mask = self._element_address(number, starts, mask)
        reg = self._load(number, vector, at, mask)
        if self.vector > 1 and not self._varies_in_vector(number):
            reg = Reg(self.text.set(self.text.call("each", (self.vector,), reg.text)), reg.dtype)
        if self.chunks == 1:
            self.loaded[number] = reg
        return reg


def _fetches(stage: Stage) -> bool:
    return any(isinstance(let, Fetch) for let in stage.lets)
