"""Vectors of the input pixels at a convolution's kernel position: im2col values, loaded where they are needed.

For output pixel (y, x) and kernel position (i, j), the input pixel is ``(y*scale + i*step + shift) / share`` along each
axis; it is 0 if that is outside or not an integer. A convolution has scale = stride, step = dilation, shift = -pad,
share = 1; the gradient of its input has scale = 1, step = -dilation, shift = pad, share = stride.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from llvmlite import ir

from dslc.compiler.codegen.cpu.llvm.values import Values
from dslc.compiler.codegen.cpu.llvm.writer import I32, I64, Code, lane_type, lanes_of, suffix, wide
from dslc.compiler.ir.described import described
from dslc.compiler.ir.types import DType

Pair = tuple[int, int]


@described("Window", "image out kernel scale step shift share")
@dataclass(frozen=True, slots=True)
class Window:
    """Sizes of the source image, the result image and the kernel, and the map between them."""

    image: Pair
    out: Pair
    kernel: Pair
    scale: Pair
    step: Pair
    shift: Pair
    share: Pair

    @property
    def pixels(self) -> int:
        return self.out[0] * self.out[1]

    @property
    def taps(self) -> int:
        return self.kernel[0] * self.kernel[1]

    @property
    def plane(self) -> int:
        """Elements per channel of the image."""
        return self.image[0] * self.image[1]


class Fetcher:
    """Loads the input pixels of ``lanes`` output pixels from ``start`` on at one kernel position, for any channel."""

    def __init__(self, code: Code, dtype: DType, window: Window, start: Any, tap: Any) -> None:
        self.code, self.b, self.dtype, self.w = code, code.b, dtype, window
        self.lanes = lanes_of(dtype)
        self.type = wide(lane_type(dtype), self.lanes)
        i, j = code.divmod(tap, window.kernel[1])
        height, width = window.image
        first = self.b.trunc(code.int(start), I32)
        pixels = self.b.add(Values(code, self.lanes).splat(first), self._const(list(range(self.lanes))))
        rows = self.b.udiv(pixels, self._const(window.out[1]))
        columns = self.b.sub(pixels, self.b.mul(rows, self._const(window.out[1])))
        y, inside_y = self._map(rows, i, 0, height)
        x, inside_x = self._map(columns, j, 1, width)
        inside = self.b.and_(inside_y, inside_x)
        self.mask = self.b.and_(inside, self.b.icmp_signed("<", pixels, self._const(window.pixels)))
        self.parts = self._parts(start, rows, i, j) if self._dense() else None
        if self.parts is None:
            place = self.b.add(self.b.mul(y, self._const(width)), x)
            place = self.b.select(self.mask, place, self._const(0))
            self.places = [self.b.zext(self.b.extract_element(place, I64(lane)), I64) for lane in range(self.lanes)]

    def fetch(self, pointer: Any, base: Any) -> Any:
        """The vector of the channel that starts at element ``base``."""
        element, zero = lane_type(self.dtype), ir.Constant(self.type, [0.0] * self.lanes)
        if self.parts is None:
            found = ir.Constant(self.type, ir.Undefined)
            for lane, place in enumerate(self.places):
                at = self.code.at(pointer, self.code.add(base, place), element)
                found = self.b.insert_element(found, self.b.load(at, typ=element, align=self.dtype.itemsize), I64(lane))
            return self.b.select(self.mask, found, zero)
        found = zero
        for mask, place in self.parts:
            at = self.code.at(pointer, self.code.add(base, place), element)
            found = self.code.intrinsic(f"llvm.masked.load.{suffix(self.type)}.p0", self.type, at, mask, found)
        return found

    def _const(self, value: int | list[int]) -> Any:
        return ir.Constant(wide(I32, self.lanes), value if isinstance(value, list) else [value] * self.lanes)

    def _dense(self) -> bool:
        return self.w.scale == (1, 1) and self.w.share == (1, 1)

    def _map(self, place: Any, tap: Any, axis: int, size: int) -> tuple[Any, Any]:
        w, b = self.w, self.b
        moved = self.code.add(self.code.mul(tap, w.step[axis]), w.shift[axis])
        shift = Values(self.code, self.lanes).splat(b.trunc(self.code.int(moved), I32))
        at = b.add(b.mul(place, self._const(w.scale[axis])), shift)
        share = w.share[axis]
        low = b.icmp_signed(">=", at, self._const(0))
        inside = b.and_(low, b.icmp_signed("<", at, self._const(size * share)))
        if share == 1:
            return at, inside
        whole = b.udiv(at, self._const(share))
        even = b.icmp_unsigned("==", b.mul(whole, self._const(share)), at)
        return whole, b.and_(inside, even)

    def _parts(self, start: Any, rows: Any, i: Any, j: Any) -> list[tuple[Any, Any]]:
        """One masked load per row of pixels that the vector may touch; lane l reads element place + l. If both images
        have the same width, rows are adjacent in both, and one load suffices."""
        code, b, w = self.code, self.b, self.w
        width, out = w.image[1], w.out[1]
        down = code.add(code.mul(i, w.step[0]), w.shift[0])
        right = code.add(code.mul(j, w.step[1]), w.shift[1])
        if width == out:
            return [(self.mask, code.add(code.add(code.mul(down, width), right), start))]
        first, _ = code.divmod(start, out)
        found = []
        for n in range(-(-(self.lanes - 1) // out) + 1):
            row = code.add(first, n)
            here = Values(code, self.lanes).splat(b.trunc(code.int(row), I32))
            mask = b.and_(self.mask, b.icmp_signed("==", rows, here))
            begin = code.add(code.add(start, code.mul(row, -out)), right)
            found.append((mask, code.add(code.mul(code.add(row, down), width), begin)))
        return found
