"""The maximum pool of images with channels last, and its gradient."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from llvmlite import ir

from dslc.compiler.codegen.cpu.contraction.layouts import Window
from dslc.compiler.codegen.cpu.contraction.pixels import Pixel, Pixels
from dslc.compiler.codegen.cpu.llvm.values import Values
from dslc.compiler.codegen.cpu.llvm.writer import Code, memory_type, wide
from dslc.compiler.codegen.launch import Launch
from dslc.compiler.codegen.lowerings import lowers
from dslc.compiler.ir.described import described
from dslc.compiler.ir.graph import Node
from dslc.compiler.ir.types import DType
from dslc.compiler.ops.attrs import int_tuple


def _number(dtype: DType) -> Any:
    """The type of a place in a register: as wide as an element, so that comparisons fit both."""
    return ir.IntType(8 * dtype.itemsize)


def _splat(values: Values, number: Any, dtype: DType) -> Any:
    """A place in all lanes."""
    number = values.code.int(number)
    return values.splat(number if dtype.itemsize == 8 else values.b.trunc(number, _number(dtype)))


def greatest(spec: Pixels, code: Code, at: Pixel, place: DType) -> None:
    """Stores the first of the greatest elements that a pixel meets, nan before any number, and its position in the
    window, of dtype ``place``."""
    x, y, places = (code.argument(i) for i in range(3))
    b, count, dtype = code.b, len(at.vectors), spec.dtype
    begin: Any = 0  # a window of minus infinity alone takes its first element
    for m, width in zip(at.met, spec.widths):
        begin = code.add(code.mul(begin, width), code.add(m.tap, code.mul(m.low, m.tap_step)))
    found = [values.const(-math.inf, dtype).value for _, values in at.vectors]
    found += [_splat(values, begin, dtype) for _, values in at.vectors]

    def take(element: Any, tap: Any) -> None:
        for n, (lane, values) in enumerate(at.vectors):
            value = values.load(x, code.add(element, lane), 1, dtype).value
            better = b.fcmp_unordered("ugt", value, found[n])  # greater, or one of the two is nan
            better = b.and_(better, b.fcmp_ordered("ord", found[n], found[n]))
            found[n] = b.select(better, value, found[n])
            found[count + n] = b.select(better, _splat(values, tap, dtype), found[count + n])

    spec.visit(code, at, found, take)
    for n, (lane, values) in enumerate(at.vectors):
        target, taken = code.add(at.target, lane), found[count + n]
        values.store_value(found[n], dtype, y, target, 1)
        if place.itemsize < dtype.itemsize:
            taken = b.trunc(taken, wide(memory_type(place), values.lanes))
        values.store_value(taken, place, places, target, 1)


@described("MaxPoolLast", "dtype batch channels space gradient place")
@dataclass(frozen=True, slots=True)
class MaxPoolLast(Pixels):
    """``k(x, y, places)``: the first of equal maxima, nan before any number, and its index in the window."""

    dtype: DType
    batch: int
    channels: int
    space: tuple[Window, ...]
    gradient: bool
    place: DType

    def pixel(self, code: Code, at: Pixel) -> None:
        greatest(self, code, at, self.place)


@described("MaxPoolGradLast", "dtype batch channels space gradient place")
@dataclass(frozen=True, slots=True)
class MaxPoolGradLast(Pixels):
    """``k(dy, places, dx)``: each pixel sums the dy of the windows whose maximum it is, from the last one on."""

    dtype: DType
    batch: int
    channels: int
    space: tuple[Window, ...]
    gradient: bool
    place: DType

    def pixel(self, code: Code, at: Pixel) -> None:
        dy, places, dx = (code.argument(i) for i in range(3))
        b, sums = code.b, [values.const(0, self.dtype).value for _, values in at.vectors]

        def add(element: Any, tap: Any) -> None:
            for n, (lane, values) in enumerate(at.vectors):
                here = code.add(element, lane)
                place = values.load(places, here, 1, self.place).value
                if self.place.itemsize < self.dtype.itemsize:
                    place = b.zext(place, wide(_number(self.dtype), values.lanes))
                hit = b.icmp_unsigned("==", place, _splat(values, tap, self.dtype))
                slope = values.load(dy, here, 1, self.dtype).value
                sums[n] = b.fadd(sums[n], b.select(hit, slope, values.const(0, self.dtype).value))

        self.visit(code, at, sums, add)
        for total, (lane, values) in zip(sums, at.vectors):
            values.store_value(total, self.dtype, dx, code.add(at.target, lane), 1)


@lowers("maxpool_last", target="cpu")
def maxpool_last(node: Node) -> list[Launch]:
    [x], (y, place) = node.input_types, node.types
    spec = MaxPoolLast(y.dtype, *_sizes(node, x.ints), False, place.dtype)
    return [Launch(spec, node.inputs, node.outputs)]


@lowers("maxpool_grad_last", target="cpu")
def maxpool_grad_last(node: Node) -> list[Launch]:
    (dy, place), [dx] = node.input_types, node.types
    spec = MaxPoolGradLast(dy.dtype, *_sizes(node, dx.ints), True, place.dtype)
    return [Launch(spec, node.inputs, node.outputs)]


def _sizes(node: Node, image: tuple[int, ...]) -> tuple[int, int, tuple[Window, ...]]:
    """Images, their channels, and the windows over an image [batch, *size, channels]."""
    k, stride, pad = (int_tuple(node.attrs, name) for name in ("k", "stride", "pad"))
    return image[0], image[-1], tuple(Window(*each, 1) for each in zip(image[1:-1], k, stride, pad))
