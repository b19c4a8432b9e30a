"""Regions with reductions as text: rows by teams of threads, or columns by vectors of rows.

Both have the same form. A thread has ``lanes`` rows and, at once, ``held`` vectors of elements of them: with rows a
vector is of neighbours of one row, with columns one element of each of a vector of rows. Every element stage runs over
the chunks; where there is one chunk, what was loaded is held for the stages to come.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import Final

from dslc.compiler.codegen.cuda.schedule import needs_wide_index
from dslc.compiler.codegen.cuda.source import Source
from dslc.compiler.codegen.cuda.stages import STEP, combined_dtype, dtypes_of, identity, register_dtype, used_values
from dslc.compiler.codegen.cuda.text import Index, Text, power_of_two
from dslc.compiler.codegen.cuda.values import Reg, Values
from dslc.compiler.codegen.region import Access, Bits, Fetch, Let, Region, Scan, Stage, dense
from dslc.compiler.ir.types import DType

RESIDENT: Final = 1024  # threads of a multiprocessor: enough to load while others are reduced


class Teams(ABC):
    """What both forms share. ``lanes``: rows of a thread. ``guard``: whether its rows exist; None: they do."""

    lanes: int
    guard: str | None
    leads: str | None  # whether the thread writes what belongs to its rows; None: it does
    outer: list[Index]

    def __init__(self, name: str, region: Region, vector: int, held: int, chunks: int) -> None:
        self.region, self.vector, self.held, self.chunks = region, vector, held, chunks
        self.text = Text(name, len(region.inputs) + len(region.outputs), needs_wide_index(region))
        self.values = Values(self.text)
        self.split, self.length = len(region.outer), math.prod(region.inner)
        self.known: list[Reg | None] = [None] * region.first
        self.loaded: dict[int, Reg] = {}  # elements that are held
        self.spread: dict[str, str] = {}  # row values for all vectors
        self.bases: dict[int, Index] = {}
        self.slots = 0
        self.dtypes = dtypes_of(region)
        self.carries: list[str] = []  # of the scans of a stage, in order
        self.only: tuple[Index, str | None] | None = None
        self.mask: str | None = None
        self.indices: list[Index] | None = None
        self.places: dict[Access, tuple[int, str, str | None]] = {}

    def source(self) -> Source:
        self.place()
        for n, axis in enumerate(self.region.indices):
            if axis < self.split:
                last = axis == self.split - 1
                index = self.text.ramp(self.outer[axis], self.lanes, 1) if last else self.outer[axis]
                self.known[self.region.index + 1 + n] = self._counted(index)
        for stage in self.region.stages:
            self._load_rows(stage)
            if stage.element:
                self._element_stage(stage)
            else:
                self._row_stage(stage)
        return self.text.source(self.threads(), self.resident())

    # What the forms differ in.

    @abstractmethod
    def place(self) -> None:
        """Finds the thread's rows; sets lanes, guard, leads, outer."""

    @abstractmethod
    def threads(self) -> int: ...

    def resident(self) -> int:
        """Blocks that a multiprocessor shall have room for."""
        wide = any(access.dtype is DType.F64 for access in (*self.region.inputs, *self.region.outputs))
        return 1 if wide else max(1, RESIDENT // self.threads())

    @abstractmethod
    def numbers(self, chunk: Index) -> Index:
        """The numbers of the first elements of the thread's vectors in a chunk, in the inner axes."""

    @abstractmethod
    def elements(self, numbers: Index) -> Index:
        """The number of every element."""

    @abstractmethod
    def along(self, access: Access) -> int:
        """The stride within a vector."""

    @abstractmethod
    def total(self, combine: str, text: str) -> str:
        """Over the threads that share the rows."""

    @property
    @abstractmethod
    def covers(self) -> int:
        """How many elements of a row the chunks have room for."""

    # Rows.

    def _access(self, number: int) -> Access:
        return (*self.region.inputs, *self.region.outputs)[number]

    def _base(self, number: int) -> Index:
        if number not in self.bases:
            access = self._access(number)
            self.bases[number] = self.text.dot(access.offset, self.outer, access.strides[: self.split])
        return self.bases[number]

    def _find_bases(self, stage: Stage) -> None:
        """Of all that the stage's elements are read from or written to: in front of its loop, for others, too."""
        inputs = {n for n in used_values(stage) if n < len(self.region.inputs) and self.known[n] is None}
        fetched = {let.input for let in stage.lets if isinstance(let, Fetch)}
        for number in sorted(inputs | fetched | {len(self.region.inputs) + s.output for s in stage.stores}):
            self._base(number)

    def _row_place(self, number: int, whole: bool = True) -> tuple[int, str]:
        """Neighbours a load or store of row values has (one, if not ``whole``), and the numbers of the first ones."""
        access = self._access(number)
        stride = access.strides[self.split - 1] if self.lanes > 1 else 0
        first = self._base(number)
        if stride == 0:
            return 1, self.text.known(first)
        others = (access.offset, *access.strides[: self.split - 1])
        vector = power_of_two(self.lanes, *others) if stride == 1 and whole else 1
        return vector, self.text.known(self.text.ramp(first, self.lanes // vector, vector * stride))

    def _load_rows(self, stage: Stage) -> None:
        """Inputs that the stage reads and that belong to the rows."""
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
        assert register_dtype(access.dtype) is reg.held
        self.text.store(access, vector, f"p{len(self.region.inputs) + output}", at, reg.text, mask)

    def _lets(self, stage: Stage, known: list[Reg | None], numbers: Index | None, reached: str | None) -> None:
        """Appends the stage's values; ``numbers``: of an element stage."""
        for let in stage.lets:
            if isinstance(let, Let):
                reg = self.values.evaluate(let.expr, known, let.dtype)
                known.append(Reg(self.text.set(reg.text), let.dtype))
            elif isinstance(let, Fetch):
                known.append(self._fetch(let, known, numbers, reached))
            elif isinstance(let, Bits):
                assert numbers is not None, "random bits are of elements"
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
            if not self._differs(fetch.input) and self.vector > 1:
                place = text.set(text.call("each", (self.vector,), place))
            there = reached
            if self.mask is not None and reached is not None and self.vector > 1:
                there = text.set(text.call("each", (self.vector,), reached))
        at = text.plus(text.set(text.call("to", (text.index_dtype,), index.text)), place)
        mask = text.both(None if wanted is None else wanted.text, there)
        return self._load(fetch.input, 1, text.known(at), mask)

    def _bits(self, let: Bits, numbers: Index) -> Reg:
        """Of neighbours together, as many draws as there are vectors."""
        text, stride = self.text, self.along(let.place)
        given = [reg.text for reg in (self.known[n] for n in (let.seed, let.step, let.row)) if reg is not None]
        base = text.dot(let.place.offset, self.outer, let.place.strides[: self.split])
        first = self._first(let.place, base, numbers)
        vector = self.vector if stride == 1 else 1
        aligned = power_of_two(vector, let.place.offset, *self._others(let.place))
        at = text.known(text.ramp(first, self.vector // vector, vector * stride))
        return Reg(text.set(text.call("bits", (vector, let.key, let.row_elements, aligned), *given, at)), DType.I32)

    def _scan(self, scan: Scan, known: list[Reg | None]) -> Reg:
        """Over the chunk, behind what the chunks before it came to."""
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

    def _differs(self, number: int) -> bool:
        """Whether the elements of a vector lie at different places."""
        access = self._access(number)
        return self.vector > 1 and (self.along(access) != 0 or self._straddles(access))

    def _raise(self, stage: Stage, known: list[Reg | None], mask: str | None) -> None:
        for flag in stage.raises:
            reg, at = known[flag.value], self.text.known(self.region.outputs[flag.output].offset)
            assert reg is not None
            found = reg.text if mask is None else self.text.set(self.text.call("and", (), reg.text, mask))
            pointer = f"p{len(self.region.inputs) + flag.output}"
            self.text.write(self.text.call("raise_flag", (), pointer, at, found))

    def _row_stage(self, stage: Stage) -> None:
        self._lets(stage, self.known, None, self.guard)
        mask = self.text.both(self.guard, self.leads) if stage.stores or stage.raises else None
        for store in stage.stores:
            reg = self.known[store.value]
            assert reg is not None
            vector, at = self._row_place(len(self.region.inputs) + store.output)
            self._store(store.output, vector, at, reg, mask)
        self._raise(stage, self.known, mask)

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
        with self.text.loop(self.chunks) as chunk:
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
        self.known += [None] * len(stage.lets)
        self.known += self._totals(stage, sums)

    def _start(self, combine: str, dtype: DType, count: int) -> str:
        """Lanes that change nothing when something is combined with them."""
        held = register_dtype(dtype)
        return self.text.set(self.text.call("fill", (held, count), self.text.constant(identity(combine, held), held)))

    def _only(self, reg: Reg, combine: str) -> str:
        """The elements that there are; in the place of others what changes nothing."""
        if self.mask is None:
            return reg.text
        zero = self.text.constant(identity(combine, reg.held), reg.held)
        there = self.text.call("each", (self.vector,), self.mask)
        return self.text.set(self.text.call("select", (), there, reg.text, zero))

    @property
    def ordered(self) -> bool:
        """Whether a thread combines its vectors one after the other: however many it holds, the bits are the same."""
        return self.chunks != 1

    def _folded(self, combine: str, value: str, held: int) -> str:
        """``held`` vectors combined for each of the thread's rows."""
        groups = held * self.vector // self.lanes
        return self.text.set(self.text.call("fold", (combine, groups, self.lanes), value))

    def _totals(self, stage: Stage, sums: list[Reg]) -> list[Reg | None]:
        """Over all elements of the rows; equal reductions of a stage go through the threads together."""
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
        """Values of the stage for the elements of a chunk; writes what it stores."""
        numbers, reached = self._reached(chunk)
        used = used_values(stage)
        known: list[Reg | None] = []
        for n, row in enumerate(self.known):
            if row is not None:
                known.append(Reg(self.spread.get(row.text, row.text), row.dtype))
            elif n < len(self.region.inputs) and n in used:
                known.append(self._element(n, numbers, reached))
            elif n == self.region.index and n in used:
                known.append(self._counted(self.elements(numbers)))
            elif self.region.index < n < self.region.first and n in used:
                axis = self.region.indices[n - self.region.index - 1] - self.split
                known.append(self._counted(self.text.unravel(self.elements(numbers), self.region.inner)[axis]))
            else:
                known.append(None)
        self._lets(stage, known, numbers, reached)
        for store in stage.stores:
            reg = known[store.value]
            assert reg is not None
            vector, at, mask = self._element_place(len(self.region.inputs) + store.output, numbers, reached)
            self._store(store.output, vector, at, reg, mask)
        if stage.raises:
            ragged = reached is not None and self.mask is not None
            self._raise(stage, known, self.text.call("each", (self.vector,), str(reached)) if ragged else reached)
        return known

    def _counted(self, index: Index) -> Reg:
        """An index as a value."""
        return Reg(self.text.set(self.text.call("to", (DType.I64,), self.text.known(index))), DType.I64)

    def _reached(self, chunk: Index) -> tuple[Index, str | None]:
        """The numbers of the vectors of a chunk and which of them there are: once, where there is but one chunk."""
        if self.chunks == 1 and self.only is not None:
            return self.only
        numbers = self.numbers(chunk)
        ragged = self.covers > self.length
        self.mask = self.text.below(self.text.known(numbers), self.length) if ragged else None
        self.indices, self.places = None, {}
        self.only = numbers, self.text.both(self.mask, self.guard)
        return self.only

    def _spread_rows(self, stage: Stage) -> None:
        """Values of rows that the stage reads, repeated for each vector."""
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

    def _element_place(self, number: int, numbers: Index, mask: str | None) -> tuple[int, str, str | None]:
        """Neighbours a load or store has, the numbers of the first ones, and which of them there are."""
        access = self._access(number)
        if access not in self.places:
            self.places[access] = self._new_place(number, numbers, mask)
        return self.places[access]

    def _new_place(
        self, number: int, numbers: Index, mask: str | None, whole: bool = True
    ) -> tuple[int, str, str | None]:
        text, access = self.text, self._access(number)
        stride = self.along(access)
        if self._straddles(access):
            first = self._first(access, self._base(number), self.elements(numbers), whole=False)
            return 1, text.known(first), self._mask_of(self.vector, mask)
        first = self._first(access, self._base(number), numbers)
        if stride == 0 or self.vector == 1:
            return 1, text.known(first), mask
        vector = power_of_two(self.vector, access.offset, *self._others(access)) if stride == 1 and whole else 1
        count = self.vector // vector
        at = text.known(text.ramp(first, count, vector * stride))
        return vector, at, self._mask_of(count, mask)

    def _mask_of(self, count: int, mask: str | None) -> str | None:
        """The mask of the vectors for ``count`` parts of each."""
        if count == 1 or mask is None or self.mask is None:
            return mask
        return self.text.set(self.text.call("each", (count,), mask))

    def _first(self, access: Access, base: Index, numbers: Index, whole: bool = True) -> Index:
        """Where the first elements of the vectors lie, or all elements if not ``whole``, which have these numbers;
        ``base``: where the rows do."""
        text, inside = self.text, access.strides[self.split :]
        if inside == dense(self.region.inner):
            return text.plus(numbers, base)
        if whole and self.indices is not None:
            indices = self.indices
        else:
            indices = text.unravel(numbers, self.region.inner)
            self.indices = indices if whole else self.indices
        first = text.dot(base, indices, inside)
        for own in access.unravelled:
            place = text.dot(own.offset, [*self.outer, *indices], own.strides)
            first = text.dot(first, text.unravel(place, own.sizes), own.steps)
        return first

    def _straddles(self, access: Access) -> bool:
        """Whether a vector's elements may lie on both sides of an edge of the argument."""
        return False

    @abstractmethod
    def _others(self, access: Access) -> tuple[int, ...]:
        """The strides of all axes but that along a vector."""
