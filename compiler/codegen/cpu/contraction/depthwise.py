"""The weight gradient of a depthwise convolution: sums over the pixels of a channel, with vectors along a line of them.

As a product it would have one column for each group, of which a packed panel has many. Here a task is one output
channel and one line of kernel positions; each vector of the output's gradient meets the inputs of all positions of the
line.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Final

from dslc.compiler.codegen.cpu.kernel_spec import KernelSpec
from dslc.compiler.codegen.cpu.llvm.math import Functions
from dslc.compiler.codegen.cpu.llvm.values import Values
from dslc.compiler.codegen.cpu.llvm.writer import Code, lanes_of
from dslc.compiler.codegen.cpu.region.accumulate import Accumulator
from dslc.compiler.codegen.cpu.region.row import Nest
from dslc.compiler.ir.described import described
from dslc.compiler.ir.types import DType

_AT_ONCE: Final = 7  # kernel positions whose sums are in registers together


@described("DepthwiseWeights", "dtype batch groups out lines counts kernel stride dilation")
@dataclass(frozen=True, slots=True)
class DepthwiseWeights(KernelSpec):
    """``k(x, dy, dw)``: x [batch, groups, *padded] with ``lines`` elements between channels and, then, between
    neighbours along each axis; dy [batch, groups*out, *counts]; dw [groups*out, 1, *kernel]."""

    dtype: DType
    batch: int
    groups: int
    out: int
    lines: tuple[int, ...]
    counts: tuple[int, ...]
    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    dilation: tuple[int, ...]

    @property
    def tasks(self) -> int:
        return self.groups * self.out * math.prod(self.kernel[:-1])

    def emit(self, code: Code) -> None:
        lead = self.kernel[:-1]
        with code.loop(code.last, code.first) as task:
            channel, line = code.divmod(task, math.prod(lead))
            position = code.unravel(line, lead)
            first = code.mul(task, self.kernel[-1])
            for tap in range(0, self.kernel[-1], _AT_ONCE):
                taps = range(tap, min(tap + _AT_ONCE, self.kernel[-1]))
                self._taps(code, channel, position, first, taps)

    def _taps(self, code: Code, channel: Any, position: list[Any], first: Any, taps: range) -> None:
        """Sums for some positions of a line, which is stored from element ``first`` of dw on."""
        x, dy, dw = (code.argument(i) for i in range(3))
        lanes = lanes_of(self.dtype)
        sums = [Accumulator(code, "sum", self.dtype, lanes) for _ in taps]
        group, _ = code.divmod(channel, self.out)
        moves = [n * line for n, line in zip(self.stride, self.lines[1:])]
        steps = [n * line for n, line in zip(self.dilation, self.lines[1:])]
        begin = code.mul(group, self.lines[0])
        for at, step in zip(position, steps):
            begin = code.add(begin, code.mul(at, step))
        with Nest(code, (self.batch, *self.counts[:-1])) as (index, number):
            image, *rows = index
            source = code.add(begin, code.mul(image, self.groups * self.lines[0]))
            for at, move in zip(rows, moves):
                source = code.add(source, code.mul(at, move))
            # `number` counts lines of one channel over all images; those of others lie between two images
            high, low = code.divmod(number, math.prod(self.counts[:-1]))
            line = code.add(code.mul(high, self.groups * self.out), channel)
            target = code.mul(code.add(code.mul(line, math.prod(self.counts[:-1])), low), self.counts[-1])
            self._line(code, (x, source), (dy, target), taps, sums)
        one = Values(code, 1)
        for tap, total in zip(taps, sums):
            one.store(total.total(), dw, code.add(first, tap), 1)

    def _line(self, code: Code, x: tuple[Any, Any], dy: tuple[Any, Any], taps: range, sums: list[Accumulator]) -> None:
        """Adds a line of the output's gradient times the inputs of each position."""
        lanes, count, stride = lanes_of(self.dtype), self.counts[-1], self.stride[-1]

        def vector(at: Any, width: int) -> None:
            values = Values(code, width)
            slope = values.load(dy[0], code.add(dy[1], at), 1, self.dtype)
            source = code.add(x[1], code.mul(at, stride))
            for tap, total in zip(taps, sums):
                part = values.load(x[0], code.add(source, tap * self.dilation[-1]), stride, self.dtype)
                if width < lanes:
                    total.add(values.combine("prod", part, slope), width)
                    continue
                [place] = total.places
                old = code.b.load(place, typ=slope.value.type)
                code.b.store(Functions(code, slope.value.type).fma(part.value, slope.value, old), place)

        whole = count - count % lanes
        if whole:
            with code.loop(whole, 0, lanes) as at:
                vector(at, lanes)
        if count % lanes:
            vector(whole, count % lanes)
