"""Reductions in registers: vectors of partial results, and their final combination."""

from __future__ import annotations

import math
from typing import Any

from llvmlite import ir

from dslc.compiler.codegen.cpu.llvm.values import Values
from dslc.compiler.codegen.cpu.llvm.writer import I64, Code, Reg, lane_type, shuffle_of, wide
from dslc.compiler.codegen.region.ir import Combine
from dslc.compiler.codegen.region.queries import identity
from dslc.compiler.ir.types import DType


class Accumulator:
    """``ways`` vectors of partial results, so that an addition need not wait for the one before; ``add`` selects the
    way.

    max and min of floats ignore nan and record that there was one: an instruction instead of four.
    """

    def __init__(self, code: Code, combine: Combine, dtype: DType, width: int, ways: int = 1) -> None:
        self.code, self.b, self.combine, self.dtype, self.width = code, code.b, combine, dtype, width
        self.values = Values(code, width)
        self.start = self.values.const(identity(combine, dtype), dtype).value
        self.places = [code.local(self.start.type) for _ in range(ways)]
        for place in self.places:
            self.b.store(self.start, place)
        self.unordered = None
        if dtype.is_float and combine in ("max", "min"):  # all bits of a lane, as a comparison gives them
            self.mask = wide(ir.IntType(8 * dtype.computed.itemsize), width)
            self.unordered = code.local(self.mask)
            self.b.store(self._no_mask(), self.unordered)

    def add(self, reg: Reg, lanes: int, way: int = 0) -> None:
        """Combines a vector of ``lanes``, at most ``width``, with the partial result."""
        value = reg.value if lanes == self.width else self._widened(reg.value, lanes)
        place = self.places[way]
        old = self.b.load(place, typ=self.start.type)
        if self.unordered is None:
            self.b.store(self.values.combine(self.combine, Reg(old, self.dtype), Reg(value, self.dtype)).value, place)
            return
        ahead = self.b.fcmp_ordered(">" if self.combine == "max" else "<", value, old)
        self.b.store(self.b.select(ahead, value, old), place)
        seen = self.b.load(self.unordered, typ=self.mask)
        here = self.b.sext(self.b.fcmp_unordered("uno", value, value), self.mask)
        self.b.store(self.b.or_(seen, here), self.unordered)

    def _no_mask(self) -> Any:
        return ir.Constant(self.mask, [0] * self.width if self.width > 1 else 0)

    def _widened(self, value: Any, lanes: int) -> Any:
        """Fills missing lanes with the identity element."""
        if lanes == 1:
            return self.b.insert_element(self.start, value, I64(0))
        pad = Values(self.code, lanes).const(identity(self.combine, self.dtype), self.dtype).value
        picks = [min(i, lanes) for i in range(self.width)]
        return self.b.shuffle_vector(value, pad, shuffle_of(*picks))

    def lanes(self) -> Reg:
        """The result of each lane."""
        regs = [Reg(self.b.load(p, typ=self.start.type), self.dtype) for p in self.places]
        while len(regs) > 1:
            regs = [self.values.combine(self.combine, x, y) for x, y in zip(regs[::2], regs[1::2])]
        if self.unordered is None:
            return regs[0]
        nan = self.values.const(math.nan, self.dtype).value
        return Reg(self.b.select(self._seen(), nan, regs[0].value), self.dtype)

    def _seen(self) -> Any:
        """Whether each lane met nan."""
        assert self.unordered is not None
        return self.b.icmp_unsigned("!=", self.b.load(self.unordered, typ=self.mask), self._no_mask())

    def total(self) -> Reg:
        """Combines the lanes: the upper half with the lower, repeatedly."""
        reg, width = self.lanes(), self.width
        while width > 1:
            width //= 2
            halves = [self._lanes(reg.value, range(start, start + width)) for start in (0, width)]
            reg = Values(self.code, width).combine(self.combine, *(Reg(h, self.dtype) for h in halves))
        return reg

    def _lanes(self, vector: Any, lanes: range) -> Any:
        if len(lanes) == 1:
            return self.b.extract_element(vector, I64(lanes[0]))
        return self.values.picked(vector, lanes)


class Running:
    """The carry of a scan along rows. ``rows``: one lane per row, or 1 if the vectors lie along one row."""

    def __init__(self, code: Code, combine: Combine, dtype: DType, exclusive: bool, rows: int) -> None:
        self.code, self.b, self.combine, self.dtype = code, code.b, combine, dtype
        self.exclusive, self.rows = exclusive, rows
        values = Values(code, rows)
        self.carry = code.local(wide(lane_type(dtype), rows))
        self.b.store(values.const(identity(combine, dtype), dtype).value, self.carry)

    def of_rows(self, reg: Reg) -> Reg:
        """Scans the next element of each row."""
        old = Reg(self.b.load(self.carry, typ=reg.value.type), self.dtype)
        new = Values(self.code, self.rows).combine(self.combine, old, reg)
        self.b.store(new.value, self.carry)
        return old if self.exclusive else new

    def along(self, reg: Reg, lanes: int) -> Reg:
        """Scans the next ``lanes`` elements of one row: each lane combines those below it, in steps of 1, 2, 4, ..."""
        values, start = Values(self.code, lanes), identity(self.combine, self.dtype)
        old = Reg(self.b.load(self.carry, typ=wide(lane_type(self.dtype), 1)), self.dtype)
        step = 1
        while step < lanes:
            reg = values.combine(self.combine, self._shifted(reg, step, values.const(start, self.dtype)), reg)
            step *= 2
        splat = Reg(values.splat(old.value), self.dtype)
        new = values.combine(self.combine, splat, reg)
        last = new.value if lanes == 1 else self.b.extract_element(new.value, I64(lanes - 1))
        self.b.store(last, self.carry)
        return self._shifted(new, 1, splat) if self.exclusive else new

    def _shifted(self, reg: Reg, step: int, fill: Reg) -> Reg:
        """Moves each lane up by ``step``; the lowest lanes come from ``fill``."""
        lanes = reg.value.type.count if isinstance(reg.value.type, ir.VectorType) else 1
        if lanes == 1:
            return fill
        picks = [lane - step if lane >= step else lanes for lane in range(lanes)]
        mask = shuffle_of(*picks)
        return Reg(self.b.shuffle_vector(reg.value, fill.value, mask), reg.dtype)
