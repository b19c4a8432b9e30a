"""Attention in tiles of queries and keys that stay in a near cache: the full score matrix is never in memory.

``sdpa`` processes ``ROWS`` queries at a time over blocks of keys, with an online softmax (Milakov and Gimelshein 2018;
Dao et al. 2022). The keys are first packed in panels of neighbours, so that scores fill vectors. Tiles that causality
masks completely are skipped. Within a tile, a masked score has weight 0, which is still multiplied by the value. The
order of all sums depends only on shapes.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from dslc.compiler.codegen.cpu.contraction.axes import spans
from dslc.compiler.codegen.cpu.contraction.small_matmul import ROWS, Matrix, Product
from dslc.compiler.codegen.cpu.kernel_spec import KernelSpec
from dslc.compiler.codegen.cpu.llvm.math import Functions
from dslc.compiler.codegen.cpu.llvm.values import Values
from dslc.compiler.codegen.cpu.llvm.vectors import Vectors
from dslc.compiler.codegen.cpu.llvm.writer import I8, I32, Code, suffix
from dslc.compiler.ir.described import described
from dslc.compiler.ir.types import DType

PANEL: Final = 2  # vectors of keys per panel
_BLOCK_KEYS: Final = 512  # keys per block of the forward pass
_SOFTMAX_ROWS: Final = 4  # rows whose softmax is computed together
_TASK_PRODUCTS: Final = 16384  # vector products per task, about


@described("Heads", "dtype batch queries keys features values causal scale mask")
@dataclass(frozen=True)
class Heads:
    """The shapes of an attention: q ``[*batch, queries, features]``, k ``[*batch, keys, features]``, v ``[*batch, keys,
    values]``. ``mask``: the strides over ``[*batch, queries, keys]`` of a b1 mask, true where a query may attend."""

    dtype: DType
    batch: tuple[int, ...]
    queries: int
    keys: int
    features: int
    values: int
    causal: bool
    scale: float
    mask: tuple[int, ...] | None

    @property
    def groups(self) -> int:
        return math.prod(self.batch)


class Scores:
    """Scores of some rows in local memory, and which of them are valid. Rows are ``stride`` elements apart."""

    def __init__(self, v: Vectors, heads: Heads, stride: int, mask: Any) -> None:
        self.v, self.heads, self.stride, self.mask = v, heads, stride, mask
        self.functions = Functions(v.code, v.type)
        self.values = Values(v.code, v.lanes)

    def panels(self, count: Any) -> Any:
        """Panels that hold ``count`` keys from a block's start; none if the count is negative."""
        code, lanes = self.v.code, PANEL * self.v.lanes
        if isinstance(count, int):
            return -(-count // lanes)
        positive = code.b.select(code.b.icmp_signed(">", count, code.int(0)), count, code.int(0))
        return code.divmod(code.add(positive, lanes - 1), lanes)[0]

    def limit(self, row: Any, first: Any) -> Any:
        """Number of keys from key ``first`` on that a query may attend to, ignoring the mask; may be negative."""
        code = self.v.code
        end = code.add(row, 1) if self.heads.causal else self.heads.keys
        if isinstance(end, int) and isinstance(first, int):
            return end - first
        return code.b.sub(code.int(end), code.int(first))

    def allowed(self, group: Any, row: Any, first: Any, at: Any, limit: Any) -> Any:
        """An i1 for each of the keys ``first + at``, ... of a vector: whether the query may attend to it."""
        v, code, b = self.v, self.v.code, self.v.b
        splat, places = self.values.splat, self.values.counting(at).value
        inside = b.icmp_signed("<", places, splat(code.int(limit)))
        if self.mask is None:
            return inside
        assert self.heads.mask is not None
        *outer, by_row, by_key = self.heads.mask
        base: Any = code.mul(row, by_row)
        for index, stride in zip(code.unravel(group, self.heads.batch), outer):
            base = code.add(base, code.mul(index, stride))
        if by_key == 0:
            one = b.load(code.at(self.mask, base, I8), typ=I8, align=1)
            return b.and_(inside, splat(b.icmp_unsigned("!=", one, I8(0))))
        pointer = code.at(self.mask, code.add(base, code.add(first, at)), I8)
        none = self.values.const(0, DType.U8).value
        if self.heads.keys % v.lanes:  # bytes past the last key do not belong to the mask
            near = b.icmp_signed("<", places, splat(b.sub(code.int(self.heads.keys), code.int(first))))
            name = f"llvm.masked.load.{suffix(none.type)}.p0"
            found = code.intrinsic(name, none.type, pointer, I32(1), near, none)
        else:
            found = b.load(pointer, typ=none.type, align=1)
        return b.and_(inside, b.icmp_unsigned("!=", found, none))

    def scaled(self, value: Any) -> Any:
        return self.v.b.fmul(value, self.functions.const(self.heads.scale))


@described("Attention", "heads")
@dataclass(frozen=True)
class Attention(KernelSpec):
    """``k(q, keys, v, [mask,] y, lse)``; ``keys`` is k packed as ``[groups, keys/panel, features, panel]``."""

    heads: Heads

    @property
    def units(self) -> int:
        """Units of up to ROWS queries."""
        return self.heads.groups * -(-self.heads.queries // ROWS)

    @property
    def group(self) -> int:
        """Units per task."""
        h = self.heads
        return max(1, _TASK_PRODUCTS * 64 // (ROWS * h.keys * (h.features + h.values) * h.dtype.itemsize))

    @property
    def tasks(self) -> int:
        return -(-self.units // self.group)

    def emit(self, code: Code) -> None:
        _Forward(code, self.heads).run(code.mul(code.first, self.group), code.mul(code.last, self.group), self.units)


@dataclass(frozen=True, slots=True)
class _Queries:
    """``count`` queries of a group, from query ``first`` on; their scores are in the local rows from ``local`` on."""

    group: Any
    first: Any
    local: Any
    count: int


class _Forward:
    def __init__(self, code: Code, heads: Heads) -> None:
        self.code, self.b, self.h = code, code.b, heads
        self.v = Vectors(code, heads.dtype)
        pointers = [code.argument(i) for i in range(5 if heads.mask is None else 6)]
        self.q, self.k, self.values, *mask, self.y, self.lse = pointers
        self.lanes = PANEL * self.v.lanes
        self.block = min(_BLOCK_KEYS, -(-heads.keys // self.lanes) * self.lanes)
        self.single = heads.keys <= self.block
        self.scores = code.local(self.v.lane, ROWS * self.block, 64)
        self.tops, self.totals = (code.local(self.v.lane, max(ROWS, self.v.lanes)) for _ in range(2))
        self.s = Scores(self.v, heads, self.block, mask[0] if mask else None)

    def run(self, start: Any, stop: Any, units: int) -> None:
        code, h = self.code, self.h
        with code.loop(code.least(stop, units), start) as unit:
            group, tile = code.divmod(unit, -(-h.queries // ROWS))
            row = code.mul(tile, ROWS)
            whole = h.queries - h.queries % ROWS
            if whole in (0, h.queries):
                self._unit(_Queries(group, row, 0, h.queries % ROWS or ROWS))
            else:
                with self.b.if_else(self.b.icmp_signed("<", code.int(row), code.int(whole))) as (then, otherwise):
                    with then:
                        self._unit(_Queries(group, row, 0, ROWS))
                    with otherwise:
                        self._unit(_Queries(group, row, 0, h.queries % ROWS))

    def _unit(self, queries: _Queries) -> None:
        """Their rows of y and of the logs of the sums."""
        code, h, v = self.code, self.h, self.v
        if not self.single:
            for i in range(queries.count):
                self._put(self.tops, i, v.lane(-math.inf))
                self._put(self.totals, i, v.lane(0.0))
        end = code.least(code.add(queries.first, queries.count), h.keys) if h.causal else h.keys
        with code.loop(end if not self.single else self.block, 0, self.block) as first:
            count = end if self.single else code.least(self.b.sub(code.int(end), first), self.block)
            self._block(queries, first, count)
        self._finish(queries)

    def _block(self, queries: _Queries, first: Any, count: Any) -> None:
        """Adds what ``count`` keys from key ``first`` on give."""
        code, h, v = self.code, self.h, self.v
        group, row, rows = queries.group, queries.first, queries.count
        panels = self.s.panels(count)
        number = code.mul(group, h.queries)
        q = Matrix(self.q, code.mul(code.add(number, row), h.features), h.features)
        keys = code.mul(code.add(code.mul(group, -(-h.keys // self.lanes)), code.divmod(first, self.lanes)[0]),
                        h.features * self.lanes)  # fmt: skip
        with code.loop(panels) as p:
            panel = Matrix(self.k, code.add(keys, code.mul(p, h.features * self.lanes)), self.lanes)
            target = Matrix(self.scores, code.mul(p, self.lanes), self.block)
            Product(q, panel, target, rows, self.lanes, (0, h.features)).emit(v)
        for i, some in spans(code, 0, rows, rows, _SOFTMAX_ROWS):
            self._softmax(_Queries(group, code.add(row, i), i, some), first, code.mul(panels, self.lanes))
        weights = Matrix(self.scores, 0, self.block)
        place = code.mul(code.add(code.mul(group, h.keys), first), h.values)
        add = False if self.single else self.b.icmp_signed("!=", code.int(first), code.int(0))
        y = Matrix(self.y, code.mul(code.add(number, row), h.values), h.values)
        Product(weights, Matrix(self.values, place, h.values), y, rows, h.values, (0, count), add).emit(v)

    def _softmax(self, queries: _Queries, first: Any, width: Any) -> None:
        """Turns ``width`` scores of each query, with the keys from ``first`` on, into exponentials, and stores each
        query's maximum and sum.

        Several queries are processed together, since a single one would wait for its sums.
        """
        code, b, v, functions = self.code, self.b, self.v, self.s.functions
        lowest = functions.const(-math.inf)
        tops, totals = ([code.local(v.type) for _ in range(queries.count)] for _ in range(2))
        for top, total in zip(tops, totals):
            b.store(lowest, top)
            b.store(v.zero, total)
        bases = [code.mul(code.add(queries.local, i), self.block) for i in range(queries.count)]
        with code.loop(width, 0, v.lanes) as at:
            for i, (base, top) in enumerate(zip(bases, tops)):
                here = code.add(queries.first, i)
                score = self.s.scaled(v.load(self.scores, code.add(base, at)))
                allowed = self.s.allowed(queries.group, here, first, at, self.s.limit(here, first))
                score = b.select(allowed, score, lowest)
                v.store(score, self.scores, code.add(base, at))
                b.store(_greater(v, score, b.load(top, typ=v.type)), top)
        found = [across(v, b.load(top, typ=v.type), lambda x, y: _greater(v, x, y)) for top in tops]
        if not self.single:
            found = [
                _greater(v, most, self._get(self.tops, code.add(queries.local, i))) for i, most in enumerate(found)
            ]
        shifts = [b.select(b.fcmp_ordered("==", m, v.lane(-math.inf)), v.lane(0.0), m) for m in found]
        wide = [self.s.values.splat(shift) for shift in shifts]
        with code.loop(width, 0, v.lanes) as at:
            for base, total, shift in zip(bases, totals, wide):
                place = code.add(base, at)
                weight = functions.exp(b.fsub(v.load(self.scores, place), shift))
                v.store(weight, self.scores, place)
                b.store(b.fadd(b.load(total, typ=v.type), weight), total)
        sums = [across(v, b.load(total, typ=v.type), b.fadd) for total in totals]
        for i, (most, shift, total) in enumerate(zip(found, shifts, sums)):
            place = code.add(queries.local, i)
            if not self.single:
                one = _Queries(queries.group, code.add(queries.first, i), place, 1)
                total = self._with_earlier(one, first, shift, total)
            self._put(self.tops, place, most)
            self._put(self.totals, place, total)

    def _with_earlier(self, query: _Queries, first: Any, shift: Any, total: Any) -> Any:
        """Adds to a query's ``total`` the sum of the earlier blocks, rescaled to the new maximum ``shift``; rescales y,
        too."""
        b = self.b
        factor = Functions(self.code, self.v.lane).exp(b.fsub(self._get(self.tops, query.local), shift))
        with b.if_then(b.icmp_signed("!=", self.code.int(first), self.code.int(0))):
            self._scale(query.group, query.first, factor)
        return b.fadd(b.fmul(self._get(self.totals, query.local), factor), total)

    def _finish(self, queries: _Queries) -> None:
        """Stores the logs of the sums and divides y by the sums; all rows are in one vector."""
        code, b, v, functions = self.code, self.b, self.v, self.s.functions
        group, row, rows = queries.group, queries.first, queries.count
        totals, tops = (v.load(pointer, 0, rows) for pointer in (self.totals, self.tops))
        tops = b.select(b.fcmp_ordered("==", tops, functions.const(-math.inf)), v.zero, tops)
        lse = b.fadd(functions.log(totals), tops)
        v.store(lse, self.lse, code.add(code.mul(group, self.h.queries), row), rows)
        one = functions.const(1.0)
        v.store(b.fdiv(one, b.select(b.fcmp_ordered("==", totals, v.zero), one, totals)), self.totals, 0)
        with code.loop(rows) as i:
            self._scale(group, code.add(row, i), self._get(self.totals, i))

    def _scale(self, group: Any, row: Any, factor: Any) -> None:
        """Multiplies a row of y by ``factor``."""
        code, v, h = self.code, self.v, self.h
        base, factors = code.mul(code.add(code.mul(group, h.queries), row), h.values), self.s.values.splat(factor)
        for at, count in spans(code, 0, h.values, h.values, v.lanes):
            place = code.add(base, at)
            v.store(self.b.fmul(v.load(self.y, place, count), factors), self.y, place, count)

    def _get(self, pointer: Any, index: Any) -> Any:
        return self.b.load(self.code.at(pointer, index, self.v.lane), typ=self.v.lane, align=self.h.dtype.itemsize)

    def _put(self, pointer: Any, index: Any, value: Any) -> None:
        self.b.store(value, self.code.at(pointer, index, self.v.lane), align=self.h.dtype.itemsize)


def _greater(v: Vectors, x: Any, y: Any) -> Any:
    """The maximum, or y if one is nan: the sum of exponentials propagates nan."""
    return v.b.select(v.b.fcmp_ordered(">", x, y), x, y)


def across(v: Vectors, value: Any, combine: Callable[[Any, Any], Any]) -> Any:
    """Combines the lanes of a vector, half with half."""
    lanes = v.lanes
    while lanes > 1:
        lanes //= 2
        if lanes == 1:
            return combine(*(v.b.extract_element(value, I32(i)) for i in (0, 1)))
        value = combine(*(v.pick(value, value, range(i, i + lanes)) for i in (0, lanes)))
    return value
