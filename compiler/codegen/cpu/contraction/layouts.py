"""Windows of a convolution, and strides of its images and weights in elements, with channels before the spatial axes or
after them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from dslc.compiler.ir.described import described


def row_major(sizes: Sequence[int]) -> list[int]:
    """The strides of a dense tensor."""
    return [math.prod(sizes[i + 1 :]) for i in range(len(sizes))]


def strided(axes: Sequence[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    """Sizes and strides without axes of size 1, and neighbours merged where that is possible."""
    found: list[tuple[int, int]] = []
    for size, stride in axes:
        if size == 1:
            continue
        if found and found[-1][1] == stride * size:
            found[-1] = (found[-1][0] * size, stride)
        else:
            found.append((size, stride))
    return tuple(found)


@described("ConvWindow", "size k stride pad dilation")
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
class Image:
    """From an image to the next, from a group of channels, from a channel, and along each spatial axis."""

    image: int
    group: int
    channel: int
    lines: tuple[int, ...]

    @classmethod
    def of(cls, last: bool, groups: int, channels: int, size: Sequence[int]) -> Image:
        """A dense tensor [batch, groups*channels, *size], with ``last`` [batch, *size, groups*channels]."""
        pixels, all = math.prod(size), groups * channels
        if last:
            return cls(pixels * all, channels, 1, tuple(all * n for n in row_major(size)))
        return cls(all * pixels, channels * pixels, pixels, tuple(row_major(size)))


@dataclass(frozen=True, slots=True)
class Weights:
    """From a group to the next, from a result of it, from a channel, and along each axis of the kernel."""

    group: int
    out: int
    channel: int
    taps: tuple[int, ...]

    @classmethod
    def of(cls, last: bool, out: int, channels: int, kernel: Sequence[int]) -> Weights:
        """A dense tensor [groups*out, channels, *kernel], with ``last`` [groups*out, *kernel, channels]."""
        taps = math.prod(kernel)
        if last:
            return cls(out * taps * channels, taps * channels, 1, tuple(channels * n for n in row_major(kernel)))
        return cls(out * channels * taps, channels * taps, taps, tuple(row_major(kernel)))
