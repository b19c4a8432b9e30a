"""adaptive_maxpool: window i of m over n elements runs from floor(i*n/m) to ceil((i + 1)*n/m), so no element needs a
mask of its own. With channels first vectors lie along the lines of a window, with channels last along the channels."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from llvmlite import ir

from dslc.compiler.codegen.cpu.contraction.pixels import Met, Pixel, Pixels
from dslc.compiler.codegen.cpu.kernel_spec import KernelSpec
from dslc.compiler.codegen.cpu.llvm.values import Values
from dslc.compiler.codegen.cpu.llvm.writer import I32, I64, Code, Reg, lane_type, lanes_of, suffix, wide
from dslc.compiler.codegen.cpu.ops.pooling_last import greatest
from dslc.compiler.codegen.launch import Launch
from dslc.compiler.codegen.lowerings import lowers
from dslc.compiler.ir.described import described
from dslc.compiler.ir.graph import Node
from dslc.compiler.ir.types import DType

_TASK_ELEMENTS: Final = 1 << 15
_BEYOND: Final = (1 << 31) - 1  # the place of a lane without an element


def _window(code: Code, size: int, count: int, at: Any) -> tuple[Any, Any]:
    """Where a window begins, and its elements."""
    begin = code.b.udiv(code.int(code.mul(at, size)), I64(count))
    end = code.b.udiv(code.int(code.add(code.mul(code.add(at, 1), size), count - 1)), I64(count))
    return begin, code.b.sub(end, begin)


@described("AdaptiveMaxPoolLast", "dtype batch channels sizes counts")
@dataclass(frozen=True, slots=True)
class AdaptiveMaxPoolLast(Pixels):
    """``k(x, y, places)`` with channels last: x [batch, *sizes, channels], y and places [batch, *counts, channels]."""

    dtype: DType
    batch: int
    channels: int
    sizes: tuple[int, ...]
    counts: tuple[int, ...]

    @property
    def sources(self) -> list[int]:
        return list(self.sizes)

    @property
    def targets(self) -> list[int]:
        return list(self.counts)

    @property
    def widths(self) -> list[int]:
        return list(self.sizes)  # a position is a pixel of the image

    def met(self, code: Code, axis: int, at: Any) -> Met:
        begin, count = _window(code, self.sizes[axis], self.counts[axis], at)
        return Met(0, count, begin, 1, begin, 1)

    def pixel(self, code: Code, at: Pixel) -> None:
        greatest(self, code, at, DType.I32)


@described("AdaptiveMaxPool", "dtype planes sizes counts")
@dataclass(frozen=True, slots=True)
class AdaptiveMaxPool(KernelSpec):
    """``k(x, y, places)``: x [planes, *sizes], y and places [planes, *counts]. A lane takes the first of its greatest
    elements; then halves of the lanes are compared, of equal ones by their places."""

    dtype: DType
    planes: int
    sizes: tuple[int, ...]
    counts: tuple[int, ...]

    @property
    def block(self) -> int:
        """Planes of a task."""
        return max(1, _TASK_ELEMENTS // math.prod(self.sizes))

    @property
    def tasks(self) -> int:
        return -(-self.planes // self.block)

    def emit(self, code: Code) -> None:
        stop = code.least(code.mul(code.last, self.block), self.planes)
        with code.loop(stop, code.mul(code.first, self.block)) as plane, code.loop(math.prod(self.counts)) as number:
            index = code.unravel(number, self.counts)
            windows = [_window(code, *each) for each in zip(self.sizes, self.counts, index)]
            self._one(code, plane, code.add(code.mul(plane, math.prod(self.counts)), number), windows)

    def _one(self, code: Code, plane: Any, target: Any, windows: Sequence[tuple[Any, Any]]) -> None:
        """The element ``target`` of the results."""
        b, lanes, x = code.b, lanes_of(self.dtype), code.argument(0)
        values, type = Values(code, lanes), wide(lane_type(self.dtype), lanes)
        counting = ir.Constant(wide(I32, lanes), list(range(lanes)))
        lowest, base = values.const(-math.inf, self.dtype).value, code.mul(plane, math.prod(self.sizes))
        left, count = windows[-1]

        def inside(at: Any) -> Any:
            """Which lanes have an element from ``at`` on."""
            return b.icmp_signed("<", counting, values.splat(b.trunc(b.sub(count, code.int(at)), I32)))

        def places(start: Any) -> Any:
            return b.add(values.splat(b.trunc(code.int(start), I32)), counting)

        first: Any = 0
        for size, (begin, _) in zip(self.sizes, windows):
            first = code.add(code.mul(first, size), begin)
        beyond = ir.Constant(counting.type, [_BEYOND] * lanes)
        best = [lowest, b.select(inside(0), places(first), beyond)]

        def along(axis: int, place: Any) -> None:
            if axis < len(windows) - 1:
                begin, rows = windows[axis]
                with code.loop(rows, carried=best) as row:
                    along(axis + 1, code.mul(code.add(place, code.add(begin, row)), self.sizes[axis + 1]))
                return
            with code.loop(count, 0, lanes, carried=best) as at:
                start = code.add(code.add(place, left), at)
                source = code.at(x, code.add(base, start), lane_type(self.dtype))
                name = f"llvm.masked.load.{suffix(type)}.p0"
                value = code.intrinsic(name, type, source, I32(self.dtype.itemsize), inside(at), lowest)
                better = b.fcmp_unordered("ugt", value, best[0])  # greater, or one of the two is nan
                better = b.and_(better, b.fcmp_ordered("ord", best[0], best[0]))
                best[0] = b.select(better, value, best[0])
                best[1] = b.select(better, places(start), best[1])

        along(0, 0)
        top, place = self._across(code, *best)
        one = Values(code, 1)
        one.store(Reg(top, self.dtype), code.argument(1), target, 1)
        one.store(Reg(place, DType.I32), code.argument(2), target, 1)

    def _across(self, code: Code, best: Any, place: Any) -> tuple[Any, Any]:
        """The first of the lanes' greatest elements, and its place."""
        b, lanes = code.b, lanes_of(self.dtype)
        while lanes > 1:
            half, values = lanes // 2, Values(code, lanes)
            if half > 1:
                low, high = range(half), range(half, lanes)
                x, y, p, q = (values.picked(v, some) for v in (best, place) for some in (low, high))
            else:
                x, y, p, q = (b.extract_element(v, I64(lane)) for v in (best, place) for lane in (0, 1))
            greater = b.and_(b.fcmp_unordered("ugt", y, x), b.fcmp_ordered("ord", x, x))
            both = b.and_(b.fcmp_unordered("uno", x, x), b.fcmp_unordered("uno", y, y))
            earlier = b.and_(b.or_(b.fcmp_ordered("==", x, y), both), b.icmp_signed("<", q, p))
            taken = b.or_(greater, earlier)
            best, place, lanes = b.select(taken, y, x), b.select(taken, q, p), half
        return best, place


@lowers("adaptive_maxpool", target="cpu")
def adaptive_maxpool(node: Node) -> list[Launch]:
    x, y = node.input_types[0].ints, node.types[0]
    spec = AdaptiveMaxPool(y.dtype, x[0] * x[1], x[2:], y.ints[2:])
    return [Launch(spec, node.inputs, node.outputs)]


@lowers("adaptive_maxpool_last", target="cpu")
def adaptive_maxpool_last(node: Node) -> list[Launch]:
    x, y = node.input_types[0].ints, node.types[0]
    spec = AdaptiveMaxPoolLast(y.dtype, x[0], x[-1], x[1:-1], y.ints[1:-1])
    return [Launch(spec, node.inputs, node.outputs)]
