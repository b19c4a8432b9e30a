"""Emits regions without reductions: one or several vectors of elements per thread; loads first, then values, then
stores.

Sizes, strides and offsets are kernel arguments. Regions that differ only in these, as those of many layers do, share a
kernel.
"""

from __future__ import annotations

import math
from typing import Final

from dslc.compiler.codegen.cuda.region.schedule import DRAW_ELEMENTS, flattened, needs_wide_index
from dslc.compiler.codegen.cuda.region.source import Source
from dslc.compiler.codegen.cuda.region.thread_mapping import Flat
from dslc.compiler.codegen.cuda.region.values import Reg, Values
from dslc.compiler.codegen.cuda.region.writer import Index, SourceWriter, power_of_two
from dslc.compiler.codegen.launch import ScalarArgs
from dslc.compiler.codegen.region.ir import Access, Bits, Fetch, Let, Region, dense
from dslc.compiler.codegen.region.queries import used_values
from dslc.compiler.ir.types import DType

_LARGE_RESIDENT: Final = 2  # blocks of a large tree; one alone has no other warps while it waits


def flat_source(name: str, region: Region, schedule: Flat) -> tuple[Source, ScalarArgs]:
    """The kernel's source, and its scalar arguments after the pointers."""
    emitter = _Emitter(name, region, schedule)
    return emitter.source(), emitter.text.scalar_args


