"""Copies an operand of a contraction into panels of lanes. Layers and batch sizes share the code: sizes and strides are
arguments unless they shape it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

from dslc.compiler.codegen.cpu.kernel_spec import KernelCode
from dslc.compiler.codegen.cpu.llvm.vectors import Vectors
from dslc.compiler.codegen.cpu.llvm.writer import VECTOR_BYTES, Code
from dslc.compiler.codegen.launch import ScalarArgs, SizeGeneric
from dslc.compiler.codegen.target import Geometry
from dslc.compiler.ir.described import described
from dslc.compiler.ir.types import DType

_TASK_ELEMENTS: Final = 16384  # elements per task, about
_SHORT: Final = 8  # most iterations of a loop that the optimiser unrolls, so that their number shapes the code
_GIVEN: Final = 0  # stands for a number that is an argument

Strided = tuple[int, int]  # a size and a stride


@dataclass(frozen=True)
class Pack(SizeGeneric):
    """``k(source, panels)``: panels ``[*batch, lanes/panel, *inner, panel]`` from any strides; zeros after the last
    lane. A unit of work is a panel, for one index of the first inner axis if there are several."""

    dtype: DType
    batch: tuple[Strided, ...]
    lanes: Strided
    inner: tuple[Strided, ...]
    start: int
    panel: int

    @property
    def panels(self) -> int:
        return -(-self.lanes[0] // self.panel)

    @property
    def depth(self) -> int:
        return math.prod(n for n, _ in self.inner)

    @property
    def elements(self) -> int:
        """Elements written."""
        return math.prod(n for n, _ in self.batch) * self.panels * self.depth * self.panel

    @property
    def _units(self) -> int:
        outer = self.inner[0][0] if len(self.inner) > 1 else 1
        return math.prod(n for n, _ in self.batch) * self.panels * outer

    @property
    def _group(self) -> int:
        """Units per task."""
        return max(1, _TASK_ELEMENTS * self._units // self.elements)

    @property
    def geometry(self) -> Geometry:
        return Geometry((-(-self._units // self._group), 1, 1))

    @property
    def scalar_args(self) -> ScalarArgs:
        numbers = [self._group, self._units, self.panels, self.start, self.lanes[1]]
        numbers += [number for axis in (*self.batch, *self.inner) for number in axis]
        return tuple(("i64", number) for number in numbers)

    @cached_property
    def code(self) -> PackCode:
        lanes, (size, stride) = VECTOR_BYTES // self.dtype.itemsize, self.inner[-1]
        ragged = self.lanes[0] % self.panel
        if self.lanes[1] == 1:
            way, lane = "copy", 1
        elif stride == 1 and size >= lanes // 2:
            way, lane = "squares", _GIVEN
        else:
            way, lane = "gather", self.lanes[1]  # an offset from it for each lane would not stay in a register
        sizes = [n if way != "squares" and n <= _SHORT else _GIVEN for n, _ in self.inner]
        if len(sizes) > 1:
            sizes[0] = _GIVEN
        squares = (size >= lanes, size % lanes) if way == "squares" else (False, 0)
        return PackCode(
            self.dtype,
            len(self.batch),
            tuple(sizes),
            way,
            lane,
            squares,
            self.panel,
            ragged,
            ragged > 0 and self.panels > 1,
        )


@described("PackCode", "dtype batch inner way lane squares panel ragged several")
@dataclass(frozen=True)
class PackCode(KernelCode):
    """The code of a ``Pack``. ``batch``: the number of its axes; ``inner``: the known sizes of its inner axes;
    ``lane``: the stride of lanes, if it is known.

    ``way``: ``copy`` copies vectors of neighbouring lanes. ``squares`` transposes squares of a vector's size in
    registers, since the last inner axis is contiguous: whether there is a whole one, and how much is left.
    ``gather`` copies element by element. ``ragged``: the lanes of the last panel, if it is not full; with ``several``
    panels it has code of its own.
    """

    dtype: DType
    batch: int
    inner: tuple[int, ...]
    way: str
    lane: int
    squares: tuple[bool, int]
    panel: int
    ragged: int
    several: bool

    def emit(self, code: Code) -> None:
        Emitter(code, self).run()


class Emitter:
    """Emits a ``PackCode``. A partial last panel has its own code."""

    def __init__(self, code: Code, spec: PackCode) -> None:
        self.code, self.spec = code, spec
        self.v = Vectors(code, spec.dtype)
        self.source, self.target = code.argument(0), code.argument(1)
        count = 5 + 2 * (spec.batch + len(spec.inner))
        given = [code.scalar(2 + number, DType.I64) for number in range(count)]
        self.group, self.units, self.panels, self.start, lane = given[:5]
        self.lane = spec.lane or lane
        axes = list(zip(given[5::2], given[6::2]))
        self.batch = axes[: spec.batch]
        self.inner = [(known or size, stride) for known, (size, stride) in zip(spec.inner, axes[spec.batch :])]

    def run(self) -> None:
        code = self.code
        begin = code.mul(code.first, self.group)
        stop = code.least(code.mul(code.last, self.group), self.units)
        inner = self.inner
        if len(inner) == 1:
            with code.loop(stop, begin) as unit:
                at, number = self._begin(unit)
                self._panel(at, code.mul(unit, code.mul(inner[0][0], self.spec.panel)), inner, number)
            return
        (outer, stride), *inner = inner
        below: Any = self.spec.panel
        for size, _ in inner:
            below = code.mul(below, size)
        first, _ = code.divmod(begin, outer)
        end, _ = code.divmod(code.add(stop, code.add(outer, -1)), outer)
        with code.loop(end, first) as row:  # one division for each row of units
            at, number = self._begin(row)
            before = code.mul(row, outer)
            early = code.b.icmp_signed("<", before, begin)
            low = code.b.select(early, code.b.sub(begin, before), code.int(0))
            high = code.least(code.b.sub(stop, before), outer)
            with code.loop(high, low) as k:
                place = code.mul(code.add(before, k), below)
                self._panel(code.add(at, code.mul(k, stride)), place, inner, number)

    def _begin(self, row: Any) -> tuple[Any, Any]:
        """The first source element of a panel, and the panel's number."""
        code = self.code
        *where, number = code.unravel(row, [*(size for size, _ in self.batch), self.panels])
        at: Any = self.start
        for index, (_, stride) in zip(where, self.batch):
            at = code.add(at, code.mul(index, stride))
        return code.add(at, code.mul(number, code.mul(self.lane, self.spec.panel))), number

    def _panel(self, at: Any, place: Any, inner: Sequence[tuple[Any, Any]], number: Any) -> None:
        code, spec = self.code, self.spec
        if not (spec.several and spec.ragged):
            self._nest(at, place, inner, spec.ragged or spec.panel)
            return
        whole = code.b.icmp_signed("<", number, code.add(self.panels, -1))
        with code.b.if_else(whole) as (full, rest):
            with full:
                self._nest(at, place, inner, spec.panel)
            with rest:
                self._nest(at, place, inner, spec.ragged)

    def _nest(self, at: Any, place: Any, axes: Sequence[tuple[Any, Any]], lanes: int) -> None:
        code = self.code
        if len(axes) == 1:
            line = self._squares_line if self.spec.way == "squares" else self._line
            line(at, place, *axes[0], lanes)
            return
        (size, stride), *rest = axes
        below: Any = self.spec.panel
        for each, _ in rest:
            below = code.mul(below, each)
        with code.loop(size) as k:
            self._nest(code.add(at, code.mul(k, stride)), code.add(place, code.mul(k, below)), rest, lanes)

    def _line(self, at: Any, place: Any, size: Any, stride: Any, lanes: int) -> None:
        """All indices of the last inner axis: vectors of neighbouring lanes, or lanes one by one."""
        code, v, panel = self.code, self.v, self.spec.panel
        with code.loop(size) as k:
            here, there = code.add(at, code.mul(k, stride)), code.add(place, code.mul(k, panel))
            for x in range(0, panel, v.lanes):
                count = max(0, min(v.lanes, lanes - x))
                if self.spec.way == "gather":
                    value = v.gathered(self.source, [code.add(here, (x + i) * self.spec.lane) for i in range(count)])
                else:
                    value = v.load(self.source, code.add(here, x), count) if count else v.zero
                v.store(value, self.target, code.add(there, x))

    def _squares_line(self, at: Any, place: Any, size: Any, stride: Any, lanes: int) -> None:
        code, v = self.code, self.v
        some, rest = self.spec.squares
        whole = code.b.sub(code.int(size), code.int(rest)) if some else 0
        if some:
            with code.loop(whole, 0, v.lanes) as k:
                self._squares(code.add(at, k), place, k, lanes, v.lanes)
        if rest:
            self._squares(code.add(at, whole), place, whole, lanes, rest)

    def _squares(self, at: Any, place: Any, k: Any, lanes: int, depth: int) -> None:
        """Packs ``depth`` inner indices, at most a vector, of all lanes of a panel. Whole squares share their code in a
        loop: unrolled, they take long to compile."""
        code, v, panel = self.code, self.v, self.spec.panel
        whole = lanes - lanes % v.lanes

        def square(x: Any, count: int) -> None:
            below = code.add(at, code.mul(x, self.lane))
            rows = [v.load(self.source, code.add(below, code.mul(i, self.lane)), depth) for i in range(count)]
            turned = v.transpose(rows + [v.zero] * (v.lanes - count)) if rows else [v.zero] * v.lanes
            column = code.add(code.add(place, code.mul(k, panel)), x)
            for i in range(depth):
                v.store(turned[i], self.target, code.add(column, i * panel))

        if whole:
            with code.loop(whole, 0, v.lanes) as x:
                square(x, v.lanes)
        for x in range(whole, panel, v.lanes):
            square(x, max(0, lanes - x))
