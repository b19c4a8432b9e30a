"""Depthwise convolutions with channels first: vectors lie along the last axis, over any number of axes.

As a product, such a convolution has one column for each group, and windows apart are not neighbours in memory. Here a
line of the output meets the lines of its windows where they lie; nothing is copied.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, Final, TypeAlias

from dslc.compiler.codegen.cpu.contraction.layouts import Window, row_major
from dslc.compiler.codegen.cpu.kernel_spec import KernelSpec
from dslc.compiler.codegen.cpu.llvm.math import Functions
from dslc.compiler.codegen.cpu.llvm.values import Values
from dslc.compiler.codegen.cpu.llvm.vectors import Vectors, power_of_two
from dslc.compiler.codegen.cpu.llvm.writer import I64, POINTER, VECTOR_BYTES, Code, lane_type, lanes_of
from dslc.compiler.ir.described import described
from dslc.compiler.ir.types import DType

_VECTORS: Final = 4  # whose sums are in registers together
_FEW_VECTORS: Final = 8  # of a line: the code knows their places
_MAX_TAPS: Final = 64  # kernel positions that code unrolls
_MAX_PRODUCTS: Final = 1024  # of vectors of a line whose places are known to the code
_MAX_LINE_BYTES: Final = 32 << 10  # of a line of the input, of which one of zeros is kept
_WIDEST_STRIDE: Final = 4  # up to which whole vectors are read
_TASK_PRODUCTS: Final = 1 << 16  # of a task, about

#: The lines of x that the windows of a line of y meet, in order, and the first element of the line of y.
Line: TypeAlias = tuple[list[Any], Any]


@described("DepthwiseLines", "dtype batch groups out space turned")
@dataclass(frozen=True, slots=True)
class DepthwiseLines(KernelSpec):
    """``k(x, w, y)``: x [batch, groups, *size]; w [groups*out, 1, *k]; y [batch, groups*out, *count].

    A vector of a line of y meets the positions of its windows in order, in one sum of fused multiply-adds. Lines beyond
    the border are a line of zeros, and so are places beyond the ends of a line. ``turned``: a window meets the weights
    from the last to the first, and sums from its end, as in the gradient for an image with stride 1.
    """

    dtype: DType
    batch: int
    groups: int
    out: int
    space: tuple[Window, ...]
    turned: bool = False

    @classmethod
    def gradient(cls, dtype: DType, batch: int, groups: int, space: Sequence[Window]) -> DepthwiseLines:
        """``k(dy, w, dx)`` of a convolution with stride 1 and one result for each channel."""
        back = (Window(w.count, w.k, 1, w.dilation * (w.k - 1) - w.pad, w.dilation) for w in space)
        return cls(dtype, batch, groups, 1, tuple(back), True)

    @property
    def possible(self) -> bool:
        """Whether the code is small enough, and a line of zeros."""
        few = self.taps <= _MAX_TAPS and len(self._known) * self.taps <= _MAX_PRODUCTS
        return few and self.space[-1].size * self.dtype.itemsize <= _MAX_LINE_BYTES

    @property
    def taps(self) -> int:
        return math.prod(w.k for w in self.space)

    @property
    def planes(self) -> int:
        """Channels of y, of all images."""
        return self.batch * self.groups * self.out

    @property
    def parts(self) -> int:
        """Tasks of a plane of several lines, if it is large: each has some of its first axis."""
        return -(-self.space[0].count // self._length) if len(self.space) > 1 else 1

    @property
    def together(self) -> int:
        """Planes of a task, if they are small."""
        return max(1, _TASK_PRODUCTS // self._products)

    @property
    def tasks(self) -> int:
        return self.planes * self.parts if self.parts > 1 else -(-self.planes // self.together)

    @property
    def _products(self) -> int:
        return math.prod(w.count for w in self.space) * self.taps

    @property
    def _length(self) -> int:
        """Places along the first axis of a task."""
        return -(-self.space[0].count * _TASK_PRODUCTS // max(_TASK_PRODUCTS, self._products))

    @property
    def _lanes(self) -> int:
        return min(lanes_of(self.dtype), power_of_two(self.space[-1].count))

    @property
    def _starts(self) -> list[int]:
        """Where the vectors of a line begin. The last one ends with the line and overlaps the one before it."""
        count, lanes = self.space[-1].count, self._lanes
        return [*range(0, count - lanes, lanes), max(0, count - lanes)]

    @property
    def _inside(self) -> range:
        """Of many vectors those, apart from the last one, that read nothing beyond the ends of a line."""
        w, starts = self.space[-1], self._starts[:-1]
        if len(starts) < _FEW_VECTORS:
            return range(0)
        reach = w.dilation * (w.k - 1) + w.stride * (self._lanes - 1) - w.pad
        inside = [n for n, at in enumerate(starts) if at * w.stride >= w.pad and at * w.stride + reach < w.size]
        return range(inside[0], inside[-1] + 1) if inside else range(0)

    @property
    def _known(self) -> list[int]:
        """Where the others begin."""
        return [at for n, at in enumerate(self._starts) if n not in self._inside]

    def emit(self, code: Code) -> None:
        zeros = self._zeros(code)
        if self.parts > 1:
            with code.loop(code.last, code.first) as task:
                plane, part = code.divmod(task, self.parts)
                start = code.mul(part, self._length)
                self._plane(code, plane, zeros, start, code.least(code.add(start, self._length), self.space[0].count))
        else:
            stop = code.least(code.mul(code.last, self.together), self.planes)
            with code.loop(stop, code.mul(code.first, self.together)) as plane:
                self._plane(code, plane, zeros, 0, self.space[0].count)

    def _zeros(self, code: Code) -> Any:
        """The line beyond the border; None if no line is."""
        if not any(_leaves(w) for w in self.space[:-1]):
            return None
        found, one = code.local(lane_type(self.dtype), self.space[-1].size, align=VECTOR_BYTES), Values(code, 1)
        with code.loop(self.space[-1].size) as at:
            one.store(one.const(0, self.dtype), found, at, 1)
        return found

    def _plane(self, code: Code, plane: Any, zeros: Any, start: Any, stop: Any) -> None:
        """The lines of a plane, those from ``start`` to ``stop`` of the first of several axes."""
        x, w = code.argument(0), code.argument(1)
        values, one = Values(code, self._lanes), Values(code, 1)
        _, channel = code.divmod(plane, self.groups * self.out)
        source, _ = code.divmod(plane, self.out)
        first = code.mul(channel, self.taps)
        weights = [values.splat(one.load(w, code.add(first, tap), 1, self.dtype).value) for tap in range(self.taps)]
        base = code.mul(source, math.prod(s.size for s in self.space))
        target = code.mul(plane, math.prod(s.count for s in self.space))
        whole = code.at(x, base, lane_type(self.dtype))

        def line(index: Sequence[Any]) -> Line:
            to = target
            for at, step in zip(index, row_major([s.count for s in self.space])):
                to = code.add(to, code.mul(at, step))
            return self._met(code, index, whole, zeros), to

        def along(index: list[Any]) -> None:
            axis, last = len(index), len(self.space) - 1
            low, high = (start, stop) if axis == 0 else (0, self.space[axis].count)
            if axis == last:
                self._compute(code, [line(index)], weights)
            elif axis < last - 1:
                with code.loop(high, low) as at:
                    along([*index, at])
            else:
                count = max(1, _VECTORS // len(self._starts))
                rest = code.divmod(code.add(high, code.mul(low, -1)), count)[1]
                end = code.add(high, code.mul(rest, -1))
                with code.loop(end, low, count) as at:
                    self._compute(code, [line([*index, code.add(at, n)]) for n in range(count)], weights)
                if rest != 0:
                    with code.loop(high, end) as at:
                        self._compute(code, [line([*index, at])], weights)

        along([])

    def _met(self, code: Code, index: Sequence[Any], plane: Any, zeros: Any) -> list[Any]:
        """The lines of the plane that the windows of a line of y meet, in order."""
        b, steps = code.b, row_major([s.size for s in self.space])
        met: list[list[tuple[Any, Any]]] = []  # along each axis the elements before a place, and whether it is there
        for w, at, step in zip(self.space, index, steps):
            places = [code.add(code.mul(at, w.stride), j * w.dilation - w.pad) for j in range(w.k)]
            there = [b.icmp_unsigned("<", code.int(p), I64(w.size)) if _leaves(w) else None for p in places]
            met.append([(code.mul(p, step), known) for p, known in zip(places, there)])
        found = []
        for position in product(*met):
            place, inside = 0, None
            for before, there in position:
                place = code.add(place, before)
                inside = there if inside is None else inside if there is None else b.and_(inside, there)
            line = code.at(plane, place, lane_type(self.dtype))
            if inside is not None:  # numbers, as the optimiser would choose between pointers at each load
                chosen = b.select(inside, b.ptrtoint(line, I64), b.ptrtoint(zeros, I64))
                line = b.inttoptr(chosen, POINTER)
            found.append(line)
        return found

    def _compute(self, code: Code, lines: Sequence[Line], weights: Sequence[Any]) -> None:
        """Some lines of y."""
        w, lanes, y = self.space[-1], self._lanes, code.argument(2)
        vectors, values = Vectors(code, self.dtype), Values(code, lanes)

        def together(starts: Sequence[Any]) -> None:
            """Some vectors of each line, for which a weight is in a register once."""
            each = [(met, to, at) for met, to in lines for at in starts]
            totals = [values.const(0, self.dtype).value for _ in each]
            taps = range(len(weights))
            for tap in reversed(taps) if self.turned else taps:
                n, j = divmod(tap, w.k)
                weight = weights[taps[-1] - tap if self.turned else tap]
                for v, (met, _, at) in enumerate(each):
                    place = code.add(code.mul(at, w.stride), j * w.dilation - w.pad)
                    x = self._near(code, met[n], place) if isinstance(place, int) else None
                    x = values.load(met[n], place, w.stride, self.dtype).value if x is None else x
                    totals[v] = Functions(code, x.type).fma(x, weight, totals[v])
            for total, (_, to, at) in zip(totals, each):
                vectors.store(total, y, code.add(to, at), min(lanes, w.count))

        known, inside = self._known, self._inside
        groups = -(-len(known) // _VECTORS)
        for n in range(groups):
            together(known[n * len(known) // groups : (n + 1) * len(known) // groups])
        whole = inside.start + len(inside) // _VECTORS * _VECTORS
        for first, stop, count in ((inside.start, whole, _VECTORS), (whole, inside.stop, 1)):
            if first < stop:
                with code.loop(stop * lanes, first * lanes, count * lanes) as at:
                    together([code.add(at, n * lanes) for n in range(count)])

    def _near(self, code: Code, line: Any, start: int) -> Any:
        """The elements from ``start`` on, the stride apart, with zeros beyond the ends of the line; None if none are
        beyond."""
        w, lanes = self.space[-1], min(self._lanes, self.space[-1].count)
        places = [start + n * w.stride for n in range(lanes)]
        if places[0] >= 0 and places[-1] < w.size and lanes == self._lanes:
            return None
        vectors, zero = Vectors(code, self.dtype), Values(code, self._lanes).const(0, self.dtype).value
        if w.stride == 1:
            return vectors.between(line, start, -start, min(w.size - start, lanes), self._lanes)
        found, wide = zero, self._lanes
        if w.stride < min(wide, _WIDEST_STRIDE + 1):
            for first in range(0, w.stride * wide, wide):  # of the elements next to each other that hold these
                low, end = -start - first, min(w.size, places[-1] + 1) - start - first
                part = vectors.between(line, start + first, low, end, wide)
                picks = [n * w.stride - first for n in range(wide)]
                found = vectors.pick(found, part, [wide + at if 0 <= at < wide else n for n, at in enumerate(picks)])
            return found
        for n, place in enumerate(places):
            if 0 <= place < w.size:
                one = Values(code, 1).load(line, place, 1, self.dtype).value
                found = code.b.insert_element(found, one, I64(n)) if wide > 1 else one
        return found


def _leaves(w: Window) -> bool:
    """Whether windows reach beyond the border."""
    return w.pad > 0 or (w.count - 1) * w.stride + (w.k - 1) * w.dilation >= w.size
