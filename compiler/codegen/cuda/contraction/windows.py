"""What kernels of convolutions that are no matrix products know of their windows."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod
from typing import Final, TypeAlias

from dslc.compiler.codegen.cuda.cuda_cpp import C_TYPES, Numbers, constants
from dslc.compiler.ir.index_limits import I32_PADDED_ELEMENTS
from dslc.compiler.ir.types import DType

Three: TypeAlias = tuple[int, int, int]

MAX_TAPS: Final = 64  # along the last axis, which code unrolls
UNROLLED_TAPS: Final = 32  # with more taps, lines of them are a loop
BLOCK_THREADS: Final = 256


@dataclass(frozen=True)
class Shape:
    """Three spatial axes; ``image``: sizes of x, ``count``: of y. ``last``: channels are the last axis."""

    batch: int
    channels: int
    image: Three
    count: Three
    taps: Three
    stride: Three
    pad: Three
    dilation: Three
    dtype: DType
    last: bool

    @property
    def in_planes(self) -> Shape:
        """The same memory with two axes, if windows of one place (stride 1, no padding) keep the first axis apart, so
        that its places are more images, or both others, so that these are one line. Channels are last."""
        apart = [each == (1, 1, 0) for each in zip(self.taps, self.stride, self.pad)]
        deep, line = self.image[0], self.image[1] * self.image[2]
        if apart[0]:
            return replace(self, batch=self.batch * deep, image=(1, *self.image[1:]), count=(1, *self.count[1:]))
        if not (apart[1] and apart[2]):
            return self
        image, count = (1, deep, line), (1, self.count[0], line)
        taps, stride = (1, self.taps[0], 1), (1, self.stride[0], 1)
        pad, dilation = (0, self.pad[0], 0), (1, self.dilation[0], 1)
        return replace(self, image=image, count=count, taps=taps, stride=stride, pad=pad, dilation=dilation)

    def span(self, pixels: int, back: bool) -> tuple[int, int]:
        """The least distance at which ``pixels`` neighbours read along the last axis, and the number of places from
        there to the greatest."""
        stride, pad, dilation, taps = self.stride[2], self.pad[2], self.dilation[2], range(self.taps[2])
        if back:
            places = [p + pad - t * dilation for p in range(pixels) for t in taps]
            found = [place // stride for place in places if place % stride == 0]
        else:
            found = [p * stride - pad + t * dilation for p in range(pixels) for t in taps]
        return (min(found), max(found) - min(found) + 1) if found else (0, 1)

    @property
    def index(self) -> str:
        most = self.batch * self.channels * max(prod(self.image), prod(self.count))
        return "int" if most <= I32_PADDED_ELEMENTS else "long long"

    def head(self, lanes: int, pixels: int, back: bool) -> str:
        """The constants of both kernels: types, and the reads along the last axis."""
        lowest, span = self.span(pixels, back)
        axes = {"TAPS": self.taps, "STRIDE": self.stride, "EDGE": self.pad, "GAP": self.dilation}
        text = f"#define LAST {int(self.last)}\nusing X = {C_TYPES[self.dtype]};\n"
        text += f"using SUM = {C_TYPES[self.dtype.computed]};\nusing INDEX = {self.index};\n"
        text += constants(LANES=lanes, PIXELS=pixels, LOWEST=lowest, SPAN=span, BACK=int(back))
        return text + "".join(
            f"__device__ constexpr int {name}[3] = {{{', '.join(map(str, each))}}};\n" for name, each in axes.items()
        )


def add_axes(numbers: Numbers, own: Three, other: Three, pixels: int) -> None:
    numbers.divisor("CHUNKS", -(-own[2] // pixels))
    numbers.divisor("OWN0", own[0])
    numbers.divisor("OWN1", own[1])
    numbers.add("OWN2", own[2])
    for axis, size in enumerate(other):
        numbers.add(f"OTHER{axis}", size)
