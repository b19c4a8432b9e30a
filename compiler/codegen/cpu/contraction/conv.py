"""Convolutions and their gradients as strided contractions, over any number of spatial axes.

The side that windows slide over is copied once with a border of zeros if there is padding, or the product is taken
apart by what meets the image (``parts.py``). Then an input element's address is a term of the window plus a term of the
position in the window, so no im2col copy is needed. With stride s, the gradient of the input splits into s residue
classes per axis, each a convolution with every s-th kernel position.
Channels are before the spatial axes or after them: only strides differ.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import Final, TypeVar

from dslc.compiler.codegen.cpu.contraction import parts
from dslc.compiler.codegen.cpu.contraction.axes import Axis
from dslc.compiler.codegen.cpu.contraction.depthwise import DepthwiseWeights
from dslc.compiler.codegen.cpu.contraction.depthwise_lines import DepthwiseLines
from dslc.compiler.codegen.cpu.contraction.layouts import Image, Weights, Window, row_major
from dslc.compiler.codegen.cpu.contraction.pack import Fill, Interleave, Pad
from dslc.compiler.codegen.cpu.contraction.parts import Band, Part, ResidueClass, placed, residue_classes
from dslc.compiler.codegen.cpu.contraction.plan import Problem, Scratch, lower
from dslc.compiler.codegen.cpu.contraction.steps import Step, Steps
from dslc.compiler.ir.types import DType

_FEW_COLUMNS: Final = 4  # of a group, up to which a product would fill a small part of a panel
T = TypeVar("T")
MAX_CLASSES: Final = 16  # most kernels that the gradient of the input may become


@dataclass(frozen=True, slots=True)
class Conv:
    """The shapes of a convolution: x [batch, groups*channels, *size], w [groups*out, channels, *k] and
    y [batch, groups*out, *count]; f32 or f64, dense and row-major. No size is 0. With ``last``, axis 1 of each is the
    last one in memory."""

    dtype: DType
    batch: int
    groups: int
    channels: int
    out: int
    space: tuple[Window, ...]
    last: bool = False

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

    def image(self, size: Sequence[int]) -> Image:
        """The strides of an image with the channels of x."""
        return Image.of(self.last, self.groups, self.channels, size)

    @property
    def result(self) -> Image:
        """The strides of y."""
        return Image.of(self.last, self.groups, self.out, [w.count for w in self.space])

    @property
    def weights(self) -> Weights:
        """The strides of w."""
        return Weights.of(self.last, self.out, self.channels, [w.k for w in self.space])

    def forward(self) -> Steps:
        """in0: x, in1: w, out0: y."""
        if not self.last and self.channels == 1 < self.groups:
            kernel = DepthwiseLines(self.dtype, self.batch, self.groups, self.out, self.space)
            if kernel.possible:
                return Steps((Step(kernel, ("in0", "in1", "out0")),))
        scratch = Scratch()
        axes = [(s.count, s.k, s.stride, s.dilation) for s in self.space]
        image = self.image([s.size for s in self.space])
        return parts.of_input(self._results, self.space, axes, image, self._padded_input(scratch), scratch)

    def _results(self, source: str, x: Image, begin: Sequence[int], here: Sequence[Band]) -> Part:
        """The contraction for some pixels of y by some taps."""
        y, w = self.result, self.weights
        axes = list(zip(self.space, here, x.lines, y.lines, w.taps))
        problem = Problem(
            self.dtype,
            (Axis(self.groups, x.group, w.group, y.group),),
            (
                Axis(self.batch, x.image, 0, y.image),
                *(Axis(b.results, s.stride * line, 0, to) for s, b, line, to, _ in axes),
            ),
            (Axis(self.out, 0, w.out, y.channel),),
            self._inner(
                Axis(self.channels, x.channel, w.channel),
                [Axis(b.taps, s.dilation * line, tap) for s, b, line, _, tap in axes],
            ),
            self.batch * self.groups * self.out * self.windows,
            (
                sum((at + b.first * s.stride + b.tap * s.dilation) * line
                    for (s, b, line, _, _), at in zip(axes, begin)),
                sum(b.tap * tap for _, b, _, _, tap in axes),
                sum(b.first * to for _, b, _, to, _ in axes),
            ),
            a=source,
        )  # fmt: skip
        return Part(problem, self._inner(0, [b.tap for b in here]))

    def weight_gradient(self) -> Steps:
        """in0: x, in1: dy (shaped as y), out0: dw (as w)."""
        scratch = Scratch()
        source, before, x = self._padded_input(scratch)
        if not self.last and self.channels == 1 < self.groups and self.out <= _FEW_COLUMNS:
            kernel = DepthwiseWeights(
                self.dtype, self.batch, self.groups, self.out, (x.channel, *x.lines),
                tuple(s.count for s in self.space),
                *(tuple(getattr(s, name) for s in self.space) for name in ("k", "stride", "dilation")),
            )  # fmt: skip
            return Steps((*before, Step(kernel, (source, "in1", "out0"))), tuple(scratch.bytes))
        axes = [(s.k, s.count, s.dilation, s.stride) for s in self.space]
        image = self.image([s.size for s in self.space])
        return parts.of_input(self._taps, self.space, axes, image, (source, before, x), scratch)

    def _taps(self, source: str, x: Image, begin: Sequence[int], here: Sequence[Band]) -> Part:
        """The contraction for some taps of the weight's gradient over some windows."""
        y, w = self.result, self.weights
        axes = list(zip(self.space, here, x.lines, y.lines, w.taps))
        problem = Problem(
            self.dtype,
            (Axis(self.groups, x.group, y.group, w.group),),
            self._inner(
                Axis(self.channels, x.channel, 0, w.channel),
                [Axis(b.results, s.dilation * line, 0, tap) for s, b, line, _, tap in axes],
            ),
            (Axis(self.out, 0, y.channel, w.out),),
            (
                Axis(self.batch, x.image, y.image),
                *(Axis(b.taps, s.stride * line, to) for s, b, line, to, _ in axes),
            ),
            self.groups * self.out * self.channels * self.taps,
            (
                sum((at + b.first * s.dilation + b.tap * s.stride) * line
                    for (s, b, line, _, _), at in zip(axes, begin)),
                sum(b.tap * to for _, b, _, to, _ in axes),
                sum(b.first * tap for _, b, _, _, tap in axes),
            ),
            a=source,
        )  # fmt: skip
        return Part(problem, (0, *(b.tap for b in here)))

    def _inner(self, channels: T, taps: Sequence[T]) -> tuple[T, ...]:
        """Axes, or indices, of channels and of kernel positions, in the order of the weight's memory."""
        return (*taps, channels) if self.last else (channels, *taps)

    def input_gradient(self) -> Steps | None:
        """in0: dy (shaped as y), in1: w, out0: dx (as x). None if it would take more than MAX_CLASSES kernels and is
        not one product either; with ``last``, any number of them."""
        if not self.last and self.channels == self.out == 1 < self.groups and all(w.stride == 1 for w in self.space):
            of_lines = DepthwiseLines.gradient(self.dtype, self.batch, self.groups, self.space)
            if of_lines.possible:
                return Steps((Step(of_lines, ("in0", "in1", "out0")),))
        classes = [residue_classes(w) for w in self.space]
        met = list(product(*([c for c in axis if c.taps] for axis in classes)))
        if len(met) > MAX_CLASSES:
            patches = self._patches_gradient()
            if patches is not None or not self.last:
                return patches
        scratch = Scratch()
        low = tuple(max([0, *(-c.least for c in axis if c.taps)]) for axis in classes)
        high = tuple(max([0, *(c.most - w.count + 1 for c in axis if c.taps)]) for axis, w in zip(classes, self.space))
        source, border, dy = self._padded_gradient(scratch, low, high)
        whole = [[Band(0, c.count, 0, c.taps) for c in here] for here in met]
        problems = [self._residue_part(here, source, low, dy, all).problem for here, all in zip(met, whole)]
        # with channels last, pixels apart are still whole lines of channels
        if not self.last and self.space[-1].stride > 1 and self.space[-1].size > 1:
            return Steps((*border, *self._interleaved(met, problems, scratch)), tuple(scratch.bytes))
        some = len(met) < math.prod(len(axis) for axis in classes)  # other pixels are in no window
        if not some and len(met) == 1:
            return self._unit_gradient(problems[0], border, met[0], scratch)
        zeros = [Step(Fill(self.dtype, self._planes * self.pixels), ("out0",))] if some else []
        steps = [step for problem in problems for step in lower(problem, scratch)]
        return Steps((*zeros, *border, *steps), tuple(scratch.bytes))

    def _unit_gradient(
        self, whole: Problem, border: Sequence[Step], here: Sequence[ResidueClass], scratch: Scratch
    ) -> Steps:
        """The gradient of the input if no window moves by more than one pixel."""
        axes = [parts.bands(c.count, c.taps, c.start, 1, -c.back, w.count) for c, w in zip(here, self.space)]
        none = [0] * len(axes)
        apart = [self._residue_part(here, "in0", none, self.result, part) for part in parts.choices(axes)]
        return parts.lowered(whole, border, apart, scratch)

    @property
    def _planes(self) -> int:
        """Images of one channel in x."""
        return self.batch * self.groups * self.channels

    def _padded_gradient(
        self, scratch: Scratch, low: tuple[int, ...], high: tuple[int, ...]
    ) -> tuple[str, list[Step], Image]:
        """dy with this border: its name, the step that makes it, and its strides."""
        size = [w.count for w in self.space]
        strides = Image.of(self.last, self.groups, self.out, [n + a + z for n, a, z in zip(size, low, high)])
        if not any(low) and not any(high):
            return "in0", [], strides
        kernel = self._pad(self.groups * self.out, size, low, high)
        name = scratch.take(self.dtype, kernel.elements)
        return name, [Step(kernel, ("in0", name))], strides

    def _interleaved(
        self, met: Sequence[Sequence[ResidueClass]], problems: Sequence[Problem], scratch: Scratch
    ) -> list[Step]:
        """The steps that compute the pixels of each residue apart, and bring them to their places in x."""
        names, steps = list[str](), list[Step]()
        for here, problem in zip(met, problems):
            counts = [c.count for c in here]
            names.append(scratch.take(self.dtype, self._planes * math.prod(counts)))
            apart = placed(problem, row_major(counts), math.prod(counts), self.batch, self.channels, names[-1])
            steps += lower(apart, scratch)
        sizes, strides = tuple(w.size for w in self.space), tuple(w.stride for w in self.space)
        present = tuple(tuple(c.residue for c in here) for here in met)
        kernel = Interleave(self.dtype, self._planes, sizes, strides, present)
        return [*steps, Step(kernel, (*names, "out0"))]

    def _patches_gradient(self) -> Steps | None:
        """The gradient of the input as one product, for windows next to each other without padding: each pixel is in
        one window at most. None for other windows."""
        if any(w.pad or w.k != w.stride or (w.dilation != 1 and w.k > 1) for w in self.space):
            return None
        scratch, steps = Scratch(), []
        if any(w.count * w.stride < w.size for w in self.space):
            steps.append(Step(Fill(self.dtype, self.batch * self.groups * self.channels * self.pixels), ("out0",)))
        dy, w, dx = self.result, self.weights, self.image([s.size for s in self.space])
        problem = Problem(
            self.dtype,
            (Axis(self.groups, dy.group, w.group, dx.group),),
            (
                Axis(self.batch, dy.image, 0, dx.image),
                *(Axis(s.count, at, 0, s.stride * line) for s, at, line in zip(self.space, dy.lines, dx.lines)),
            ),
            self._inner(
                Axis(self.channels, 0, w.channel, dx.channel),
                [Axis(s.k, 0, tap, line) for s, tap, line in zip(self.space, w.taps, dx.lines)],
            ),
            (Axis(self.out, dy.channel, w.out),),
            self.batch * self.groups * self.channels * self.pixels,
        )
        return Steps((*steps, *lower(problem, scratch)), tuple(scratch.bytes))

    def _residue_part(
        self, here: Sequence[ResidueClass], source: str, low: Sequence[int], dy: Image, part: Sequence[Band]
    ) -> Part:
        """The contraction for a part of the pixels of x with one residue along each axis, stored at their place in x;
        ``dy``: the strides of the output's gradient with its border, which begins with ``low`` zeros."""
        w, dx = self.weights, self.image([s.size for s in self.space])
        axes = list(zip(here, part, self.space, dy.lines, dx.lines, w.taps))
        problem = Problem(
            self.dtype,
            (Axis(self.groups, dy.group, w.group, dx.group),),
            (
                Axis(self.batch, dy.image, 0, dx.image),
                *(Axis(b.results, line, 0, s.stride * n) for _, b, s, line, n, _ in axes),
            ),
            (Axis(self.channels, 0, w.channel, dx.channel),),
            self._inner(
                Axis(self.out, dy.channel, w.out),
                [Axis(b.taps, -c.back * line, c.step * tap) for c, b, _, line, _, tap in axes],
            ),
            self.batch * self.groups * self.channels * self.pixels,
            (
                sum((c.start + b.first - c.back * b.tap + zeros) * line
                    for (c, b, _, line, _, _), zeros in zip(axes, low)),
                sum((c.first + c.step * b.tap) * tap for c, b, _, _, _, tap in axes),
                sum((c.residue + s.stride * b.first) * n for c, b, s, _, n, _ in axes),
            ),
            a=source,
        )  # fmt: skip
        return Part(problem, self._inner(0, [b.tap for b in part]))

    def _padded_input(self, scratch: Scratch) -> tuple[str, list[Step], Image]:
        """x with its border: its name, the step that makes it, and its strides."""
        size, pad = [w.size for w in self.space], tuple(w.pad for w in self.space)
        strides = self.image([n + 2 * p for n, p in zip(size, pad)])
        if not any(pad):
            return "in0", [], strides
        kernel = self._pad(self.groups * self.channels, size, pad, pad)
        name = scratch.take(self.dtype, kernel.elements)
        return name, [Step(kernel, ("in0", name))], strides

    def _pad(self, channels: int, size: Sequence[int], low: tuple[int, ...], high: tuple[int, ...]) -> Pad:
        """The kernel that copies images of so many channels into larger ones."""
        if self.last:
            return Pad(self.dtype, self.batch, (*size, channels), (*low, 0), (*high, 0))
        return Pad(self.dtype, self.batch * channels, tuple(size), low, high)
