"""Sums of products: matrix products and convolutions as one register-blocked kernel.

``c[batch, rows, lanes] = sum over inner of a[batch, rows, inner] * b[batch, inner, lanes]``, each group being any
number of axes with a stride for each operand. A convolution is the same thing as a matrix product: windows of a padded
image are strides (``a[image, y + ky, x + kx]``), so nothing is unrolled in memory.

A tile of the result stays in registers: some rows times some vectors along the last lane axis; for each inner index
one element of ``a`` per row is broadcast and multiplied with the vectors of ``b``. An element's products are added
with fused multiply-add in the order of the inner axes, in blocks of about ``k_block`` that are then added up, which
keeps long sums accurate; so its bits depend neither on tiles and tasks nor on the level.
The scheme is that of Goto and van de Geijn (2008): ``k_block`` inner indices of a panel of ``b`` stay in a near cache
while the rows of the task pass by.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from typing import Any, Final

from dslc.compiler.codegen.cpu.code import VECTOR_BYTES, Code
from dslc.compiler.codegen.cpu.vectors import REGISTERS, Vectors
from dslc.compiler.ir.types import DType

ROWS: Final = (96, 48, 24)  # rows a unit, about, each a multiple of every tile: the first that gives units enough
UNITS: Final = 16  # so that threads end at about the same time
NEAR_BYTES: Final = 32 * 1024  # of a in a unit: what the nearest cache holds, if it can at all
PANEL_BYTES: Final = 512 * 1024  # of b that a unit passes over
GRAIN: Final = 16384  # vector products a task, at least, where there is that much
_UNROLL: Final = 9  # inner indices in a row without a loop, at most
_COMMON: Final = 24  # tiles of a cut axis divide this


@dataclass(frozen=True, slots=True)
class Axis:
    """A size, and how many elements apart neighbours are in each operand."""

    size: int
    a: int = 0
    b: int = 0
    c: int = 0

    def swapped(self) -> Axis:
        return Axis(self.size, self.b, self.a, self.c)


@dataclass(frozen=True)
class Contraction:
    """The kernel ``k(a, b, c)``. Sizes are at least 1; at most two axes of ``lanes``.

    Without ``panel``, b's last lane axis has stride 1. With it there is one lane axis, and b is packed: panels of
    ``panel`` lanes, a multiple of a vector's, ``[lanes/panel, inner, panel]``; b's strides of inner axes count so.
    ``panel_depth`` is the depth of a panel where the kernel sums a part of it only (0: all of it).
    """

    dtype: DType
    batch: tuple[Axis, ...]
    rows: tuple[Axis, ...]
    lanes: tuple[Axis, ...]
    inner: tuple[Axis, ...]
    starts: tuple[int, int, int] = (0, 0, 0)
    panel: int = 0
    k_block: int = 512
    panel_depth: int = 0

    @property
    def depth(self) -> int:
        """Products an element."""
        return math.prod(x.size for x in self.inner)

    @property
    def vector(self) -> int:
        return VECTOR_BYTES // self.dtype.itemsize

    @cached_property
    def row_blocks(self) -> tuple[int, ...]:
        """How much of each row axis a unit takes: whole axes from the last on, a divisor of the first that is cut."""
        near = next((i for i, rows in enumerate(ROWS) if rows * self.depth * self.dtype.itemsize <= NEAR_BYTES), 0)
        found = [self._row_blocks(rows) for rows in ROWS[near:]]
        return next((b for b in found if math.prod(self._grid(b)) >= UNITS), found[-1])

    @property
    def fewest_units(self) -> int:
        """Units of the most rows."""
        return math.prod(self._grid(self._row_blocks(ROWS[0])))

    def _row_blocks(self, rows: int) -> tuple[int, ...]:
        blocks: list[int] = []
        left = rows
        for place, axis in enumerate(reversed(self.rows)):
            if axis.size <= left * 3 // 2:
                block = axis.size
            elif place == 0:
                block = rows
            else:
                block = _divisor(axis.size, left)
            blocks.append(block)
            left = left // block if block == axis.size else 1
        return tuple(reversed(blocks))

    @cached_property
    def lane_block(self) -> int:
        """How much of the last lane axis a unit takes."""
        step = self.panel or 12 * self.vector
        return max(1, PANEL_BYTES // (self.dtype.itemsize * self.depth * step)) * step

    @cached_property
    def grid(self) -> tuple[int, ...]:
        """Units along the batch axes, the last lane axis, and the row axes."""
        return self._grid(self.row_blocks)

    def _grid(self, row_blocks: Sequence[int]) -> tuple[int, ...]:
        rows = (-(-axis.size // block) for axis, block in zip(self.rows, row_blocks))
        return (*(x.size for x in self.batch), -(-self.lanes[-1].size // self.lane_block), *rows)

    @cached_property
    def group(self) -> int:
        """Units a task."""
        lanes = math.prod(x.size for x in self.lanes[:-1]) * -(
            -min(self.lane_block, self.lanes[-1].size) // self.vector
        )
        return max(1, GRAIN // (math.prod(self.row_blocks) * lanes * self.depth))

    @property
    def tasks(self) -> int:
        return -(-math.prod(self.grid) // self.group)

    def emit(self, code: Code) -> None:
        _Printer(code, self).run()


def _divisor(n: int, most: int) -> int:
    """The greatest divisor of n that is not over ``most``."""
    return next(d for d in range(max(1, min(n, most)), 0, -1) if n % d == 0)


def spans(code: Code, start: Any, stop: Any, size: int, tile: int) -> Iterator[tuple[Any, int]]:
    """Tiles from start to stop of an axis of ``size``, then what is left at its end: (place, length), each inside its
    loop. ``start`` is a multiple of the tile, ``stop`` too, or the end."""
    whole = size - size % tile
    if whole:
        with code.loop(whole if isinstance(stop, int) else code.least(stop, whole), start, tile) as at:
            yield at, tile
    if size % tile:
        if isinstance(stop, int):
            yield whole, size % tile
        else:
            with code.b.if_then(code.b.icmp_signed("==", stop, code.int(size))):
                yield whole, size % tile


def best_width(lanes: int, vector: int) -> int:
    """Vectors along the lanes of a tile, at most 4, so that the last tile wastes least."""
    vectors = -(-lanes // vector)
    return min((4, 3, 2), key=lambda w: (-(-vectors // w) * w, -w)) if vectors > 4 else vectors


@dataclass(frozen=True, slots=True)
class _Row:
    a: int
    c: int


@dataclass(frozen=True, slots=True)
class _Column:
    b: int
    c: int
    count: int  # lanes in use


class _Printer:
    def __init__(self, code: Code, spec: Contraction) -> None:
        self.code, self.b, self.spec = code, code.b, spec
        self.v = Vectors(code, spec.dtype)
        self.a, self.w, self.c = (code.argument(i) for i in range(3))
        self.accumulators: list[Any] = []
        self._choose_tile(REGISTERS[code.level])

    def _choose_tile(self, registers: int) -> None:
        """Vectors along the lanes and rows of a tile, of ``registers`` of which a quarter is left for operands."""
        spec, v = self.spec, self.v
        budget = registers * 3 // 4
        most = max(1, math.isqrt(budget) - (0 if registers > 8 else 1))
        if spec.panel:
            self.vectors = _divisor(spec.panel // v.lanes, most)
        else:
            self.vectors = min(best_width(spec.lanes[-1].size, v.lanes), most)
        whole = len(spec.lanes) == 2 and self.vectors * v.lanes >= spec.lanes[-1].size
        self.lane_rows = _divisor(spec.lanes[0].size, most // self.vectors) if whole else 1
        rows = max(1, budget // (self.vectors * self.lane_rows))
        block, size = spec.row_blocks[-1], spec.rows[-1].size
        if block == size:
            even = -(-size // -(-size // rows))
            exact = _divisor(size, rows)
            self.row_tile = exact if 3 * exact >= 2 * even else even
        else:
            self.row_tile = _divisor(_COMMON, rows)
        self.outer_tile = 1
        if self.row_tile == size and len(spec.rows) > 1:
            self.outer_tile = _divisor(spec.row_blocks[-2], rows // size)

    def run(self) -> None:
        code, spec = self.code, self.spec
        units = math.prod(spec.grid)
        stop = code.last
        start = code.first
        if spec.group > 1:
            start, stop = code.mul(start, spec.group), code.least(code.mul(stop, spec.group), units)
        with code.loop(stop, start) as unit:
            where = code.unravel(unit, spec.grid)
            batch, rest = where[: len(spec.batch)], where[len(spec.batch) :]
            base = list(spec.starts)
            for axis, index in zip(spec.batch, batch):
                base = self._moved(base, axis, index)
            self._unit(base, rest[0], rest[1:])

    def _moved(self, base: Sequence[Any], axis: Axis, index: Any) -> list[Any]:
        code = self.code
        return [code.add(x, code.mul(index, stride)) for x, stride in zip(base, (axis.a, axis.b, axis.c))]

    def _unit(self, base: list[Any], lane_unit: Any, row_units: list[Any]) -> None:
        code, spec = self.code, self.spec
        first = spec.inner[0]
        chunk = max(1, spec.k_block * first.size // spec.depth)
        if first.size <= chunk * 3 // 2:
            chunk = first.size
        lane = spec.lanes[-1]
        start = code.mul(lane_unit, spec.lane_block)
        stop = lane.size if spec.lane_block >= lane.size else code.least(code.add(start, spec.lane_block), lane.size)
        with code.loop(first.size, 0, chunk) as k:
            count = first.size if chunk == first.size else code.least(code.b.sub(code.int(first.size), k), chunk)
            begin = None if chunk == first.size else k
            here = self._moved(base, first, k)
            for at, lanes in spans(self.code, start, stop, lane.size, self.vectors * self.v.lanes):
                self._lane_tile(here, at, lanes, row_units, count, begin)

    def _lane_tile(self, base: list[Any], at: Any, lanes: int, row_units: list[Any], count: Any, begin: Any) -> None:
        code, spec, v = self.code, self.spec, self.v
        lane = spec.lanes[-1]
        if spec.panel:
            panel, inside = code.divmod(at, spec.panel)
            b = code.add(base[1], code.add(code.mul(panel, (spec.panel_depth or spec.depth) * spec.panel), inside))
        else:
            b = code.add(base[1], at)
        here = [base[0], b, code.add(base[2], code.mul(at, lane.c))]
        outer = spec.lanes[0] if len(spec.lanes) == 2 else Axis(1)
        columns = [
            _Column(y * outer.b + x, y * outer.c + x * lane.c, min(v.lanes, lanes - x))
            for y in range(self.lane_rows)
            for x in range(0, lanes, v.lanes)
        ]
        with code.loop(outer.size, 0, self.lane_rows) as y:
            self._row_tiles(self._moved(here, outer, y), row_units, columns, count, begin)

    def _row_tiles(self, base: list[Any], row_units: list[Any], columns: list[_Column], count: Any, begin: Any) -> None:
        code, spec = self.code, self.spec
        last = spec.rows[-1]
        start = code.mul(row_units[-1], spec.row_blocks[-1])
        cut = spec.row_blocks[-1] < last.size
        stop = code.least(code.add(start, spec.row_blocks[-1]), last.size) if cut else last.size

        def inner(base: list[Any]) -> None:
            near = spec.rows[-2] if len(spec.rows) > 1 else Axis(1)
            for at, length in spans(self.code, start, stop, last.size, self.row_tile):
                rows = [
                    _Row(j * near.a + i * last.a, j * near.c + i * last.c)
                    for j in range(self.outer_tile)
                    for i in range(length)
                ]
                self._tile(self._moved(base, last, at), rows, columns, count, begin)

        self._outer_rows(base, 0, row_units, inner)

    def _outer_rows(
        self, base: list[Any], place: int, row_units: list[Any], inner: Callable[[list[Any]], None]
    ) -> None:
        """The rows of the unit along all row axes but the last; their number is that of a tensor's axes."""
        spec = self.spec
        if place == len(spec.rows) - 1:
            inner(base)
            return
        axis, block = spec.rows[place], spec.row_blocks[place]
        base = self._moved(base, axis, self.code.mul(row_units[place], block))
        step = self.outer_tile if place == len(spec.rows) - 2 else 1
        with self.code.loop(block, 0, step) as index:
            self._outer_rows(self._moved(base, axis, index), place + 1, row_units, inner)

    def _tile(self, base: list[Any], rows: list[_Row], columns: list[_Column], count: Any, begin: Any) -> None:
        """One tile of the result over ``count`` indices of the first inner axis, from ``begin`` on (None: all)."""
        code, b = self.code, self.b
        while len(self.accumulators) < len(rows) * len(columns):
            self.accumulators.append(code.local(self.v.type))
        sums = self.accumulators[: len(rows) * len(columns)]
        c = code.at(self.c, base[2], self.v.lane)
        for place in sums:
            b.store(self.v.zero, place)
        self._products(base, rows, columns, count, sums)
        if begin is not None:
            with b.if_then(b.icmp_signed("!=", code.int(begin), code.int(0))):
                for value, place in zip(self._loaded(c, rows, columns), sums):
                    b.store(b.fadd(value, b.load(place, typ=self.v.type)), place)
        self._store(c, rows, columns, [b.load(place, typ=self.v.type) for place in sums])

    def _products(self, base: list[Any], rows: list[_Row], columns: list[_Column], count: Any, sums: list[Any]) -> None:
        """The innermost axes without loops while they are short; the innermost loop some times unrolled."""
        spec, code = self.spec, self.code
        sizes = [count, *(x.size for x in spec.inner[1:])]
        flat = len(sizes)
        while flat and isinstance(sizes[flat - 1], int) and math.prod(sizes[flat - 1 :]) <= _UNROLL:
            flat -= 1
        short = [
            (
                sum(i * x.a for i, x in zip(index, spec.inner[flat:])),
                sum(i * x.b for i, x in zip(index, spec.inner[flat:])),
            )
            for index in product(*(range(n) for n in sizes[flat:]))
        ]

        def body(at: list[Any], times: int) -> None:
            axis = spec.inner[flat - 1] if flat else Axis(1)
            a, w = code.at(self.a, at[0], self.v.lane), code.at(self.w, at[1], self.v.lane)
            for again in range(times):
                for da, db in short:
                    self._step(a, w, da + again * axis.a, db + again * axis.b, rows, columns, sums)

        def nest(at: list[Any], place: int) -> None:
            if place == flat:
                body(at, 1)
            elif place < flat - 1:
                with code.loop(sizes[place]) as k:
                    nest(self._moved(at, spec.inner[place], k), place + 1)
            else:
                size, axis = sizes[place], spec.inner[place]
                times = max(1, 4 // len(short))
                whole = size - size % times if isinstance(size, int) else code.mul(code.divmod(size, times)[0], times)
                if not isinstance(whole, int) or whole:
                    with code.loop(whole, 0, times) as k:
                        body(self._moved(at, axis, k), times)
                if times > 1 and (not isinstance(size, int) or size % times):
                    with code.loop(size, whole) as k:
                        body(self._moved(at, axis, k), 1)

        nest(base, 0)

    def _step(
        self, a: Any, w: Any, da: int, db: int, rows: list[_Row], columns: list[_Column], sums: list[Any]
    ) -> None:
        """One inner index of a tile."""
        v, b, packed = self.v, self.b, bool(self.spec.panel)
        vectors = [v.load(w, db + column.b, None if packed else column.count) for column in columns]
        number = 0
        for row in rows:
            factor = v.splat(a, da + row.a)
            for vector in vectors:
                place = sums[number]
                b.store(v.fma(factor, vector, b.load(place, typ=v.type)), place)
                number += 1

    def _runs(self, rows: list[_Row]) -> Iterator[range]:
        """Rows that lie one behind the other in c, at most a vector of them."""
        start = 0
        for i in range(1, len(rows) + 1):
            if i == len(rows) or i - start == self.v.lanes or rows[i].c != rows[i - 1].c + 1:
                yield range(start, i)
                start = i

    def _store(self, c: Any, rows: list[_Row], columns: list[_Column], values: list[Any]) -> None:
        wide = len(columns)
        stride = self.spec.lanes[-1].c
        for j, column in enumerate(columns):
            if stride == 1:
                for i, row in enumerate(rows):
                    self.v.store(values[i * wide + j], c, row.c + column.c, column.count)
                continue
            for run in self._runs(rows):
                places = [rows[run.start].c + column.c + lane * stride for lane in range(column.count)]
                self.v.store_columns([values[i * wide + j] for i in run], c, places)

    def _loaded(self, c: Any, rows: list[_Row], columns: list[_Column]) -> list[Any]:
        wide = len(columns)
        stride = self.spec.lanes[-1].c
        found: list[Any] = [None] * (len(rows) * wide)
        for j, column in enumerate(columns):
            if stride == 1:
                for i, row in enumerate(rows):
                    found[i * wide + j] = self.v.load(c, row.c + column.c, column.count)
                continue
            for run in self._runs(rows):
                places = [rows[run.start].c + column.c + lane * stride for lane in range(column.count)]
                for i, value in zip(run, self.v.load_columns(len(run), c, places)):
                    found[i * wide + j] = value
        return found
