"""Emits a contraction: loops over units, and tiles of the result that stay in registers."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING, Any, Final

from dslc.compiler.codegen.cpu.contraction.axes import Axis, best_width, divisor, spans
from dslc.compiler.codegen.cpu.llvm.vectors import Vectors
from dslc.compiler.codegen.cpu.llvm.writer import Code

if TYPE_CHECKING:
    from dslc.compiler.codegen.cpu.contraction.kernel import Contraction

_UNROLL: Final = 9  # most inner indices unrolled without a loop
_COMMON: Final = 24  # tiles of a split axis divide this


@dataclass(frozen=True, slots=True)
class _Row:
    a: int
    c: int


@dataclass(frozen=True, slots=True)
class _Column:
    b: int
    c: int
    count: int  # lanes in use


class Emitter:
    """Emits the kernel of a contraction: tiles of the result in registers."""

    def __init__(self, code: Code, spec: Contraction) -> None:
        self.code, self.b, self.spec = code, code.b, spec
        self.v = Vectors(code, spec.dtype)
        self.a, self.w, self.c = (code.argument(i) for i in range(3))
        self._choose_tile(code.registers)

    def _choose_tile(self, registers: int) -> None:
        """Chooses the vectors along the lanes and the rows of a tile; a quarter of ``registers`` is left for
        operands."""
        spec, v = self.spec, self.v
        budget = registers * 3 // 4
        most = max(1, math.isqrt(budget) - (0 if registers > 8 else 1))
        if spec.panel:
            self.vectors = divisor(spec.panel // v.lanes, most)
        else:
            self.vectors = min(best_width(spec.lanes[-1].size, v.lanes), most)
        whole = len(spec.lanes) == 2 and self.vectors * v.lanes >= spec.lanes[-1].size
        self.lane_rows = divisor(spec.lanes[0].size, most // self.vectors) if whole else 1
        rows = max(1, budget // (self.vectors * self.lane_rows))
        block, size = spec.row_blocks[-1], spec.rows[-1].size
        if block == size:
            even = -(-size // -(-size // rows))
            exact = divisor(size, rows)
            self.row_tile = exact if 3 * exact >= 2 * even else even
        else:
            self.row_tile = divisor(_COMMON, rows)
        self.outer_tile = 1
        if self.row_tile == size and len(spec.rows) > 1:
            self.outer_tile = divisor(spec.row_blocks[-2], rows // size)

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
                base = self._advanced(base, axis, index)
            self._unit(base, rest[0], rest[1:])

    def _advanced(self, base: Sequence[Any], axis: Axis, index: Any) -> list[Any]:
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
            here = self._advanced(base, first, k)
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
            self._row_tiles(self._advanced(here, outer, y), row_units, columns, count, begin)

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
                self._tile(self._advanced(base, last, at), rows, columns, count, begin)

        self._outer_rows(base, 0, row_units, inner)

    def _outer_rows(
        self, base: list[Any], place: int, row_units: list[Any], inner: Callable[[list[Any]], None]
    ) -> None:
        """Loops over the unit's rows along all row axes but the last, by recursion over the axes."""
        spec = self.spec
        if place == len(spec.rows) - 1:
            inner(base)
            return
        axis, block = spec.rows[place], spec.row_blocks[place]
        base = self._advanced(base, axis, self.code.mul(row_units[place], block))
        step = self.outer_tile if place == len(spec.rows) - 2 else 1
        with self.code.loop(block, 0, step) as index:
            self._outer_rows(self._advanced(base, axis, index), place + 1, row_units, inner)

    def _tile(self, base: list[Any], rows: list[_Row], columns: list[_Column], count: Any, begin: Any) -> None:
        """One tile of the result over ``count`` indices of the first inner axis, from ``begin`` on (None: all)."""
        code, b = self.code, self.b
        sums = [self.v.zero] * (len(rows) * len(columns))
        c = code.at(self.c, base[2], self.v.lane)
        self._products(base, rows, columns, count, sums)
        self._store(
            c, rows, columns, sums, None if begin is None else b.icmp_signed("!=", code.int(begin), code.int(0))
        )

    def _products(self, base: list[Any], rows: list[_Row], columns: list[_Column], count: Any, sums: list[Any]) -> None:
        """Adds the products to ``sums``. Unrolls the innermost axes completely while they are short, and the innermost
        loop several times."""
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
                with code.loop(sizes[place], carried=sums) as k:
                    nest(self._advanced(at, spec.inner[place], k), place + 1)
            else:
                size, axis = sizes[place], spec.inner[place]
                times = max(1, 4 // len(short))
                whole = size - size % times if isinstance(size, int) else code.mul(code.divmod(size, times)[0], times)
                if not isinstance(whole, int) or whole:
                    with code.loop(whole, 0, times, sums) as k:
                        body(self._advanced(at, axis, k), times)
                if times > 1 and (not isinstance(size, int) or size % times):
                    with code.loop(size, whole, carried=sums) as k:
                        body(self._advanced(at, axis, k), 1)

        nest(base, 0)

    def _step(
        self, a: Any, w: Any, da: int, db: int, rows: list[_Row], columns: list[_Column], sums: list[Any]
    ) -> None:
        """Adds the products of one inner index to a tile."""
        v, packed = self.v, bool(self.spec.panel)
        vectors = [v.load(w, db + column.b, None if packed else column.count) for column in columns]
        number = 0
        for row in rows:
            factor = v.splat(a, da + row.a)
            for vector in vectors:
                sums[number] = v.fma(factor, vector, sums[number])
                number += 1

    def _runs(self, rows: list[_Row]) -> Iterator[range]:
        """Runs of rows that are adjacent in c, at most a vector of them."""
        start = 0
        for i in range(1, len(rows) + 1):
            if i == len(rows) or i - start == self.v.lanes or rows[i].c != rows[i - 1].c + 1:
                yield range(start, i)
                start = i

    def _store(self, c: Any, rows: list[_Row], columns: list[_Column], sums: list[Any], later: Any) -> None:
        """Stores a tile. Adds it to what c holds if the i1 ``later`` is true; None: never."""
        wide = len(columns)
        if self.spec.lanes[-1].c == 1:
            places = [(row.c + column.c, column.count) for row in rows for column in columns]
            self._put(c, [(value, *place) for value, place in zip(sums, places)], later)
            return
        for j, column in enumerate(columns):
            for run in self._runs(rows):
                turned = self.v.columns([sums[i * wide + j] for i in run], column.count)
                first = rows[run.start].c + column.c
                stride = self.spec.lanes[-1].c
                self._put(c, [(x, first + lane * stride, len(run)) for lane, x in enumerate(turned)], later)

    def _put(self, c: Any, values: list[tuple[Any, int, int]], later: Any) -> None:
        """Stores, or adds, vectors (or single values) at their place, with their lanes in use."""
        b, v, found = self.b, self.v, [value for value, _, _ in values]
        if later is not None:

            def added() -> list[Any]:
                lanes = v.lanes_of(found[0])
                return [b.fadd(v.load(c, place, count, lanes), value) for value, place, count in values]

            found = self.code.if_then(later, found, added)
        for value, (_, place, count) in zip(found, values):
            v.store(value, c, place, count)