class _Emitter:
    def __init__(self, name: str, region: Region, schedule: Flat) -> None:
        self.given, self.schedule, self.vector = region, schedule, schedule.vector
        self.region = flattened(region)
        self.text = SourceWriter(name, len(region.inputs) + len(region.outputs), needs_wide_index(region))
        self.values = Values(self.text)
        self.sizes = self.region.outer
        self.dense = dense(self.sizes)
        self.held = schedule.held
        self.whole = self.vector > 1 and bool(self.sizes) and self.sizes[-1] % self.vector == 0
        self._indices: list[Index] | None = None
        self.line: Index | None = None  # of a block with a piece of one line: its number
        self.lead: Index = 0  # the first element of the thread's first vector, in the line if there is one
        self.first: Index = 0  # the first elements of all its vectors
        self.mask: str | None = None

    def source(self) -> Source:
        text, threads = self.text, self.schedule.geometry.block[0]
        # starts at the end: an earlier reduction of the tensor has left its last part in the L2 cache
        last = text.number("last block", self.schedule.geometry.grid[0] - 1)
        block = text.plus(text.times(text.here("block"), -1), last)
        held, line = self.schedule.held, self.schedule.line
        if line:
            self.line, block = text.divmod(block, text.divisor("pieces", self.schedule.pieces))
        item = text.plus(text.times(block, threads * held), text.here("thread"))
        self.lead = text.times(item, self.vector)
        self.first = text.ramp(self.lead, held, threads * self.vector)
        count = line or self.schedule.count - self.schedule.rest
        full = self.schedule.pieces * threads * self.vector * held == count
        self.mask = None if full else text.below(self.first, text.number("count", count))
        self._computed()
        if self.schedule.rest:
            self.vector = self.held = 1
            self.mask = text.below(item, text.number("rest", self.schedule.rest))
            self.lead = self.first = text.plus(item, text.number("rest from", count))
            self._computed()
        return text.source(threads, _LARGE_RESIDENT if self.values.large else 1)

    def _computed(self) -> None:
        """Loads, values and stores of the current vectors."""
        text, known = self.text, self._loaded()
        for stage in self.region.stages:
            for let in stage.lets:
                if isinstance(let, Let):
                    known.append(Reg(text.set(self.values.evaluate(let.expr, known, let.dtype).text), let.dtype))
                elif isinstance(let, Bits):
                    known.append(self._bits(let, known))
                else:
                    assert isinstance(let, Fetch), "flat kernels have no scans"
                    known.append(self._fetch(let, known))
        self._written(known)

    def _loaded(self) -> list[Reg | None]:
        used = {v for stage in self.region.stages for v in used_values(stage)}
        known: list[Reg | None] = []
        for number, access in enumerate(self.region.inputs):
            known.append(self._load(number, access) if number in used else None)
        if self.region.index in used:
            counted = self.text.ramp(self.first, self.vector, 1)
            along = counted
            if self.given.outer:
                along = self.text.divmod(counted, self.text.divisor("inner", math.prod(self.given.inner)))[1]
            along = self.text.known(along)
            known.append(Reg(self.text.set(self.text.call("to", (DType.I64,), along)), DType.I64))
        else:
            known.append(None)
        known += [self._index(axis) for axis in self.region.indices]
        return known

    def _index(self, axis: int) -> Reg:
        """The elements' index along an axis."""
        text = self.text
        if not self.whole:
            found = self._unravel(text.ramp(self.first, self.vector, 1))[axis]
        elif axis == len(self.sizes) - 1:
            found = text.ramp(self._unraveled()[axis], self.vector, 1)
        else:
            found = self._unraveled()[axis]
        return Reg(text.set(text.call("to", (DType.I64,), text.known(found))), DType.I64)

    def _unraveled(self) -> list[Index]:
        """The indices of the first vector's first element; of all vectors' if they are in different columns."""
        if self._indices is None:
            self._indices = self._unravel(self.first if self.schedule.apart else self.lead)
        return self._indices

    def _unravel(self, x: Index) -> list[Index]:
        sizes = [self.text.divisor(f"size {axis}", size) for axis, size in enumerate(self.sizes)]
        return self.text.unravel(x, sizes) if self.line is None else [*self.text.unravel(self.line, sizes[:-1]), x]

    def _offset(self, access: Access) -> Index:
        return self.text.number("offset", access.offset) if access.offset else 0

    def _strides(self, access: Access) -> list[Index]:
        return [
            stride if stride in (0, 1) else self.text.number(f"stride {axis}", stride)
            for axis, stride in enumerate(access.strides)
        ]

    def _bits(self, let: Bits, known: list[Reg | None]) -> Reg:
        text, given = self.text, [known[n] for n in (let.seed, let.step, let.row)]
        names = [reg.text for reg in given if reg is not None]
        assert let.place.strides == self.dense
        each = min(self.vector, DRAW_ELEMENTS)
        at = text.known(text.ramp(self.first, self.vector // each, each))
        found = text.call("bits", (each, let.key, let.row_elements, each), *names, at)
        return Reg(text.set(found), DType.I32)

    def _fetch(self, fetch: Fetch, known: list[Reg | None]) -> Reg:
        text, access = self.text, self.region.inputs[fetch.input]
        index, wanted = known[fetch.index], None if fetch.mask is None else known[fetch.mask]
        assert index is not None
        _, place = self._place(access, whole=False)
        at = text.plus(text.set(text.call("to", (text.index_dtype,), index.text)), place)
        mask = text.both(None if wanted is None else wanted.text, self._mask(access, 1))
        found = text.load(access, 1, f"p{fetch.input}", text.known(at), mask)
        return Reg(text.set(found), access.dtype)

    def _load(self, number: int, access: Access) -> Reg:
        text, held = self.text, self.held
        vector, at = self._place(access)
        if self.line is not None and access.strides[-1] == 0:  # one value for the line
            found = text.set(text.load(access, 1, f"p{number}", at, None))
            return Reg(text.set(text.call("each", (held * self.vector,), found)), access.dtype)
        varied = self.schedule.apart or access.strides == self.dense
        again = held > 1 and not varied  # one value, or one per column, for all vectors
        found = text.set(text.load(access, vector, f"p{number}", at, None if again else self._mask(access, vector)))
        if again and any(access.strides):
            found = text.set(text.call("tile", (held, self.vector), found))
        if self.schedule.apart and self.vector > 1 and access.strides[-1] == 0 and any(access.strides):
            found = text.set(text.call("each", (self.vector,), found))  # one value per vector
        return Reg(found, access.dtype)

    def _written(self, known: list[Reg | None]) -> None:
        shift = len(self.region.inputs)
        for stage in self.region.stages:
            for store in stage.stores:
                reg, access = known[store.value], self.region.outputs[store.output]
                assert reg is not None and access.dtype.computed is reg.held
                vector, at = self._place(access)
                mask = self._mask(access, vector)
                self.text.store(access, vector, f"p{shift + store.output}", at, reg.text, mask)
            for flag in stage.flags:
                reg, access = known[flag.value], self.region.outputs[flag.output]
                assert reg is not None
                found = reg.text if self.mask is None else self.text.call("and", (), reg.text, self.mask)
                at = self.text.known(self._offset(access))
                self.text.write(self.text.call("raise_flag", (), f"p{shift + flag.output}", at, found))

    def _mask(self, access: Access, vector: int) -> str | None:
        """The mask of several vectors, for each place at which an argument is loaded or stored."""
        places = 1 if not any(access.strides) or (self.whole and access.strides[-1] == 0) else self.vector // vector
        if self.mask is None or self.held == 1 or places == 1:
            return self.mask
        return self.text.set(self.text.call("each", (places,), self.mask))

    def _place(self, access: Access, whole: bool = True) -> tuple[int, str]:
        """The vector width of a load or store, and the index of the first element (or several indices).

        If not ``whole``: the index of each element; a single one if all elements share it.
        """
        text, wanted = self.text, self.vector
        if not any(access.strides):
            return 1, text.known(self._offset(access))
        if access.strides == self.dense and access.repeat == 1 and self.line is None:
            first, vector = (
                text.plus(self.first, self._offset(access)),
                min(wanted, power_of_two(wanted, access.offset)),
            )
            vector = vector if whole else 1
            return vector, text.known(text.ramp(first, wanted // vector, vector))
        if access.repeat == 1 and (self.whole or wanted == 1):
            first, stride = text.dot(self._offset(access), self._unraveled(), self._strides(access)), access.strides[-1]
            if stride == 0 or wanted == 1:
                return 1, text.known(first)
            vector = power_of_two(wanted, access.offset, *access.strides[:-1]) if stride == 1 and whole else 1
            return vector, text.known(text.ramp(first, wanted // vector, vector * stride))
        each = self._unravel(text.ramp(self.first, wanted, 1))
        if access.repeat > 1:
            each[-1] = text.divmod(each[-1], text.divisor("repeat", access.repeat))[0]
        return 1, text.known(text.dot(self._offset(access), each, self._strides(access)))
