"""Depthwise convolutions of images with channels last, and their gradients: vectors lie along the channels.

Neither the image nor the output's gradient is copied: what lies beyond the border is left out. The weights are turned
to [taps, channels] first. A result, and a gradient of the image, sums its kernel positions in order; the gradient of
the weights sums pixels in order within parts of the lines, then the parts. Both depend only on the shape.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from dslc.compiler.codegen.cpu.contraction.depthwise_sums import DepthwiseSums
from dslc.compiler.codegen.cpu.contraction.layouts import Window
from dslc.compiler.codegen.cpu.contraction.pack import Combine
from dslc.compiler.codegen.cpu.contraction.pixels import Met, Pixels
from dslc.compiler.codegen.cpu.contraction.plan import Scratch
from dslc.compiler.codegen.cpu.contraction.steps import Step, Steps
from dslc.compiler.codegen.cpu.llvm.math import Functions
from dslc.compiler.codegen.cpu.llvm.values import Values
from dslc.compiler.codegen.cpu.llvm.writer import Code
from dslc.compiler.codegen.cpu.region.size_generic import RegionLaunch
from dslc.compiler.codegen.region.ir import Access
from dslc.compiler.codegen.region.pointwise import copy
from dslc.compiler.ir.described import described
from dslc.compiler.ir.types import DType


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

    def pixel(
        self, code: Code, image: Any, met: Sequence[Met], target: Any, first: Any, each: Sequence[tuple[int, Values]]
    ) -> None:
        source, weights, out = (code.argument(i) for i in range(3))
        sums = [values.const(0, self.dtype).value for _, values in each]

        def add(element: Any, tap: Any) -> None:
            x, w = code.add(element, first), code.add(code.mul(tap, self.channels), first)
            for n, (lane, values) in enumerate(each):
                a = values.load(source, code.add(x, lane), 1, self.dtype).value
                b = values.load(weights, code.add(w, lane), 1, self.dtype).value
                sums[n] = Functions(code, a.type).fma(a, b, sums[n])

        self.visit(code, image, met, sums, add)
        for total, (lane, values) in zip(sums, each):
            values.store_value(total, self.dtype, out, code.add(target, lane), 1)
