"""Emits regions with reductions: rows by teams (thread groups), or columns by vectors of rows.

Both have the same form. A thread handles ``lanes`` rows and ``held`` vectors of their elements at once. With rows, a
vector consists of neighbours in one row; with columns, of one element from each of several rows. Every element stage
loops over the chunks. If there is only one chunk, loaded values stay in registers for later stages.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from typing import Final

from dslc.compiler.codegen.cuda.region.addresses import Addresses
from dslc.compiler.codegen.cuda.region.registers import STEP, combined_dtype, dtypes_of
from dslc.compiler.codegen.cuda.region.source import Source
from dslc.compiler.codegen.cuda.region.values import Reg, Values
from dslc.compiler.codegen.cuda.region.writer import Index, power_of_two
from dslc.compiler.codegen.region.ir import Bits, Fetch, Let, Region, Scan, Stage
from dslc.compiler.codegen.region.queries import identity, used_values
from dslc.compiler.ir.types import DType

RESIDENT: Final = 1024  # threads per multiprocessor: enough to load while others reduce


class Reduction(Addresses):
    """The common part of both forms. ``guard``: whether the thread's rows exist; None: they do."""

    guard: str | None
    leads: str | None  # whether the thread stores its rows' values; None: it does

    def __init__(self, name: str, region: Region, vector: int, held: int, chunks: int) -> None:
        super().__init__(name, region, vector)
        self.held, self.chunks, self.length = held, chunks, math.prod(region.inner)
        self.values = Values(self.text)
        self.loaded: dict[int, Reg] = {}  # loaded elements kept in registers
        self.spread: dict[str, str] = {}  # row values repeated for all vectors
        self.slots = 0
        self.dtypes = dtypes_of(region)
        self.carries: list[str] = []  # running totals of a stage's scans, in order
        self.only: tuple[Index, str | None] | None = None
        self.whole = False  # whether the current chunk is full
        self.leaders = False  # whether only the threads that store totals need them

    def source(self) -> Source:
        self.place()
        for n, axis in enumerate(self.region.indices):
            if axis < self.split:
                last = axis == self.split - 1
                index = self.text.ramp(self.outer[axis], self.lanes, 1) if last else self.outer[axis]
                self.known[self.region.index + 1 + n] = self._as_i64(index)
        for number, stage in enumerate(self.region.stages):
            self.leaders = not any(s.element or _fetches(s) for s in self.region.stages[number + 1 :])
            self._load_rows(stage)
            if stage.element:
                self._element_stage(stage)
            else:
                self._row_stage(stage)
        return self.text.source(self.threads(), self.resident())

    # The methods that differ between the forms.

    @abstractmethod
    def place(self) -> None:
        """Finds the thread's rows; sets lanes, guard, leads, outer."""

    @abstractmethod
    def threads(self) -> int: ...

    def resident(self) -> int:
        """Blocks that a multiprocessor must have room for."""
        wide = any(access.dtype is DType.F64 for access in (*self.region.inputs, *self.region.outputs))
        return 1 if wide else max(1, RESIDENT // self.threads())

    @abstractmethod
    def total(self, combine: str, text: str) -> str:
        """Combines a value over the threads that share the rows."""

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
                vector, at = self._row_place(number)
                self.known[number] = self._load(number, vector, at, self.guard)

    def _load(self, number: int, vector: int, at: str, mask: str | None) -> Reg:
        access = self._access(number)
        return Reg(self.text.set(self.text.load(access, vector, f"p{number}", at, mask)), access.dtype)

    def _store(self, output: int, vector: int, at: str, reg: Reg, mask: str | None) -> None:
        access = self.region.outputs[output]
        assert access.dtype.computed is reg.held
        self.text.store(access, vector, f"p{len(self.region.inputs) + output}", at, reg.text, mask)

    def _lets(self, stage: Stage, known: list[Reg | None], numbers: Index | None, reached: str | None) -> None:
        """Appends the stage's values; ``numbers``: the vectors' indices in an element stage, else None."""
        for let in stage.lets:
            if isinstance(let, Let):
                reg = self.values.evaluate(let.expr, known, let.dtype)
                known.append(Reg(self.text.set(reg.text), let.dtype))
            elif isinstance(let, Fetch):
                known.append(self._fetch(let, known, numbers, reached))
            elif isinstance(let, Bits):
                assert numbers is not None, "only element stages draw random bits"
                known.append(self._bits(let, numbers))
            else:
                known.append(self._scan(let, known))

    def _fetch(self, fetch: Fetch, known: list[Reg | None], numbers: Index | None, reached: str | None) -> Reg:
        text, index = self.text, known[fetch.index]
        wanted = None if fetch.mask is None else known[fetch.mask]
        assert index is not None
        if numbers is None:
            place, there = self._row_place(fetch.input, whole=False)[1], reached
        else:
            place = self._new_place(fetch.input, numbers, None, whole=False)[1]
            if not self._access(fetch.input).moves(self.split):  # it is that of the thread's rows, whatever the element
                place = text.set(text.call("tile", (self.held, self.vector), place))
            elif not self._differs(fetch.input) and self.vector > 1:
                place = text.set(text.call("each", (self.vector,), place))
            there = reached
            if self.mask is not None and reached is not None and self.vector > 1:
                there = text.set(text.call("each", (self.vector,), reached))
        at = text.plus(text.set(text.call("to", (text.index_dtype,), index.text)), place)
        mask = text.both(None if wanted is None else wanted.text, there)
        return self._load(fetch.input, 1, text.known(at), mask)

    def _bits(self, let: Bits, numbers: Index) -> Reg:
        """Random bits: neighbours share draws; one call per vector."""
        text, stride = self.text, self.along(let.place)
        given = [reg.text for reg in (self.known[n] for n in (let.seed, let.step, let.row)) if reg is not None]
        base = text.dot(let.place.offset, self.outer, let.place.strides[: self.split])
        first = self._first(let.place, base, numbers)
        vector = self.vector if stride == 1 else 1
        aligned = power_of_two(vector, let.place.offset, *self._others(let.place))
        at = text.known(text.ramp(first, self.vector // vector, vector * stride))
        return Reg(text.set(text.call("bits", (vector, let.key, let.row_elements, aligned), *given, at)), DType.I32)

    def _scan(self, scan: Scan, known: list[Reg | None]) -> Reg:
        """Scans the chunk, continuing from the total of the chunks before."""
        reg = known[scan.value]
        assert reg is not None
        value, step = self._only(reg, scan.combine), STEP[scan.combine]
        if reg.text == value:
            value = self.text.set(value)
        found = self.running(scan, value)
        if self.chunks != 1:
            carry = self.carries.pop(0)
            found = self.text.set(self.text.call(step, (), carry, found))
            total = self.total(scan.combine, self._folded(scan.combine, value, self.held))
            self.text.set(self.text.call(step, (), carry, total), carry)
        return Reg(found, combined_dtype(scan.combine, reg.dtype))

    @abstractmethod
    def running(self, scan: Scan, value: str) -> str:
        """A scan over the elements of a chunk."""

    def _set_flags(self, stage: Stage, known: list[Reg | None], mask: str | None) -> None:
        for flag in stage.flags:
            reg, at = known[flag.value], self.text.known(self.region.outputs[flag.output].offset)
            assert reg is not None
            found = reg.text if mask is None else self.text.set(self.text.call("and", (), reg.text, mask))
            pointer = f"p{len(self.region.inputs) + flag.output}"
            self.text.write(self.text.call("raise_flag", (), pointer, at, found))

    def _row_stage(self, stage: Stage) -> None:
        self._lets(stage, self.known, None, self.guard)
        mask = self.text.both(self.guard, self.leads) if stage.stores or stage.flags else None
        for store in stage.stores:
            reg = self.known[store.value]
            assert reg is not None
            vector, at = self._row_place(len(self.region.inputs) + store.output)
            self._store(store.output, vector, at, reg, mask)
        self._set_flags(stage, self.known, mask)

    # Elements.

    def _element_stage(self, stage: Stage) -> None:
        sums: list[Reg] = []
        if self.ordered:
            for reduce in stage.reduces:
                dtype = self.dtypes[reduce.value]
                sums.append(Reg(self._start(reduce.combine, dtype, self.vector), dtype))
        self.carries = [
            self._start(let.combine, self.dtypes[let.value], self.lanes)
            for let in stage.lets
            if isinstance(let, Scan) and self.chunks != 1
        ]
        self.spread = {}
        self._spread_rows(stage)
        self._find_bases(stage)
        for first, count, whole in self._chunk_groups(stage):
            self.whole = whole
            with self.text.loop(count) as step:
                self._chunk(stage, self.text.plus(step, first), sums)
        self.whole = False
        self.known += [None] * len(stage.lets)
        self.known += self._totals(stage, sums)

    def _chunk_groups(self, stage: Stage) -> list[tuple[int, int, bool]]:
        """Groups of chunks that share code: the first, how many, and whether all their elements are in range. Peels the
        last, partial chunk so that full chunks need no bounds check (not for scans)."""
        full = self.length * self.chunks // self.covers if self.covers else 0
        if full in (0, self.chunks) or any(isinstance(let, Scan) for let in stage.lets):
            return [(0, self.chunks, False)]
        return [(0, full, True), (full, self.chunks - full, False)]

    def _chunk(self, stage: Stage, chunk: Index, sums: list[Reg]) -> None:
        """Computes the elements of a chunk and adds them to the sums."""
        known = self._elements(stage, chunk)
        for i, reduce in enumerate(stage.reduces):
            reg = known[reduce.value]
            assert reg is not None
            value = self._only(reg, reduce.combine)
            if self.ordered:
                total = self.text.call("added", (reduce.combine, self.held, self.vector), sums[i].text, value)
                self.text.set(total, sums[i].text)
            else:
                sums.append(Reg(value, reg.dtype))

    def _start(self, combine: str, dtype: DType, count: int) -> str:
        """Lanes that hold the identity element of the reduction."""
        held = dtype.computed
        return self.text.set(self.text.call("fill", (held, count), self.text.constant(identity(combine, held), held)))

    def _only(self, reg: Reg, combine: str) -> str:
        """Valid elements; out-of-range ones become the reduction's identity."""
        if self.mask is None:
            return reg.text
        zero = self.text.constant(identity(combine, reg.held), reg.held)
        there = self.text.call("each", (self.vector,), self.mask)
        return self.text.set(self.text.call("select", (), there, reg.text, zero))

    @property
    def ordered(self) -> bool:
        """Whether a thread combines its vectors one after the other, so that the bits do not depend on how many it
        holds."""
        return self.chunks != 1

    def _folded(self, combine: str, value: str, held: int) -> str:
        """Combines ``held`` vectors for each of the thread's rows."""
        groups = held * self.vector // self.lanes
        return self.text.set(self.text.call("fold", (combine, groups, self.lanes), value))

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

    def _elements(self, stage: Stage, chunk: Index) -> list[Reg | None]:
        """Values of the stage for the elements of a chunk; also emits its stores."""
        numbers, reached = self._reached(chunk)
        used = used_values(stage)
        known: list[Reg | None] = []
        for n, row in enumerate(self.known):
            if row is not None:
                known.append(Reg(self.spread.get(row.text, row.text), row.dtype))
            elif n < len(self.region.inputs) and n in used:
                known.append(self._element(n, numbers, reached))
            elif n == self.region.index and n in used:
                known.append(self._as_i64(self.elements(numbers)))
            elif self.region.index < n < self.region.first and n in used:
                axis = self.region.indices[n - self.region.index - 1] - self.split
                known.append(self._as_i64(self.text.unravel(self.elements(numbers), self.region.inner)[axis]))
            else:
                known.append(None)
        self._lets(stage, known, numbers, reached)
        for store in stage.stores:
            reg = known[store.value]
            assert reg is not None
            vector, at, mask = self._element_place(len(self.region.inputs) + store.output, numbers, reached)
            self._store(store.output, vector, at, reg, mask)
        if stage.flags:
            ragged = reached is not None and self.mask is not None
            self._set_flags(stage, known, self.text.call("each", (self.vector,), str(reached)) if ragged else reached)
        return known

    def _as_i64(self, index: Index) -> Reg:
        """An index as an i64 value."""
        return Reg(self.text.set(self.text.call("to", (DType.I64,), self.text.known(index))), DType.I64)

    def _reached(self, chunk: Index) -> tuple[Index, str | None]:
        """The indices of a chunk's vectors and the mask of those in range; computed once if there is only one chunk."""
        if self.chunks == 1 and self.only is not None:
            return self.only
        numbers = self.numbers(chunk)
        ragged = self.covers > self.length and not self.whole
        self.mask = self.text.below(self.text.known(numbers), self.length) if ragged else None
        self.indices, self.places = None, {}
        self.only = numbers, self.text.both(self.mask, self.guard)
        return self.only

    def _spread_rows(self, stage: Stage) -> None:
        """Repeats the row values that the stage reads for each vector."""
        if self.lanes == 1 or self.held == 1:
            return
        for n in sorted(used_values(stage)):
            row = self.known[n] if n < len(self.known) else None
            if row is not None:
                self.spread[row.text] = self.text.set(self.text.call("tile", (self.held, self.lanes), row.text))

    def _element(self, number: int, numbers: Index, mask: str | None) -> Reg:
        if number in self.loaded:
            return self.loaded[number]
        vector, at, mask = self._element_place(number, numbers, mask)
        reg = self._load(number, vector, at, mask)
        if self.vector > 1 and not self._differs(number):
            reg = Reg(self.text.set(self.text.call("each", (self.vector,), reg.text)), reg.dtype)
        if self.chunks == 1:
            self.loaded[number] = reg
        return reg


def _fetches(stage: Stage) -> bool:
    return any(isinstance(let, Fetch) for let in stage.lets)
