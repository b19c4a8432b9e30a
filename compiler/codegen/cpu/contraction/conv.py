"""Convolutions and their gradients as strided contractions, over any number of spatial axes.

The side that windows slide over is copied once with a border of zeros if there is padding. Then an input element's
address is a term of the window plus a term of the position in the window, so no im2col copy is needed. With stride s,
the gradient of the input splits into s residue classes per axis, each a convolution with every s-th kernel position.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Final

from dslc.compiler.codegen.cpu.contraction.axes import Axis
from dslc.compiler.codegen.cpu.contraction.depthwise import DepthwiseWeights
from dslc.compiler.codegen.cpu.contraction.pack import Fill, Interleave, Pad
from dslc.compiler.codegen.cpu.contraction.plan import Problem, Scratch, lower
from dslc.compiler.codegen.cpu.contraction.steps import Step, Steps
from dslc.compiler.ir.types import DType

_FEW_COLUMNS: Final = 4  # of a group, up to which a product would fill a small part of a panel
MAX_CLASSES: Final = 16  # most kernels that the gradient of the input may become


@dataclass(frozen=True, slots=True)
class Window:
    """One spatial axis: size of the input, kernel size, stride, padding, dilation; ``count``: number of windows."""

    size: int
    k: int
    stride: int
    pad: int
    dilation: int

    @property
    def count(self) -> int:
        return (self.size + 2 * self.pad - self.dilation * (self.k - 1) - 1) // self.stride + 1


@dataclass(frozen=True, slots=True)
class Conv:
    """The shapes of a convolution: x [batch, groups*channels, *size], w [groups*out, channels, *k] and
    y [batch, groups*out, *count]; f32 or f64, dense and row-major. No size is 0."""

    dtype: DType
    batch: int
    groups: int
    channels: int
    out: int
    space: tuple[Window, ...]

    @property
    def taps(self) -> int:
        return math.prod(w.k for w in self.space)

    @property
    def pixels(self) -> int:
        """Pixels of x per channel."""
        return math.prod(w.size for w in self.space)

    @property
    def windows(self) -> int:
        """Pixels of y per channel."""
        return math.prod(w.count for w in self.space)

    def forward(self) -> Steps:
        """in0: x, in1: w, out0: y."""
        scratch = Scratch()
        source, before, plane, lines = self._padded_input(scratch)
        out_lines, taps = _strides([w.count for w in self.space]), _strides([w.k for w in self.space])
        problem = Problem(
            self.dtype,
            (Axis(self.groups, self.channels * plane, self.out * self.channels * self.taps, self.out * self.windows),),
            (
                Axis(self.batch, self.groups * self.channels * plane, 0, self.groups * self.out * self.windows),
                *(Axis(w.count, w.stride * line, 0, to) for w, line, to in zip(self.space, lines, out_lines)),
            ),
            (Axis(self.out, 0, self.channels * self.taps, self.windows),),
            (
                Axis(self.channels, plane, self.taps),
                *(Axis(w.k, w.dilation * line, tap) for w, line, tap in zip(self.space, lines, taps)),
            ),
            self.batch * self.groups * self.out * self.windows,
            a=source,
        )
        return Steps((*before, *lower(problem, scratch)), tuple(scratch.bytes))

    def weight_gradient(self) -> Steps:
        """in0: x, in1: dy (shaped as y), out0: dw (as w)."""
        scratch = Scratch()
        source, before, plane, lines = self._padded_input(scratch)
        if self.channels == 1 < self.groups and self.out <= _FEW_COLUMNS:
            kernel = DepthwiseWeights(
                self.dtype, self.batch, self.groups, self.out, (plane, *lines), tuple(w.count for w in self.space),
                *(tuple(getattr(w, name) for w in self.space) for name in ("k", "stride", "dilation")),
            )  # fmt: skip
            return Steps((*before, Step(kernel, (source, "in1", "out0"))), tuple(scratch.bytes))
        out_lines, taps = _strides([w.count for w in self.space]), _strides([w.k for w in self.space])
        problem = Problem(
            self.dtype,
            (Axis(self.groups, self.channels * plane, self.out * self.windows, self.out * self.channels * self.taps),),
            (
                Axis(self.channels, plane, 0, self.taps),
                *(Axis(w.k, w.dilation * line, 0, tap) for w, line, tap in zip(self.space, lines, taps)),
            ),
            (Axis(self.out, 0, self.windows, self.channels * self.taps),),
            (
                Axis(self.batch, self.groups * self.channels * plane, self.groups * self.out * self.windows),
                *(Axis(w.count, w.stride * line, to) for w, line, to in zip(self.space, lines, out_lines)),
            ),
            self.groups * self.out * self.channels * self.taps,
            a=source,
        )
        return Steps((*before, *lower(problem, scratch)), tuple(scratch.bytes))

    def input_gradient(self) -> Steps | None:
        """in0: dy (shaped as y), in1: w, out0: dx (as x). None if it would take more than MAX_CLASSES kernels and is
        not one product either."""
        classes = [_residue_classes(w) for w in self.space]
        met = list(product(*([c for c in axis if c.taps] for axis in classes)))
        if len(met) > MAX_CLASSES:
            return self._patches_gradient()
        scratch, steps, source = Scratch(), [], "in0"
        apart = self.space[-1].stride > 1 and self.space[-1].size > 1
        planes = self.batch * self.groups * self.channels
        if not apart and len(met) < math.prod(len(axis) for axis in classes):
            steps.append(Step(Fill(self.dtype, planes * self.pixels), ("out0",)))
        low = tuple(max([0, *(-c.least for c in axis if c.taps)]) for axis in classes)
        high = tuple(max([0, *(c.most - w.count + 1 for c in axis if c.taps)]) for axis, w in zip(classes, self.space))
        padding = Pad(self.dtype, self.batch * self.groups * self.out, tuple(w.count for w in self.space), low, high)
        if any(low) or any(high):
            source = scratch.take(self.dtype, padding.elements)
            steps.append(Step(padding, ("in0", source)))
        parts = []
        for here in met:
            problem = self._residue_problem(here, source, low, padding.padded)
            if apart:
                counts = [c.count for c in here]
                parts.append(scratch.take(self.dtype, planes * math.prod(counts)))
                problem = _placed(problem, _strides(counts), math.prod(counts), self.batch, self.channels, parts[-1])
            steps += lower(problem, scratch)
        if apart:
            present = tuple(tuple(c.residue for c in here) for here in met)
            kernel = Interleave(
                self.dtype, planes, tuple(w.size for w in self.space), tuple(w.stride for w in self.space), present
            )
            steps.append(Step(kernel, (*parts, "out0")))
        return Steps(tuple(steps), tuple(scratch.bytes))

    def _patches_gradient(self) -> Steps | None:
        """The gradient of the input as one product, for windows next to each other without padding: each pixel is in
        one window at most. None for other windows."""
        if any(w.pad or w.k != w.stride or (w.dilation != 1 and w.k > 1) for w in self.space):
            return None
        scratch, steps = Scratch(), []
        if any(w.count * w.stride < w.size for w in self.space):
            steps.append(Step(Fill(self.dtype, self.batch * self.groups * self.channels * self.pixels), ("out0",)))
        windows, taps = _strides([w.count for w in self.space]), _strides([w.k for w in self.space])
        lines = _strides([w.size for w in self.space])
        weights = self.channels * self.taps
        problem = Problem(
            self.dtype,
            (Axis(self.groups, self.out * self.windows, self.out * weights, self.channels * self.pixels),),
            (
                Axis(self.batch, self.groups * self.out * self.windows, 0, self.groups * self.channels * self.pixels),
                *(Axis(w.count, at, 0, w.stride * line) for w, at, line in zip(self.space, windows, lines)),
            ),
            (
                Axis(self.channels, 0, self.taps, self.pixels),
                *(Axis(w.k, 0, tap, line) for w, tap, line in zip(self.space, taps, lines)),
            ),
            (Axis(self.out, self.windows, weights),),
            self.batch * self.groups * self.channels * self.pixels,
        )
        return Steps((*steps, *lower(problem, scratch)), tuple(scratch.bytes))

    def _residue_problem(
        self, here: Sequence[_ResidueClass], source: str, low: Sequence[int], padded: Sequence[int]
    ) -> Problem:
        """The contraction for the pixels of x with one residue along each axis, stored at their place in x."""
        lines, plane = _strides(padded), math.prod(padded)
        to, taps = _strides([w.size for w in self.space]), _strides([w.k for w in self.space])
        axes = list(zip(here, self.space, lines, to, taps))
        return Problem(
            self.dtype,
            (Axis(self.groups, self.out * plane, self.out * self.channels * self.taps, self.channels * self.pixels),),
            (
                Axis(self.batch, self.groups * self.out * plane, 0, self.groups * self.channels * self.pixels),
                *(Axis(c.count, line, 0, w.stride * n) for c, w, line, n, _ in axes),
            ),
            (Axis(self.channels, 0, self.taps, self.pixels),),
            (
                Axis(self.out, plane, self.channels * self.taps),
                *(Axis(c.taps, -c.back * line, c.step * tap) for c, _, line, _, tap in axes),
            ),
            self.batch * self.groups * self.channels * self.pixels,
            (
                sum((c.start + first) * line for (c, _, line, _, _), first in zip(axes, low)),
                sum(c.first * tap for c, _, _, _, tap in axes),
                sum(c.residue * n for c, _, _, n, _ in axes),
            ),
            a=source,
        )

    def _padded_input(self, scratch: Scratch) -> tuple[str, list[Step], int, list[int]]:
        """x with its border: its name, the step that makes it, elements per channel, strides of its spatial axes."""
        pad = tuple(w.pad for w in self.space)
        kernel = Pad(self.dtype, self.batch * self.groups * self.channels, tuple(w.size for w in self.space), pad, pad)
        lines, plane = _strides(kernel.padded), math.prod(kernel.padded)
        if not any(pad):
            return "in0", [], plane, lines
        name = scratch.take(self.dtype, kernel.elements)
        return name, [Step(kernel, ("in0", name))], plane, lines


@dataclass(frozen=True, slots=True)
class _ResidueClass:
    """Elements ``residue + stride*i`` of x along an axis, i < ``count``. Each takes part in ``taps`` windows: it is at
    kernel position ``first + step*t`` of window ``start + i - back*t``."""

    residue: int
    count: int
    taps: int = 0
    first: int = 0
    step: int = 1
    start: int = 0
    back: int = 0

    @property
    def least(self) -> int:
        """The smallest index of a window that an element takes part in, possibly outside of y; ``most`` is the
        largest."""
        return self.start - self.back * (self.taps - 1)

    @property
    def most(self) -> int:
        return self.start + self.count - 1


def _residue_classes(w: Window) -> list[_ResidueClass]:
    """The classes of all residues along one axis that an element has."""
    common = math.gcd(w.stride, w.dilation)
    step = w.stride // common
    found = []
    for residue in range(min(w.stride, w.size)):
        count = -(-(w.size - residue) // w.stride)
        first = next((k for k in range(min(w.k, step)) if (residue + w.pad - k * w.dilation) % w.stride == 0), None)
        if first is None:
            found.append(_ResidueClass(residue, count))
            continue
        start = (residue + w.pad - first * w.dilation) // w.stride
        found.append(_ResidueClass(residue, count, -(-(w.k - first) // step), first, step, start, w.dilation // common))
    return found


def _placed(p: Problem, lines: Sequence[int], pixels: int, batch: int, channels: int, name: str) -> Problem:
    """The class with a dense result, [batch, groups, channels, *count], in scratch memory of that name."""
    [groups], [image, *axes], [channel] = p.batch, p.left, p.right
    return replace(
        p,
        batch=(replace(groups, c=channels * pixels),),
        left=(
            replace(image, c=groups.size * channels * pixels),
            *(replace(x, c=line) for x, line in zip(axes, lines)),
        ),
        right=(replace(channel, c=pixels),),
        size=batch * groups.size * channels * pixels,
        starts=(*p.starts[:2], 0),
        c=name,
    )


def _strides(sizes: Sequence[int]) -> list[int]:
    """The strides of a dense tensor."""
    return [math.prod(sizes[i + 1 :]) for i in range(len(sizes))]
