"""Kernels over the pixels of images with channels last, each of which meets pixels of another image through windows:
depthwise convolutions, pools and their gradients. Vectors lie along the channels; what lies beyond the border is left
out."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from dslc.compiler.codegen.cpu.contraction.layouts import Window
from dslc.compiler.codegen.cpu.contraction.parts import residue_classes
from dslc.compiler.codegen.cpu.kernel_spec import KernelSpec
from dslc.compiler.codegen.cpu.llvm.values import Values
from dslc.compiler.codegen.cpu.llvm.writer import I64, Code, lanes_of
from dslc.compiler.ir.types import DType

AT_ONCE: Final = 4  # vectors of channels whose results are in registers together
_TASK_ELEMENTS: Final = 1 << 16  # elements of the source that a task reads, about


@dataclass(frozen=True, slots=True)
class Met:
    """Kernel positions ``tap + tap_step*j`` along an axis, ``low`` <= j < ``high``, that meet the pixels
    ``pixel + pixel_step*j`` of the source."""

    low: Any
    high: Any
    tap: Any
    tap_step: int
    pixel: Any
    pixel_step: int


@dataclass(frozen=True, slots=True)
class Pixel:
    """The part of a pixel of the target that is computed at once: some of its channels.

    ``image``: the number of its image. ``met``: what it meets of the source, along each axis. ``channel``: the first
    channel; ``target``: the element of that channel. ``vectors``: of the channels, each with its first one, counted
    from ``channel``, and what emits it.
    """

    image: Any
    met: Sequence[Met]
    target: Any
    channel: Any
    vectors: Sequence[tuple[int, Values]]


class Pixels(KernelSpec):
    """x [batch, *size, channels] and y [batch, *count, channels], with windows of y over x. The target is y, or x if
    ``gradient``; the source is the other one. A task is some lines of pixels of the target."""

    __slots__ = ()
    dtype: DType
    batch: int
    channels: int
    space: tuple[Window, ...]
    gradient: bool

    @property
    def sources(self) -> list[int]:
        """Pixels of the source along each axis."""
        return [w.count if self.gradient else w.size for w in self.space]

    @property
    def targets(self) -> list[int]:
        return [w.size if self.gradient else w.count for w in self.space]

    @property
    def widths(self) -> list[int]:
        """Positions of a window along each axis."""
        return [w.k for w in self.space]

    def met(self, code: Code, axis: int, at: Any) -> Met:
        """The kernel positions and pixels of the source that the pixel ``at`` of the target meets along an axis."""
        return (back if self.gradient else forth)(code, self.space[axis], at)

    @property
    def lines(self) -> int:
        return self.batch * math.prod(self.targets[:-1])

    @property
    def group(self) -> int:
        """Lines of a task."""
        return max(1, _TASK_ELEMENTS // (self.targets[-1] * self.channels * math.prod(self.widths)))

    @property
    def tasks(self) -> int:
        return -(-self.lines // self.group) if self.targets[-1] * self.channels else 0

    def emit(self, code: Code) -> None:
        targets = self.targets
        stop = code.least(code.mul(code.last, self.group), self.lines)
        with code.loop(stop, code.mul(code.first, self.group)) as line:
            image, *outer = code.unravel(line, (self.batch, *targets[:-1]))
            known = [self.met(code, axis, at) for axis, at in enumerate(outer)]
            with code.loop(targets[-1]) as at:
                here = [*known, self.met(code, len(outer), at)]
                target = code.mul(code.add(code.mul(line, targets[-1]), at), self.channels)
                for first, lanes in blocks(code, self.dtype, self.channels):
                    element = code.add(target, first)
                    self.pixel(code, Pixel(image, here, element, first, vectors(code, self.dtype, lanes)))

    @abstractmethod
    def pixel(self, code: Code, at: Pixel) -> None:
        """Computes and stores a part of a pixel."""

    def visit(self, code: Code, at: Pixel, carried: list[Any], body: Callable[[Any, Any], None]) -> None:
        """``body(element, tap)`` for each pixel of the source that is met: its element of the first channel, and the
        number of the position in the window. ``carried``: values in registers that the body replaces in the list."""

        def along(axis: int, pixel: Any, tap: Any) -> None:
            if axis == len(at.met):
                body(code.add(code.mul(pixel, self.channels), at.channel), tap)
                return
            m = at.met[axis]
            with code.loop(m.high, m.low, carried=carried) as j:
                there = code.add(m.pixel, code.mul(j, m.pixel_step))
                position = code.add(m.tap, code.mul(j, m.tap_step))
                along(
                    axis + 1, code.add(code.mul(pixel, self.sources[axis]), there),
                    code.add(code.mul(tap, self.widths[axis]), position),
                )  # fmt: skip

        along(0, at.image, 0)


def forth(code: Code, w: Window, at: Any) -> Met:
    """The positions of the window ``at`` that lie in the image."""
    begin = code.add(code.mul(at, w.stride), -w.pad)
    low = ceil(code, positive(code, code.mul(begin, -1)), w.dilation)
    room = positive(code, code.add(w.size, code.mul(begin, -1)))
    return Met(low, code.least(w.k, ceil(code, room, w.dilation)), 0, 1, begin, w.dilation)


def back(code: Code, w: Window, at: Any) -> Met:
    """The positions at which windows meet the pixel ``at`` of the image."""
    common = math.gcd(w.stride, w.dilation)
    step, far = w.stride // common, w.dilation // common
    place, b = code.int(code.add(at, w.pad)), code.b
    taps, first = code.int(0), code.int(0)
    for kind in residue_classes(w):
        same = b.icmp_signed("==", b.urem(place, I64(w.stride)), I64((kind.residue + w.pad) % w.stride))
        taps, first = b.select(same, I64(kind.taps), taps), b.select(same, I64(kind.first), first)
    window = b.sdiv(b.sub(place, code.int(code.mul(first, w.dilation))), I64(w.stride))
    beyond = positive(code, code.add(window, 1 - w.count))
    count = b.udiv(positive(code, code.add(window, far)), I64(far))
    return Met(ceil(code, beyond, far), code.least(taps, count), first, step, window, -far)


def split(dtype: DType, count: int) -> list[int]:
    """Lanes of the vectors that hold so many channels."""
    lanes = lanes_of(dtype)
    return [lanes] * (count // lanes) + ([count % lanes] if count % lanes else [])


def blocks(code: Code, dtype: DType, channels: int) -> Iterator[tuple[Any, list[int]]]:
    """The first channel of each block and the lanes of its vectors, each inside its loop."""
    width = AT_ONCE * lanes_of(dtype)
    whole = channels - channels % width
    if whole:
        with code.loop(whole, 0, width) as first:
            yield first, split(dtype, width)
    if channels % width:
        yield whole, split(dtype, channels % width)


def vectors(code: Code, dtype: DType, lanes: Sequence[int]) -> list[tuple[int, Values]]:
    """The first channel of each vector, and what emits it."""
    return [(lanes_of(dtype) * n, Values(code, count)) for n, count in enumerate(lanes)]


def positive(code: Code, x: Any) -> Any:
    """The number if it is above 0, else 0."""
    x = code.int(x)
    return code.b.select(code.b.icmp_signed(">", x, I64(0)), x, I64(0))


def ceil(code: Code, x: Any, by: int) -> Any:
    """The quotient of a number of at least 0, rounded up."""
    return x if by == 1 else code.b.udiv(code.add(x, by - 1), I64(by))
