"""Emits regions without reductions: one or several vectors of elements per thread; loads first, then values, then
stores.

Sizes, strides and offsets are kernel arguments. Regions that differ only in these, as those of many layers do, share a
kernel.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Final

from dslc.compiler.codegen.cuda.region.flat_addresses import FlatAddresses, Vectors
from dslc.compiler.codegen.cuda.region.schedule import DRAW_ELEMENTS, flattened, needs_wide_index
from dslc.compiler.codegen.cuda.region.source import Source
from dslc.compiler.codegen.cuda.region.thread_mapping import Flat
from dslc.compiler.codegen.cuda.region.values import Reg, Values
from dslc.compiler.codegen.cuda.region.writer import Index, SourceWriter
from dslc.compiler.codegen.launch import ScalarArgs
from dslc.compiler.codegen.region.ir import Access, Bits, Fetch, Let, Region, Scan, SetFlag, Store
from dslc.compiler.codegen.region.queries import used_values
from dslc.compiler.ir.types import DType

_LARGE_RESIDENT: Final = 2  # blocks of a large tree; one alone has no other warps while it waits


def flat_source(name: str, region: Region, schedule: Flat) -> tuple[Source, ScalarArgs]:
    """The kernel's source, and its scalar arguments after the pointers."""
    kernel = _FlatKernel(name, region, schedule)
    return kernel.source(), kernel.text.scalar_args


class _FlatKernel:
    """Divides the elements among threads. A thread computes its vectors, then perhaps one element of the rest."""

    def __init__(self, name: str, region: Region, schedule: Flat) -> None:
        self.region, self.schedule = flattened(region), schedule
        self.inner = math.prod(region.inner) if region.outer else None  # elements of a row; None for a single row
        self.text = SourceWriter(name, len(region.inputs) + len(region.outputs), needs_wide_index(region))
        self.values = Values(self.text)
        self.threads = schedule.geometry.block[0]

    def source(self) -> Source:
        line, block = self._block()
        thread = self.text.plus(
            self.text.times(block, self.threads * self.schedule.held), self.text.here("thread")
        )  # the number of its first vector
        vectors = self._vectors(line, thread)
        _Elements(self, vectors).emit()
        if self.schedule.rest:
            _Elements(self, self._rest(vectors, thread)).emit()
        return self.text.source(self.threads, _LARGE_RESIDENT if self.values.large else 1)

    def _block(self) -> tuple[Index | None, Index]:
        """The line of the block, if blocks have one, and the block's number, in its line or of all.

        Blocks start at the end of the elements: an earlier reduction of the tensor has left its last part in the L2
        cache.
        """
        text = self.text
        last = text.number("last block", self.schedule.geometry.grid[0] - 1)
        block = text.plus(text.times(text.here("block"), -1), last)
        return text.divmod(block, text.divisor("pieces", self.schedule.pieces)) if self.schedule.line else (None, block)

    def _vectors(self, line: Index | None, thread: Index) -> Vectors:
        """The vectors of the thread, ``self.threads`` vectors apart."""
        text, schedule = self.text, self.schedule
        width, held = schedule.vector, schedule.held
        start = text.times(thread, width)
        starts = text.ramp(start, held, self.threads * width)
        count = schedule.line or schedule.count - schedule.rest
        is_full = schedule.pieces * self.threads * width * held == count
        mask = None if is_full else text.below(starts, text.number("count", count))
        return Vectors(width, held, start, starts, mask, line)

    def _rest(self, vectors: Vectors, thread: Index) -> Vectors:
        """One element of those that are no whole vector."""
        text, rest = self.text, self.schedule.rest
        mask = text.below(thread, text.number("rest", rest))
        element = text.plus(thread, text.number("rest from", self.schedule.count - rest))
        return replace(vectors, width=1, count=1, start=element, starts=element, mask=mask)


