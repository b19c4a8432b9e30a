"""Pooling over images: vectors of output pixels, by kernel position; the gradient of maxpool scatters.

All other cases (no images, many kernel positions, the gradient of avgpool) use the regions of
``codegen/region/pooling.py``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Final, Literal

from llvmlite import ir

from dslc.compiler.codegen.cpu.contraction.conv_image import paired
from dslc.compiler.codegen.cpu.contraction.conv_windows import Fetcher, Window
from dslc.compiler.codegen.cpu.kernel_spec import KernelSpec
from dslc.compiler.codegen.cpu.llvm.values import Values
from dslc.compiler.codegen.cpu.llvm.writer import I1, I8, I64, POINTER, VOID, Code, Reg, lane_type, lanes_of
from dslc.compiler.codegen.launch import Launch
from dslc.compiler.codegen.lowerings import lowers
from dslc.compiler.codegen.region import pooling
from dslc.compiler.ir.described import described
from dslc.compiler.ir.graph import Node
from dslc.compiler.ir.types import DType
from dslc.compiler.ops.attrs import int_tuple

_TASK_ELEMENTS: Final = 16384  # elements per task, about
_MAX_TAPS: Final = 25  # most kernel positions that are unrolled


@described("Pool", "kind dtype place planes window divisor")
@dataclass(frozen=True, slots=True)
class Pool(KernelSpec):
    """``max``: the maximum of each window and its index (of dtype ``place``); ``mean``: the sum over the window divided
    by ``divisor``."""

    kind: Literal["max", "mean"]
    dtype: DType
    place: DType
    planes: int
    window: Window
    divisor: int

    @property
    def block(self) -> int:
        """Planes per task."""
        return max(1, _TASK_ELEMENTS // max(1, self.window.pixels * self.window.taps))

    @property
    def tasks(self) -> int:
        return -(-self.planes // self.block)

    def emit(self, code: Code) -> None:
        image, *outputs = (code.argument(i) for i in range(3 if self.kind == "max" else 2))
        lanes, pixels = lanes_of(self.dtype), self.window.pixels
        with code.loop(code.last, code.first) as task:
            first = code.mul(task, self.block)
            stop = code.least(code.add(first, self.block), self.planes)

            def vector(start: Any, count: int) -> None:
                fetchers = [Fetcher(code, self.dtype, self.window, start, tap) for tap in range(self.window.taps)]
                places = _first_elements(code, self, fetchers) if self.kind == "max" else None
                with code.loop(stop, first) as plane:
                    base = code.mul(plane, self.window.plane)
                    found = [f.fetch(image, base) for f in fetchers]
                    target = code.add(code.mul(plane, pixels), start)
                    results = _greatest(code, self, fetchers, found, places) if places else _mean(code, self, found)
                    for reg, pointer in zip(results, outputs):
                        value = Values(code, lanes).first(reg.value, count)
                        Values(code, count).store_value(value, reg.dtype, pointer, target, 1)

            if pixels >= lanes:
                with code.loop(pixels - pixels % lanes, 0, lanes) as start:
                    vector(start, lanes)
            if pixels % lanes:
                vector(pixels - pixels % lanes, pixels % lanes)


@described("Scatter", "dtype place planes window")
@dataclass(frozen=True, slots=True)
class MaxPoolGrad(KernelSpec):
    """dx = 0; then adds dy of each window to the element of dx that was its maximum. ``window`` is the pool's; its
    image is dx."""

    dtype: DType
    place: DType
    planes: int
    window: Window

    @property
    def block(self) -> int:
        return max(1, _TASK_ELEMENTS // max(1, self.window.plane))

    @property
    def tasks(self) -> int:
        return -(-self.planes // self.block)

    def emit(self, code: Code) -> None:
        b, w = code.b, self.window
        dy, place, dx = (code.argument(i) for i in range(3))
        element, one = lane_type(self.dtype), Values(code, 1)
        with code.loop(code.last, code.first) as task:
            first = code.mul(task, self.block)
            stop = code.least(code.add(first, self.block), self.planes)
            begin = code.at(dx, code.mul(first, w.plane), element)
            count = code.mul(b.sub(stop, code.int(first)), w.plane * self.dtype.itemsize)
            _clear(code, begin, count)
            with code.loop(stop, first) as plane, code.loop(w.out[0]) as y, code.loop(w.out[1]) as x:
                source = code.add(code.add(code.mul(plane, w.pixels), code.mul(y, w.out[1])), x)
                taken = one.convert(one.load(place, source, 0, self.place), DType.I64).value
                i, j = code.divmod(taken, w.kernel[1])
                row = code.add(code.add(code.mul(y, w.scale[0]), w.shift[0]), i)
                column = code.add(code.add(code.mul(x, w.scale[1]), w.shift[1]), j)
                target = code.add(code.mul(plane, w.plane), code.add(code.mul(row, w.image[1]), column))
                # an index in the padding belongs to no element
                inside = b.and_(
                    b.icmp_unsigned("<", code.int(row), code.int(w.image[0])),
                    b.icmp_unsigned("<", code.int(column), code.int(w.image[1])),
                )
                with b.if_then(inside, likely=True):
                    old = one.load(dx, target, 0, self.dtype).value
                    new = b.fadd(old, one.load(dy, source, 0, self.dtype).value)
                    one.store_value(new, self.dtype, dx, target, 1)


def _mean(code: Code, spec: Pool, found: list[Any]) -> list[Reg]:
    total = found[0]
    for value in found[1:]:
        total = code.b.fadd(total, value)
    divisor = Values(code, lanes_of(spec.dtype)).const(float(spec.divisor), spec.dtype).value
    return [Reg(code.b.fdiv(total, divisor), spec.dtype)]


def _first_elements(code: Code, spec: Pool, fetchers: list[Fetcher]) -> Any:
    """The number of the first tap of each window that meets an element: a window of minus infinity alone takes it."""
    values = Values(code, lanes_of(spec.dtype))
    place = values.const(0, spec.place).value
    if spec.window.shift != (0, 0):  # else there is no padding before an image
        for tap, fetcher in reversed([*enumerate(fetchers)]):
            place = code.b.select(fetcher.mask, values.const(tap, spec.place).value, place)
    return place


def _greatest(code: Code, spec: Pool, fetchers: list[Fetcher], found: list[Any], first: Any) -> list[Reg]:
    """The first of equal maxima, nan before any number. ``first``: the places to begin with."""
    b, values = code.b, Values(code, lanes_of(spec.dtype))
    lowest = values.const(-math.inf, spec.dtype).value
    best, place = None, first
    for tap, (fetcher, value) in enumerate(zip(fetchers, found)):
        value = b.select(fetcher.mask, value, lowest)
        number = values.const(tap, spec.place).value
        if best is None:
            best = value
            continue
        better = b.fcmp_unordered("ugt", value, best)  # greater, or one of the two is nan
        better = b.and_(better, b.fcmp_ordered("ord", best, best))
        best, place = b.select(better, value, best), b.select(better, number, place)
    return [Reg(best, spec.dtype), Reg(place, spec.place)]


def _clear(code: Code, pointer: Any, count: Any) -> None:
    name = "llvm.memset.p0.i64"
    function = code.module.globals.get(name) or ir.Function(
        code.module, ir.FunctionType(VOID, [POINTER, I8, I64, I1]), name
    )
    code.b.call(function, [pointer, I8(0), code.int(count), I1(0)])


def _are_images(node: Node) -> bool:
    types = (*node.input_types, *node.types)
    return all(t.rank in (3, 4) and 0 < t.bytes < 1 << 31 for t in types)


def _pool_window(node: Node, image: tuple[int, ...], out: tuple[int, ...]) -> Window:
    k, s, p = (paired(int_tuple(node.attrs, n), fill) for n, fill in (("k", 1), ("stride", 1), ("pad", 0)))
    return Window(paired(image, 1), paired(out, 1), k, s, (1, 1), (-p[0], -p[1]), (1, 1))


def _plane_count(node: Node) -> int:
    shape = node.types[0].ints
    return shape[0] * shape[1]


@lowers("maxpool", target="cpu")
def maxpool(node: Node) -> list[Launch]:
    window = _pool_window(node, node.input_types[0].ints[2:], node.types[0].ints[2:]) if _are_images(node) else None
    if window is None or window.taps > _MAX_TAPS:
        return pooling.maxpool(node)
    spec = Pool("max", node.types[0].dtype, node.types[1].dtype, _plane_count(node), window, 1)
    return [Launch(spec, node.inputs, node.outputs)]


@lowers("avgpool", target="cpu")
def avgpool(node: Node) -> list[Launch]:
    window = _pool_window(node, node.input_types[0].ints[2:], node.types[0].ints[2:]) if _are_images(node) else None
    if window is None or window.taps > _MAX_TAPS:
        return pooling.avgpool(node)
    spec = Pool("mean", node.types[0].dtype, DType.U8, _plane_count(node), window, window.taps)
    return [Launch(spec, node.inputs, node.outputs)]


@lowers("maxpool_grad", target="cpu")
def maxpool_grad(node: Node) -> list[Launch]:
    if not _are_images(node):
        return pooling.maxpool_grad(node)
    window = _pool_window(node, node.types[0].ints[2:], node.input_types[0].ints[2:])
    dy, place = node.input_types
    return [Launch(MaxPoolGrad(dy.dtype, place.dtype, _plane_count(node), window), node.inputs, node.outputs)]
