"""The gradient of attention: recomputes probabilities from the saved sums, by tiles (Dao et al. 2022, algorithm 4)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Final

from dslc.compiler.codegen.cpu.attention.forward import PANEL, Heads, Scores
from dslc.compiler.codegen.cpu.contraction.axes import spans
from dslc.compiler.codegen.cpu.contraction.small_matmul import ROWS, Matrix, Product
from dslc.compiler.codegen.cpu.kernel_spec import KernelSpec
from dslc.compiler.codegen.cpu.llvm.vectors import Vectors
from dslc.compiler.codegen.cpu.llvm.writer import Code
from dslc.compiler.ir.described import described

_TILE_ROWS: Final = 64  # queries and keys per tile; its probabilities and gradients stay in a near cache
_WANTED_UNITS: Final = 16  # units wanted


@described("AttentionGrad", "heads")
@dataclass(frozen=True)
class AttentionGrad(KernelSpec):
    """``k(q, k, lse, inner, dy, keys, values, [mask,] dq, dk, dv)``: keys and values are packed as for ``Attention``;
    ``inner`` is the sum over each row of dy * y.

    A unit is a group and one of ``parts`` of its keys. With several parts, dq is ``[parts, *shape of q]``, initially
    zeros, and must be added up afterwards.
    """

    heads: Heads

    @property
    def blocks(self) -> int:
        """Tiles along the keys."""
        return -(-self.heads.keys // _TILE_ROWS)

    @property
    def parts(self) -> int:
        """Number of parts into which the keys are split at tile boundaries, so that all threads have work."""
        wanted = min(self.blocks, -(-_WANTED_UNITS // max(1, self.heads.groups)))
        return -(-self.blocks // -(-self.blocks // wanted))

    @property
    def tasks(self) -> int:
        return self.heads.groups * self.parts

    def emit(self, code: Code) -> None:
        _Backward(code, self).run()


@dataclass(frozen=True, slots=True)
class _Tile:
    """The queries from ``row`` on and the keys from ``key`` on, of a group, in a part of its keys. ``first_row`` and
    ``first_key``: those of the part's first tile with the same keys, and with the same queries."""

    group: Any
    part: Any
    row: Any
    key: Any
    first_row: Any
    first_key: Any


