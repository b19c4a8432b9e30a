"""The values that a stage computes, and its loads and stores, for a thread that handles several rows and vectors."""

from __future__ import annotations

import math
from abc import abstractmethod

from dslc.compiler.codegen.cuda.region.reduction.addresses import Addresses
from dslc.compiler.codegen.cuda.region.registers import STEP, combined_dtype, dtypes_of
from dslc.compiler.codegen.cuda.region.values import Reg, Values
from dslc.compiler.codegen.cuda.region.writer import Index, power_of_two
from dslc.compiler.codegen.region.ir import Bits, Fetch, Let, Region, Scan, Stage
from dslc.compiler.codegen.region.queries import identity
from dslc.compiler.ir.types import DType


class StageValues(Addresses):
    """``held``: vectors of a row's elements that a thread handles at once; ``chunks``: how often it does so until all
    elements of its rows are done. ``guard``: whether the thread's rows exist; None: they do."""

    guard: str | None

    def __init__(self, name: str, region: Region, vector: int, held: int, chunks: int) -> None:
        super().__init__(name, region, vector)
        self.held, self.chunks, self.length = held, chunks, math.prod(region.inner)
        self.values = Values(self.text)
        self.dtypes = dtypes_of(region)
        self.carries: list[str] = []  # running totals of a stage's scans, in order

    # The methods that differ between rows and columns.

    @abstractmethod
    def total(self, combine: str, text: str) -> str:
        """Combines a value over the threads that share the rows."""

    @abstractmethod
    def running(self, scan: Scan, value: str) -> str:
        """A scan over the elements of a chunk."""

    # Values.

    def _lets(self, stage: Stage, known: list[Reg | None], starts: Index | None, valid: str | None) -> None:
        """Appends the stage's values. ``starts``: the indices of the vectors in an element stage, else None. ``valid``:
        the mask of those in range; None: all."""
        for let in stage.lets:
            if isinstance(let, Let):
                reg = self.values.evaluate(let.expr, known, let.dtype)
                known.append(Reg(self.text.set(reg.text), let.dtype))
            elif isinstance(let, Fetch):
                known.append(self._fetch(let, known, starts, valid))
            elif isinstance(let, Bits):
                assert starts is not None, "only element stages draw random bits"
                known.append(self._bits(let, starts))
            else:
                known.append(self._scan(let, known))

    def _fetch(self, fetch: Fetch, known: list[Reg | None], starts: Index | None, valid: str | None) -> Reg:
        """Gathers an element of an input for each element of the vectors, or for each row."""
        text, index = self.text, known[fetch.index]
        wanted = None if fetch.mask is None else known[fetch.mask]
        assert index is not None
        if starts is None:
            place, there = self._row_address(fetch.input, whole=False)[1], valid
        else:
            place = self._compute_address(fetch.input, starts, None, whole=False)[1]
            if not self._access(fetch.input).moves(self.split):  # it is that of the thread's rows, whatever the element
                place = text.set(text.call("tile", (self.held, self.vector), place))
            elif not self._varies_in_vector(fetch.input) and self.vector > 1:
                place = text.set(text.call("each", (self.vector,), place))
            there = valid
            if self.mask is not None and valid is not None and self.vector > 1:
                there = text.set(text.call("each", (self.vector,), valid))
        at = text.plus(text.set(text.call("to", (text.index_dtype,), index.text)), place)
        mask = text.both(None if wanted is None else wanted.text, there)
        return self._load(fetch.input, 1, text.known(at), mask)

    def _bits(self, let: Bits, starts: Index) -> Reg:
        """Random bits: neighbours share draws; one call per vector."""
        text, stride = self.text, self.stride_in_vector(let.place)
        given = [reg.text for reg in (self.known[n] for n in (let.seed, let.step, let.row)) if reg is not None]
        base = text.dot(let.place.offset, self.outer, let.place.strides[: self.split])
        first = self._first_addresses(let.place, base, starts)
        vector = self.vector if stride == 1 else 1
        aligned = power_of_two(vector, let.place.offset, *self._other_strides(let.place))
        at = text.known(text.ramp(first, self.vector // vector, vector * stride))
        return Reg(text.set(text.call("bits", (vector, let.key, let.row_elements, aligned), *given, at)), DType.I32)

    def _scan(self, scan: Scan, known: list[Reg | None]) -> Reg:
        """Scans the chunk, continuing from the total of the chunks before."""
        reg = known[scan.value]
        assert reg is not None
        value, step = self._valid_or_identity(reg, scan.combine), STEP[scan.combine]
        if reg.text == value:
            value = self.text.set(value)
        found = self.running(scan, value)
        if self.chunks != 1:
            carry = self.carries.pop(0)
            self.carries.append(carry)  # for the next chunk
            found = self.text.set(self.text.call(step, (), carry, found))
            total = self.total(scan.combine, self._folded(scan.combine, value, self.held))
            self.text.set(self.text.call(step, (), carry, total), carry)
        return Reg(found, combined_dtype(scan.combine, reg.dtype))

    def _load(self, number: int, vector: int, at: str, mask: str | None) -> Reg:
        access = self._access(number)
        return Reg(self.text.set(self.text.load(access, vector, f"p{number}", at, mask)), access.dtype)

    def _store(self, output: int, vector: int, at: str, reg: Reg, mask: str | None) -> None:
        access = self.region.outputs[output]
        assert access.dtype.computed is reg.held
        self.text.store(access, vector, f"p{len(self.region.inputs) + output}", at, reg.text, mask)

    def _set_flags(self, stage: Stage, known: list[Reg | None], mask: str | None) -> None:
        """Raises the stage's flags for which a value is true."""
        for flag in stage.flags:
            reg, at = known[flag.value], self.text.known(self.region.outputs[flag.output].offset)
            assert reg is not None
            found = reg.text if mask is None else self.text.set(self.text.call("and", (), reg.text, mask))
            pointer = f"p{len(self.region.inputs) + flag.output}"
            self.text.write(self.text.call("raise_flag", (), pointer, at, found))

    def _valid_or_identity(self, reg: Reg, combine: str) -> str:
        """Valid elements; out-of-range ones become the reduction's identity."""
        if self.mask is None:
            return reg.text
        zero = self.text.constant(identity(combine, reg.held), reg.held)
        there = self.text.call("each", (self.vector,), self.mask)
        return self.text.set(self.text.call("select", (), there, reg.text, zero))

    def _identities(self, combine: str, dtype: DType, count: int) -> str:
        """Lanes that hold the identity element of the reduction."""
        held = dtype.computed
        return self.text.set(self.text.call("fill", (held, count), self.text.constant(identity(combine, held), held)))

    def _folded(self, combine: str, value: str, held: int) -> str:
        """Combines ``held`` vectors for each of the thread's rows."""
        groups = held * self.vector // self.lanes
        return self.text.set(self.text.call("fold", (combine, groups, self.lanes), value))

    def _as_i64(self, index: Index) -> Reg:
        """An index as an i64 value."""
        return Reg(self.text.set(self.text.call("to", (DType.I64,), self.text.known(index))), DType.I64)