class _Elements:
    """Emits loads, values and stores of vectors. ``known``: the region's values so far, by number; None for one that
    is not used."""

    def __init__(self, kernel: _FlatKernel, vectors: Vectors) -> None:
        self.region, self.text, self.values, self.inner = kernel.region, kernel.text, kernel.values, kernel.inner
        self.vectors, self.apart = vectors, kernel.schedule.apart
        self.addresses = FlatAddresses(self.text, self.region.outer, vectors, apart=self.apart)
        self.known: list[Reg | None] = []

    def emit(self) -> None:
        self._load_inputs()
        for stage in self.region.stages:
            for let in stage.lets:
                self.known.append(self._computed(let))
        for stage in self.region.stages:
            for store in stage.stores:
                self._store(store)
            for flag in stage.flags:
                self._set_flag(flag)

    def _load_inputs(self) -> None:
        used = {v for stage in self.region.stages for v in used_values(stage)}
        for number, access in enumerate(self.region.inputs):
            self.known.append(self._loaded(number, access) if number in used else None)
        self.known.append(self._inner_index() if self.region.index in used else None)
        self.known += [self._as_value(self.addresses.along(axis)) for axis in self.region.indices]

    def _inner_index(self) -> Reg:
        """The elements' indices in their rows."""
        index = self.addresses.elements
        if self.inner is not None:
            index = self.text.divmod(index, self.text.divisor("inner", self.inner))[1]
        return self._as_value(index)

    def _as_value(self, index: Index) -> Reg:
        known = self.text.known(index)
        return Reg(self.text.set(self.text.call("to", (DType.I64,), known)), DType.I64)

    def _loaded(self, number: int, access: Access) -> Reg:
        """The elements of an input."""
        text, vectors, pointer = self.text, self.vectors, f"p{number}"
        if self.addresses.has_row_values(access):
            values = [text.load(access, 1, pointer, at, mask) for at, mask in self.addresses.row_values(access)]
            first, following = (text.set(text.call("each", (vectors.width,), text.set(value))) for value in values)
            return Reg(text.set(text.call("select", (), self.addresses.row_end.before, first, following)), access.dtype)
        address = self.addresses.address(access)
        if vectors.line is not None and access.strides[-1] == 0:  # one value for the line
            value = text.set(text.load(access, 1, pointer, address.starts, None))
            return Reg(text.set(text.call("each", (vectors.count * vectors.width,), value)), access.dtype)
        shared = vectors.count > 1 and not self.apart and access.strides != self.addresses.dense
        if shared:  # by all vectors: one value, or one per column, and every column exists
            value = text.set(text.load(access, address.width, pointer, address.starts, None))
            if any(access.strides):
                value = text.set(text.call("tile", (vectors.count, vectors.width), value))
            return Reg(value, access.dtype)
        mask = self.addresses.mask(access, address.width)
        value = text.set(text.load(access, address.width, pointer, address.starts, mask))
        one_per_vector = self.apart and vectors.width > 1 and access.strides[-1] == 0 and any(access.strides)
        if one_per_vector:
            value = text.set(text.call("each", (vectors.width,), value))
        return Reg(value, access.dtype)

    def _computed(self, let: Let | Fetch | Scan | Bits) -> Reg:
        assert not isinstance(let, Scan), "flat kernels have no scans"
        match let:
            case Let():
                return Reg(self.text.set(self.values.evaluate(let.expr, self.known, let.dtype).text), let.dtype)
            case Bits():
                return self._random_bits(let)
            case Fetch():
                return self._fetched(let)

    def _random_bits(self, bits: Bits) -> Reg:
        text, inputs = self.text, [self._known(n).text for n in (bits.seed, bits.step, bits.row)]
        assert bits.place.strides == self.addresses.dense
        together = min(self.vectors.width, DRAW_ELEMENTS)  # neighbours of one draw
        starts = text.known(text.ramp(self.vectors.starts, self.vectors.width // together, together))
        drawn = text.call("bits", (together, bits.key, bits.row_elements, together), *inputs, starts)
        return Reg(text.set(drawn), DType.I32)

    def _fetched(self, fetch: Fetch) -> Reg:
        text, access, index = self.text, self.region.inputs[fetch.input], self._known(fetch.index)
        base = self.addresses.address(access, widest=1).starts
        place = text.plus(text.set(text.call("to", (text.index_dtype,), index.text)), base)
        wanted = None if fetch.mask is None else self._known(fetch.mask).text
        mask = text.both(wanted, self.addresses.mask(access, 1))
        value = text.load(access, 1, f"p{fetch.input}", text.known(place), mask)
        return Reg(text.set(value), access.dtype)

    def _store(self, store: Store) -> None:
        value, access = self._known(store.value), self.region.outputs[store.output]
        assert access.dtype.computed is value.held
        address = self.addresses.address(access)
        mask = self.addresses.mask(access, address.width)
        self.text.store(access, address.width, self._output(store.output), address.starts, value.text, mask)

    def _set_flag(self, flag: SetFlag) -> None:
        text, condition, mask = self.text, self._known(flag.value).text, self.vectors.mask
        if mask is not None:
            condition = text.call("and", (), condition, mask)
        place = text.known(self.addresses.offset(self.region.outputs[flag.output]))
        text.write(text.call("raise_flag", (), self._output(flag.output), place, condition))

    def _output(self, number: int) -> str:
        """The pointer of an output."""
        return f"p{len(self.region.inputs) + number}"

    def _known(self, number: int) -> Reg:
        value = self.known[number]
        assert value is not None, f"value {number} is not used"
        return value
