"""Emits a contraction: loops over units, and tiles of the result that stay in registers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING, Any, Final

from dslc.compiler.codegen.cpu.contraction.axes import Axis, Span, spans
from dslc.compiler.codegen.cpu.contraction.near import Near
from dslc.compiler.codegen.cpu.kernel_spec import ARGUMENT
from dslc.compiler.codegen.cpu.llvm.vectors import Vectors
from dslc.compiler.codegen.cpu.llvm.writer import POINTER, Code
from dslc.compiler.ir.types import DType

if TYPE_CHECKING:
    from dslc.compiler.codegen.cpu.contraction.shared import ContractionCode, Tile

TIMES: Final = 4  # largest unroll factor of a loop with few products
_BUSY: Final = 96  # products per iteration from which on the loop's own instructions cost nothing
#: Bytes of a panel between the element that is read and the element that is prefetched: one page, where the processor's
#: own prefetcher stops. Weights are read from memory in each call; with this prefetch, products of few rows took 0.89
#: of the time (Xeon, AVX-512).
_AHEAD: Final = 4096
_NEAR: Final = 3  # rows that share a pointer: an address of x86 is a register plus once or twice another register


@dataclass(frozen=True, slots=True)
class _Row:
    first: Any  # in a, the first of the rows that share a pointer
    a: Any  # from there
    c: Any
    place: int | None  # in c, if rows may be adjacent there


@dataclass(frozen=True, slots=True)
class _Column:
    b: Any
    c: Any
    count: int  # lanes in use


class Emitter:
    """Emits the kernel of a contraction: tiles of the result in registers. Numbers of ``spec`` that are arguments are
    values loaded at the start."""

    def __init__(self, code: Code, spec: ContractionCode, tile: Tile) -> None:
        self.code, self.b, self.spec, self.tile = code, code.b, spec, tile
        self.v = Vectors(code, spec.dtype)
        given = [code.scalar(3 + i, DType.I64) for i in range(spec.given)]
        self.a, self.w, self.c = (code.argument(i) for i in range(3))

        def number(value: int) -> Any:
            return value if value < ARGUMENT else given[value - ARGUMENT]

        def axes(known: Sequence[Axis]) -> tuple[Span, ...]:
            return tuple(Span(number(x.size), number(x.a), number(x.b), number(x.c)) for x in known)

        self.batch, self.rows, self.lanes, self.inner = (
            axes(x) for x in (spec.batch, spec.rows, spec.lanes, spec.inner)
        )
        self.starts = [number(x) for x in spec.starts]
        self.panel_step, self.group = (number(x) for x in spec.steps)
        self.units, *self.grid = (number(x) for x in spec.units)
        self.row_blocks = [number(x) for x in spec.row_blocks]
        self.lane_block, self.chunk = number(spec.lane_block), number(spec.chunk)
        self.width = tile.vectors * self.v.lanes
        self.source = self.inner[0]  # in a, if units copy it
        self.near = Near(self.v, self.a, spec.near, tile) if spec.near else None
        if self.near:
            self.a = self.near.memory
            self.inner = (Span(self.source.size, tile.row_tile, self.source.b, 0),)

    def run(self) -> None:
        code, count = self.code, len(self.batch)
        stop, start = code.last, code.first
        if self.spec.steps[1] != 1:
            start, stop = code.mul(start, self.group), code.least(code.mul(stop, self.group), self.units)
        with code.loop(stop, start) as unit:
            where = code.unravel(unit, self.grid)
            base = self.starts
            for axis, index in zip(self.batch, where[:count]):
                base = self._advanced(base, axis, index)
            self._unit(base, where[count], where[count + 1 :])

    def _advanced(self, base: Sequence[Any], axis: Span, index: Any) -> list[Any]:
        code = self.code
        return [code.add(x, code.mul(index, stride)) for x, stride in zip(base, (axis.a, axis.b, axis.c))]

    def _unit(self, base: list[Any], lane_unit: Any, row_units: list[Any]) -> None:
        code, first, lane = self.code, self.source, self.lanes[-1]
        start: Any = 0
        stop = lane.size
        if self.spec.lane_block:
            start = code.mul(lane_unit, self.lane_block)
            stop = code.least(code.add(start, self.lane_block), lane.size)

        def block(base: list[Any], count: Any, begin: Any) -> None:
            if self.near:
                self.near.copy(base[0], *self._rows_of(row_units), self.rows[-1].size, (count, first.a))
                base = [0, *base[1:]]
            for at, lanes in spans(code, start, stop, lane.size, self.width, self.tile.lane_rest):
                self._lane_tile(base, at, lanes, row_units, count, begin)

        if not self.spec.chunk:
            block(base, first.size, None)
            return
        with code.loop(first.size, 0, self.chunk) as k:
            block(self._advanced(base, first, k), code.least(code.b.sub(code.int(first.size), k), self.chunk), k)

    def _lane_tile(self, base: list[Any], at: Any, lanes: int, row_units: list[Any], count: Any, begin: Any) -> None:
        code, spec, v = self.code, self.spec, self.v
        lane = self.lanes[-1]
        if spec.panel:
            panel, inside = code.divmod(at, spec.panel)
            b = code.add(base[1], code.add(code.mul(panel, self.panel_step), inside))
        else:
            b = code.add(base[1], at)
        here = [base[0], b, code.add(base[2], code.mul(at, lane.c))]
        outer = self.lanes[0] if len(self.lanes) == 2 else Span(1, 0, 0, 0)
        columns = [
            _Column(
                code.add(code.mul(y, outer.b), x),
                code.add(code.mul(y, outer.c), code.mul(x, lane.c)),
                min(v.lanes, lanes - x),
            )
            for y in range(self.tile.lane_rows)
            for x in range(0, lanes, v.lanes)
        ]
        with code.loop(outer.size, 0, self.tile.lane_rows) as y:
            self._row_tiles(self._advanced(here, outer, y), row_units, columns, count, begin)

    def _row_tiles(self, base: list[Any], row_units: list[Any], columns: list[_Column], count: Any, begin: Any) -> None:
        code, last, tile = self.code, self.rows[-1], self.tile
        start, stop = self._rows_of(row_units)

        def inner(base: list[Any]) -> None:
            near = self.rows[-2] if len(self.rows) > 1 else Span(1, 0, 0, 0)
            for at, length in spans(self.code, start, stop, last.size, tile.row_tile, tile.row_rest):
                rows = [
                    _Row(
                        code.add(code.mul(j, near.a), code.mul(i - i % _NEAR, last.a)),
                        code.mul(i % _NEAR, last.a),
                        code.add(code.mul(j, near.c), code.mul(i, last.c)),
                        (j * near.c if isinstance(near.c, int) else 0) + i if last.c == 1 else None,
                    )
                    for j in range(tile.outer_tile)
                    for i in range(length)
                ]
                here = self._advanced(base, last, at)
                if self.near:
                    here[0] = self.near.place(start, at)
                self._tile(here, rows, columns, count, begin)

        self._outer_rows(base, 0, row_units, inner)

    def _rows_of(self, row_units: list[Any]) -> tuple[Any, Any]:
        """The first row of a unit along the last row axis, and the end of its rows."""
        size = self.rows[-1].size
        if not self.spec.row_blocks[-1]:
            return 0, size
        start = self.code.mul(row_units[-1], self.row_blocks[-1])
        return start, self.code.least(self.code.add(start, self.row_blocks[-1]), size)

    def _outer_rows(
        self, base: list[Any], place: int, row_units: list[Any], inner: Callable[[list[Any]], None]
    ) -> None:
        """Loops over the unit's rows along all row axes but the last, by recursion over the axes."""
        if place == len(self.rows) - 1:
            inner(base)
            return
        axis, block = self.rows[place], self.row_blocks[place]
        base = self._advanced(base, axis, self.code.mul(row_units[place], block))
        step = self.tile.outer_tile if place == len(self.rows) - 2 else 1
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
        spec, code, flat = self.spec, self.code, self.spec.flat
        sizes = [count, *(x.size for x in self.inner[1:])]
        short = [self._moved(index, self.inner[flat:]) for index in product(*(range(n) for n in sizes[flat:]))]

        heads = self._heads(base[0], rows)

        def body(at: list[Any], times: int) -> None:
            axis = self.inner[flat - 1] if flat else Span(1, 0, 0, 0)
            w = code.at(self.w, at[1], self.v.lane)
            for again in range(times):
                for da, db in short:
                    a = code.add(at[0], code.add(da, code.mul(again, axis.a)))
                    b = code.at(w, code.add(db, code.mul(again, axis.b)), self.v.lane)
                    self._step(heads, a, b, rows, columns, sums)

        def nest(at: list[Any], place: int) -> None:
            if place == flat:
                body(at, 1)
            elif place < flat - 1:
                with code.loop(sizes[place], carried=sums) as k:
                    nest(self._advanced(at, self.inner[place], k), place + 1)
            else:
                size, axis = sizes[place], self.inner[place]
                # a stride that is an argument costs an address per product
                busy = _BUSY if isinstance(axis.a, int) else _BUSY // 2
                times = max(n for n in (1, 2, TIMES) if n == 1 or n * len(short) * len(sums) <= busy)
                whole = size - size % times if isinstance(size, int) else size
                rest = times > 1 and (size % times > 0 if isinstance(size, int) else spec.rest)
                if rest and not isinstance(size, int):
                    whole = code.mul(code.divmod(size, times)[0], times)
                if not isinstance(whole, int) or whole:
                    with code.loop(whole, 0, times, sums) as k:
                        body(self._advanced(at, axis, k), times)
                if rest:
                    with code.loop(size, whole, carried=sums) as k:
                        body(self._advanced(at, axis, k), 1)

        nest([0, *base[1:]], 0)

    def _heads(self, base: Any, rows: list[_Row]) -> list[Any]:
        """For each row of a tile the pointer in a that it shares with near rows. The optimiser does not see how the
        pointers are related: it would compute each from the one before, for each product."""
        code = self.code
        found: dict[Any, Any] = {}
        for row in rows:
            if row.first not in found:
                pointer = code.at(self.a, code.add(base, row.first), self.v.lane)
                found[row.first] = code.intrinsic("llvm.launder.invariant.group.p0", POINTER, pointer)
        return [found[row.first] for row in rows]

    def _moved(self, index: Sequence[int], axes: Sequence[Span]) -> tuple[Any, Any]:
        """The distance in a and in b of an index along the unrolled axes."""
        code = self.code
        a: Any = 0
        b: Any = 0
        for i, axis in zip(index, axes):
            a, b = code.add(a, code.mul(i, axis.a)), code.add(b, code.mul(i, axis.b))
        return a, b

    def _step(
        self, heads: list[Any], a: Any, w: Any, rows: list[_Row], columns: list[_Column], sums: list[Any]
    ) -> None:
        """Adds the products of one inner index to a tile: ``a`` elements after the rows' heads, at ``w`` in b."""
        v, code, packed = self.v, self.code, bool(self.spec.panel)
        vectors = [v.load(w, column.b, None if packed else column.count) for column in columns]
        for column in columns if packed else ():
            v.prefetch(w, code.add(column.b, _AHEAD // self.spec.dtype.itemsize))
        number = 0
        for head, row in zip(heads, rows):
            factor = v.splat(head, code.add(row.a, a))
            for vector in vectors:
                sums[number] = v.fma(factor, vector, sums[number])
                number += 1

    def _runs(self, rows: list[_Row]) -> Iterator[range]:
        """Runs of rows that are adjacent in c, at most a vector of them."""
        start = 0
        for i in range(1, len(rows) + 1):
            place, before = rows[i].place if i < len(rows) else None, rows[i - 1].place
            if place is None or before is None or i - start == self.v.lanes or place != before + 1:
                yield range(start, i)
                start = i

    def _store(self, c: Any, rows: list[_Row], columns: list[_Column], sums: list[Any], later: Any) -> None:
        """Stores a tile. Adds it to what c holds if the i1 ``later`` is true; None: never."""
        code, wide, stride = self.code, len(columns), self.lanes[-1].c
        if isinstance(stride, int) and stride == 1:
            places = [(code.add(row.c, column.c), column.count) for row in rows for column in columns]
            self._put(c, [(value, *place) for value, place in zip(sums, places)], later)
            return
        for j, column in enumerate(columns):
            for run in self._runs(rows):
                turned = self.v.columns([sums[i * wide + j] for i in run], column.count)
                first = code.add(rows[run.start].c, column.c)
                places = [code.add(first, code.mul(lane, stride)) for lane in range(len(turned))]
                self._put(c, [(x, place, len(run)) for x, place in zip(turned, places)], later)

    def _put(self, c: Any, values: list[tuple[Any, Any, int]], later: Any) -> None:
        """Stores, or adds, vectors (or single values) at their place, with their lanes in use."""
        b, v, found = self.b, self.v, [value for value, _, _ in values]
        if later is not None:

            def added() -> list[Any]:
                lanes = v.lanes_of(found[0])
                return [b.fadd(v.load(c, place, count, lanes), value) for value, place, count in values]

            found = self.code.if_then(later, found, added)
        for value, (_, place, count) in zip(found, values):
            v.store(value, c, place, count)