class _Backward:
    def __init__(self, code: Code, spec: AttentionGrad) -> None:
        self.code, self.b, self.h, self.spec = code, code.b, spec.heads, spec
        self.v = Vectors(code, spec.heads.dtype)
        pointers = [code.argument(i) for i in range(10 if self.h.mask is None else 11)]
        self.q, self.k, self.lse, self.inner, self.dy, self.keys, self.values, *mask = pointers[:-3]
        self.dq, self.dk, self.dv = pointers[-3:]
        self.lanes = PANEL * self.v.lanes
        self.weights, self.slopes = (code.local(self.v.lane, _TILE_ROWS * _TILE_ROWS, 64) for _ in range(2))
        self.s = Scores(self.v, self.h, _TILE_ROWS, mask[0] if mask else None)

    def run(self) -> None:
        code, h = self.code, self.h
        size = -(-self.spec.blocks // self.spec.parts) * _TILE_ROWS  # keys of a part
        with code.loop(code.last, code.first) as unit:
            group, part = code.divmod(unit, self.spec.parts)
            first = code.mul(part, size)
            with code.loop(code.least(code.add(first, size), h.keys), first, _TILE_ROWS) as key:
                begin = key if h.causal else 0  # a multiple of _TILE
                with code.loop(h.queries, begin, _TILE_ROWS) as row:
                    self._tile(_Tile(group, part, row, key, begin, first))

    def _tile(self, tile: _Tile) -> None:
        """Adds what a tile gives to all gradients."""
        code, h, v, b = self.code, self.h, self.v, self.b
        group, row, key = tile.group, tile.row, tile.key
        stop = code.least(code.add(row, _TILE_ROWS), h.queries)
        for at, rows in spans(code, row, stop, h.queries, ROWS):
            self._rows(tile, at, rows)
        last = code.least(code.add(key, _TILE_ROWS), h.keys)
        again = b.icmp_signed("!=", code.int(row), code.int(tile.first_row))
        for at, rows in spans(code, key, last, h.keys, ROWS):
            # a tile on the diagonal: earlier queries do not attend to these keys
            hidden = b.sub(code.int(at), code.int(row))
            skip = b.select(b.icmp_signed(">", hidden, code.int(0)), hidden, code.int(0)) if h.causal else 0
            inner = (skip, b.sub(code.int(stop), code.int(row)))
            for local, source, target, width in (
                (self.weights, self.dy, self.dv, h.values),
                (self.slopes, self.q, self.dk, h.features),
            ):
                left = Matrix(local, b.sub(code.int(at), code.int(key)), 1, _TILE_ROWS)
                right = Matrix(source, code.mul(code.add(code.mul(group, h.queries), row), width), width)
                sums = Matrix(target, code.mul(code.add(code.mul(group, h.keys), at), width), width)
                Product(left, right, sums, rows, width, inner, again).emit(v)

    def _rows(self, tile: _Tile, at: Any, rows: int) -> None:
        """Computes the probabilities of ``rows`` queries of a tile, from query ``at`` on, and the gradients of their
        scores, and adds their contribution to dq."""
        code, h, v, b = self.code, self.h, self.v, self.b
        group, key = tile.group, tile.key
        count = code.least(b.sub(code.int(h.keys), code.int(key)), _TILE_ROWS)
        if h.causal:
            count = code.least(self.s.limit(code.add(at, rows - 1), key), count)
        panels = self.s.panels(count)
        number = code.add(code.mul(group, h.queries), at)
        local = code.mul(b.sub(code.int(at), code.int(tile.row)), _TILE_ROWS)
        first = code.add(code.mul(group, -(-h.keys // self.lanes)), code.divmod(key, self.lanes)[0])
        with code.loop(panels) as p:
            for source, packed, target, width in (
                (self.q, self.keys, self.weights, h.features),
                (self.dy, self.values, self.slopes, h.values),
            ):
                panel = Matrix(packed, code.mul(code.add(first, p), width * self.lanes), self.lanes)
                result = Matrix(target, code.add(local, code.mul(p, self.lanes)), _TILE_ROWS)
                left = Matrix(source, code.mul(number, width), width)
                Product(left, panel, result, rows, self.lanes, (0, width)).emit(v)
        with code.loop(rows) as i:
            place = code.add(local, code.mul(i, _TILE_ROWS))
            self._slopes(tile, code.add(at, i), code.add(number, i), place, code.mul(panels, self.lanes))
        dq = code.add(code.mul(tile.part, h.groups * h.queries), number)
        Product(
            Matrix(self.slopes, local, _TILE_ROWS),
            Matrix(self.k, code.mul(code.add(code.mul(group, h.keys), key), h.features), h.features),
            Matrix(self.dq, code.mul(dq, h.features), h.features),
            rows,
            h.features,
            (0, count),
            True if self.spec.parts > 1 else b.icmp_signed("!=", code.int(key), code.int(tile.first_key)),
        ).emit(v)

    def _slopes(self, tile: _Tile, row: Any, number: Any, place: Any, width: Any) -> None:
        """In place, for one query: scores become probabilities; gradients of probabilities become those of scaled
        scores. ``number``: the query's among all groups; ``place``: where its ``width`` local scores begin."""
        code, v, b, functions = self.code, self.v, self.b, self.s.functions
        lse, inner = (v.splat(pointer, number) for pointer in (self.lse, self.inner))
        lse = b.select(b.fcmp_ordered("==", lse, functions.const(-math.inf)), v.zero, lse)  # it attends to no key
        limit = self.s.limit(row, tile.key)
        with code.loop(width, 0, v.lanes) as at:
            here = code.add(place, at)
            allowed = self.s.allowed(tile.group, row, tile.key, at, limit)
            weight = functions.exp(b.fsub(self.s.scaled(v.load(self.weights, here)), lse))
            slope = self.s.scaled(b.fmul(weight, b.fsub(v.load(self.slopes, here), inner)))
            v.store(b.select(allowed, weight, v.zero), self.weights, here)
            v.store(b.select(allowed, slope, v.zero), self.slopes, here)
