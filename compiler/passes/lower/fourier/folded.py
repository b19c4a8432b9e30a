"""Makes a transform from products with a quarter or half of its matrix: cosines are even, and sines are odd.

Elements n and count - n have equal cosines and opposite sines as factors, so their sums and differences are multiplied.
Result count - k has the sum of cosines of result k, and the opposite sum of sines, so both come from the same sums::

    cosines[k] = x[0] + sum over n from 1 to count / 2 of (x[n] + x[count - n]) * cos(n * k)
    sines[k] = sum over n from 1 to count / 2 of (x[n] - x[count - n]) * sin(n * k)

This is for orders that stages do not divide well, such as primes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dslc.compiler.ir.graph import Value
from dslc.compiler.ir.op import Builder, Op
from dslc.compiler.ops.elementwise.arithmetic import add, mul, neg, sub
from dslc.compiler.ops.lazy import np
from dslc.compiler.ops.shape.slicing import concat, slice_
from dslc.compiler.passes.lower.fourier.stages import Stages


@dataclass(frozen=True)
class Folded:
    """The nodes of a transform of re, or of re and im, [rows, given], to ``outputs`` results."""

    stages: Stages
    given: int
    outputs: int

    @property
    def b(self) -> Builder:
        return self.stages.b

    @property
    def count(self) -> int:
        return self.stages.roots.count

    @property
    def half(self) -> int:
        """The last of the results that are computed."""
        return min(self.outputs - 1, self.count // 2)

    def results(self, x: Sequence[Value], parts: Sequence[int]) -> list[Value]:
        """[rows, outputs] for each of ``parts``: 0 for the real and 1 for the imaginary ones."""
        return [self._part(x, part) for part in parts]

    def _part(self, x: Sequence[Value], part: int) -> Value:
        """The real parts: cosines of re, less sines of im if there is one. The imaginary parts: sines of re and cosines
        of im."""
        cosines = self._cosines(x[part]) if part < len(x) else None
        sines = self._sines(x[1 - part]) if part or len(x) == 2 else None
        first = self._sum(cosines, sines, part == 0)
        if self.outputs <= self.half + 1:
            return first
        ends = self.count - self.half - 1, self.count - self.outputs
        back = [None if each is None else self._slice(each, *ends, -1) for each in (cosines, sines)]
        tail = self._sum(back[0], back[1], part == 1)
        return self.b(concat, first, tail, axis=1)

    def _sum(self, cosines: Value | None, sines: Value | None, is_less: bool) -> Value:
        if sines is None:
            assert cosines is not None
            return cosines
        if cosines is None:
            return self.b(neg, sines) if is_less else sines
        return self.b(sub if is_less else add, cosines, sines)

    def _cosines(self, x: Value) -> Value:
        if self.given < self.count:
            return self.stages.rows_times(x, 0, self.given, self.half + 1, sine=False)
        last, dtype = self.count // 2, x.type.dtype
        both = self._both(x, last, add)
        if self.count % 2 == 0:  # the middle element is its own opposite
            both = self.b(mul, both, self.stages.stored(np.append(np.ones(last - 1), 0.5), dtype))
        y = self.stages.rows_times(both, 1, last, self.half + 1, sine=False)
        first = self._slice(x, 0, 1, 1)
        if self.stages.roots.scale != 1.0:
            first = self.b(mul, first, self.stages.stored(np.array([self.stages.roots.scale]), dtype))
        return self.b(add, y, first)

    def _sines(self, x: Value) -> Value:
        if self.given < self.count:
            return self.stages.rows_times(x, 0, self.given, self.half + 1, sine=True)
        last = self.count // 2  # the sine of the middle element is 0; so both kinds of sums have one matrix of places
        return self.stages.rows_times(self._both(x, last, sub), 1, last, self.half + 1, sine=True)

    def _both(self, x: Value, last: int, op: Op) -> Value:
        """The sums or differences of elements 1 to ``last`` and their opposites."""
        there = self._slice(x, 1, last + 1, 1)
        back = self._slice(x, self.count - 1, self.count - 1 - last, -1)
        return self.b(op, there, back)

    def _slice(self, x: Value, start: int, stop: int, step: int) -> Value:
        return self.b(slice_, x, starts=(0, start), stops=(x.type.ints[0], stop), steps=(1, step))
