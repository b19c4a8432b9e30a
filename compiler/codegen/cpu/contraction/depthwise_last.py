"""Depthwise convolutions of images with channels last, and their gradients: vectors lie along the channels.

Neither the image nor the output's gradient is copied: what lies beyond the border is left out. The weights are turned
to [taps, channels] first. A result, and a gradient of the image, sums its kernel positions in order; the gradient of
the weights sums pixels in order within parts of the lines, then the parts. Both depend only on the shape.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from dslc.compiler.codegen.cpu.contraction.layouts import Window
from dslc.compiler.codegen.cpu.contraction.pack import Combine
from dslc.compiler.codegen.cpu.contraction.pixels import (
    AT_ONCE,
    Met,
    Pixel,
    Pixels,
    ceil,
    forth,
    positive,
    split,
    vectors,
)
from dslc.compiler.codegen.cpu.contraction.plan import Scratch
from dslc.compiler.codegen.cpu.contraction.steps import Step, Steps
from dslc.compiler.codegen.cpu.kernel_spec import KernelSpec
from dslc.compiler.codegen.cpu.llvm.math import Functions
from dslc.compiler.codegen.cpu.llvm.values import Values
from dslc.compiler.codegen.cpu.llvm.writer import I64, VECTOR_BYTES, Code, lane_type, lanes_of
from dslc.compiler.codegen.cpu.region.size_generic import RegionLaunch
from dslc.compiler.codegen.region.ir import Access
from dslc.compiler.codegen.region.pointwise import copy
from dslc.compiler.ir.described import described
from dslc.compiler.ir.types import DType

_TASKS: Final = 32  # parts and blocks of channels, about


@dataclass(frozen=True, slots=True)
class DepthwiseLast:
    """x [batch, *size, channels], w [channels, *k, 1], y [batch, *count, channels]; f32 or f64. No size is 0."""

    dtype: DType
    batch: int
    channels: int
    space: tuple[Window, ...]

    @property
    def taps(self) -> int:
        return math.prod(w.k for w in self.space)

    def forward(self) -> Steps:
        """in0: x, in1: w, out0: y."""
        return self._over_taps(False)

    def input_gradient(self) -> Steps:
        """in0: dy (shaped as y), in1: w, out0: dx (as x)."""
        return self._over_taps(True)

    def weight_gradient(self) -> Steps:
        """in0: x, in1: dy (shaped as y), out0: dw (as w)."""
        kernel, scratch = DepthwiseSums(self.dtype, self.batch, self.channels, self.space), Scratch()
        if kernel.parts == 1:
            return Steps((Step(kernel, ("in0", "in1", "out0")),))
        count = self.channels * self.taps
        parts = scratch.take(self.dtype, kernel.parts * count)
        combine = Step(Combine(self.dtype, kernel.parts, count), (parts, "out0"))
        return Steps((Step(kernel, ("in0", "in1", parts)), combine), tuple(scratch.bytes))

    def _over_taps(self, gradient: bool) -> Steps:
        scratch = Scratch()
        weights = scratch.take(self.dtype, self.channels * self.taps)
        given, made = Access(self.dtype, (1, self.taps)), Access(self.dtype, (self.channels, 1))
        turn = replace(copy([self.taps, self.channels], given, made), canonical_strides=())
        kernel = DepthwiseTaps(self.dtype, self.batch, self.channels, self.space, gradient)
        steps = Step(RegionLaunch(turn), ("in1", weights)), Step(kernel, ("in0", weights, "out0"))
        return Steps(steps, tuple(scratch.bytes))


@described("DepthwiseTaps", "dtype batch channels space gradient")
@dataclass(frozen=True, slots=True)
class DepthwiseTaps(Pixels):
    """``k(source, w, target)``: x to y, or dy to dx if ``gradient``; w [taps, channels]."""

    dtype: DType
    batch: int
    channels: int
    space: tuple[Window, ...]
    gradient: bool

    def pixel(self, code: Code, at: Pixel) -> None:
        source, weights, out = (code.argument(i) for i in range(3))
        sums = [values.const(0, self.dtype).value for _, values in at.vectors]

        def add(element: Any, tap: Any) -> None:
            w = code.add(code.mul(tap, self.channels), at.channel)
            for n, (lane, values) in enumerate(at.vectors):
                a = values.load(source, code.add(element, lane), 1, self.dtype).value
                b = values.load(weights, code.add(w, lane), 1, self.dtype).value
                sums[n] = Functions(code, a.type).fma(a, b, sums[n])

        self.visit(code, at, sums, add)
        for total, (lane, values) in zip(sums, at.vectors):
            values.store_value(total, self.dtype, out, code.add(at.target, lane), 1)


@described("DepthwiseSums", "dtype batch channels space")
@dataclass(frozen=True, slots=True)
class DepthwiseSums(KernelSpec):
    """``k(x, dy, dw)``: dw [parts, channels, taps]. A task is a block of channels of a part of the lines of dy."""

    dtype: DType
    batch: int
    channels: int
    space: tuple[Window, ...]

    @property
    def lines(self) -> int:
        return self.batch * math.prod(w.count for w in self.space[:-1])

    @property
    def width(self) -> int:
        """Channels of a block."""
        return AT_ONCE * lanes_of(self.dtype)

    @property
    def blocks(self) -> int:
        return -(-self.channels // self.width)

    @property
    def parts(self) -> int:
        return -(-self.lines // self.length)

    @property
    def length(self) -> int:
        """Lines of a part."""
        return -(-self.lines // max(1, min(self.lines, _TASKS // self.blocks)))

    @property
    def taps(self) -> int:
        return math.prod(w.k for w in self.space)

    @property
    def tasks(self) -> int:
        return self.parts * self.blocks

    def emit(self, code: Code) -> None:
        sums = code.local(lane_type(self.dtype), self.taps * self.width, align=VECTOR_BYTES)
        with code.loop(code.last, code.first) as task:
            part, number = code.divmod(task, self.blocks)
            first, whole = code.mul(number, self.width), self.channels // self.width
            rest = split(self.dtype, self.channels % self.width)
            full = split(self.dtype, self.width)
            if rest and whole:
                with code.b.if_else(code.b.icmp_signed("<", code.int(number), I64(whole))) as (then, otherwise):
                    with then:
                        self._part(code, part, first, full, sums)
                    with otherwise:
                        self._part(code, part, first, rest, sums)
            else:
                self._part(code, part, first, full if whole else rest, sums)

    def _part(self, code: Code, part: Any, first: Any, lanes: Sequence[int], sums: Any) -> None:
        """The sums of a part for some channels."""
        each = vectors(code, self.dtype, lanes)
        counts = [w.count for w in self.space]
        with code.loop(self.taps) as tap:
            for lane, values in each:
                zero = values.const(0, self.dtype).value
                values.store_value(zero, self.dtype, sums, code.add(code.mul(tap, self.width), lane), 1)
        start = code.mul(part, self.length)
        with code.loop(code.least(code.add(start, self.length), self.lines), start) as line:
            image, *outer = code.unravel(line, (self.batch, *counts[:-1]))
            met = [forth(code, w, at) for w, at in zip(self.space, outer)]

            def along(axis: int, pixel: Any, tap: Any, line: Any = line, met: Sequence[Met] = met) -> None:
                if axis < len(met):
                    m = met[axis]
                    with code.loop(m.high, m.low) as j:
                        there = code.add(m.pixel, code.mul(j, m.pixel_step))
                        size, k = self.space[axis].size, self.space[axis].k
                        along(axis + 1, code.add(code.mul(pixel, size), there), code.add(code.mul(tap, k), j))
                    return
                with code.loop(self.space[-1].k) as j:
                    self._line(code, pixel, line, j, code.add(code.mul(tap, self.space[-1].k), j), first, each, sums)

            along(0, image, 0)
        with code.loop(self.taps) as tap:
            for lane, values in each:
                total = values.load(sums, code.add(code.mul(tap, self.width), lane), 1, self.dtype)
                channel = code.add(code.add(code.mul(part, self.channels), first), lane)
                values.store(total, code.argument(2), code.add(code.mul(channel, self.taps), tap), self.taps)

    def _line(
        self, code: Code, pixel: Any, line: Any, j: Any, tap: Any, first: Any, each: Sequence[tuple[int, Values]],
        sums: Any,
    ) -> None:  # fmt: skip
        """Adds a line of dy times the pixels of x that position ``j`` of the windows meets."""
        w, x, dy = self.space[-1], code.argument(0), code.argument(1)
        place = code.mul(tap, self.width)
        totals = [values.load(sums, code.add(place, lane), 1, self.dtype).value for lane, values in each]
        ahead = code.add(code.mul(j, -w.dilation), w.pad)  # what a window begins before the pixel that it meets
        low = ceil(code, positive(code, ahead), w.stride)
        high = code.least(w.count, ceil(code, positive(code, code.add(ahead, w.size)), w.stride))
        with code.loop(high, low, carried=totals) as at:
            there = code.add(code.mul(at, w.stride), code.mul(ahead, -1))
            source = code.add(code.mul(code.add(code.mul(pixel, w.size), there), self.channels), first)
            slope = code.add(code.mul(code.add(code.mul(line, w.count), at), self.channels), first)
            for n, (lane, values) in enumerate(each):
                a = values.load(x, code.add(source, lane), 1, self.dtype).value
                b = values.load(dy, code.add(slope, lane), 1, self.dtype).value
                totals[n] = Functions(code, a.type).fma(a, b, totals[n])
        for total, (lane, values) in zip(totals, each):
            values.store_value(total, self.dtype, sums, code.add(place, lane), 1)
