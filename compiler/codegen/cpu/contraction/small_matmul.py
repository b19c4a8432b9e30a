"""Products of small matrices inside a kernel, with operands in near memory: ``c = a b`` or ``c += a b``.

A kernel describes a ``Product`` and emits it. A tile of c, some rows times some vectors along its lanes, stays in
registers while the inner index runs. The products of an element are added with fused multiply-add in the order of that
index, so bits do not depend on tiles or levels.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Final

from dslc.compiler.codegen.cpu.contraction.axes import spans
from dslc.compiler.codegen.cpu.llvm.vectors import Vectors

ROWS: Final = 8  # most rows of c per call
_TILES: Final = {32: (8, 2), 8: (4, 1)}  # by registers the rows and vectors that fit
_UNROLL: Final = 4


@dataclass(frozen=True)
class Matrix:
    """A matrix from element ``base`` of ``pointer``, with strides ``row`` and ``column``."""

    pointer: Any
    base: Any
    row: int
    column: int = 1


@dataclass(frozen=True)
class Product:
    """c[rows, lanes] = (c +) the sum over k of a[row, k] * b[k, lane].

    At most ``ROWS`` rows; columns (the lanes) of ``b`` and ``c`` are contiguous. ``inner``: the first k, and the end of
    k. ``add``: whether c is added, a bool or an i1.
    """

    a: Matrix
    b: Matrix
    c: Matrix
    rows: int
    lanes: int
    inner: tuple[Any, Any]
    add: Any = False

    def emit(self, v: Vectors) -> None:
        """Tile by tile."""
        code, a, b, c = v.code, self.a, self.b, self.c
        high, wide = _TILES[code.registers]
        for column, width in spans(code, 0, self.lanes, self.lanes, wide * v.lanes):
            for row in range(0, self.rows, high):
                here = Matrix(a.pointer, code.add(a.base, row * a.row), a.row, a.column)
                right = Matrix(b.pointer, code.add(b.base, column), b.row)
                target = Matrix(c.pointer, code.add(code.add(c.base, row * c.row), column), c.row)
                rows = min(high, self.rows - row)
                _tile(v, replace(self, a=here, b=right, c=target, rows=rows, lanes=width))


def _tile(v: Vectors, product: Product) -> None:
    """A product of which c fits the registers."""
    code, irb, a, b, c = v.code, v.b, product.a, product.b, product.c
    columns = [(x, min(v.lanes, product.lanes - x)) for x in range(0, product.lanes, v.lanes)]
    places = [(i, x, count) for i in range(product.rows) for x, count in columns]
    sums = [code.local(v.type) for _ in places]

    def begin(load: bool) -> None:
        for (i, x, count), place in zip(places, sums):
            old = v.load(c.pointer, code.add(c.base, i * c.row + x), count) if load else v.zero
            irb.store(old, place)

    def step(k: Any, times: int) -> None:
        left = code.at(a.pointer, code.add(a.base, code.mul(k, a.column)), v.lane)
        right = code.at(b.pointer, code.add(b.base, code.mul(k, b.row)), v.lane)
        for again in range(times):
            vectors = [v.load(right, again * b.row + x, count) for x, count in columns]
            for i in range(product.rows):
                factor = v.splat(left, again * a.column + i * a.row)
                for vector, place in zip(vectors, sums[i * len(columns) :]):
                    irb.store(v.fma(factor, vector, irb.load(place, typ=v.type)), place)

    if isinstance(product.add, bool):
        begin(product.add)
    else:
        with irb.if_else(product.add) as (then, otherwise):
            with then:
                begin(True)
            with otherwise:
                begin(False)
    first, last = product.inner
    if isinstance(first, int) and isinstance(last, int):
        whole: Any = last - (last - first) % _UNROLL
    else:
        count = irb.sub(code.int(last), code.int(first))
        whole = irb.sub(code.int(last), irb.srem(count, code.int(_UNROLL)))
    if not isinstance(whole, int) or whole > first:
        with code.loop(whole, first, _UNROLL) as k:
            step(k, _UNROLL)
    if not isinstance(last, int) or not isinstance(whole, int) or whole < last:
        with code.loop(last, whole) as k:
            step(k, 1)
    for (i, x, count), place in zip(places, sums):
        v.store(irb.load(place, typ=v.type), c.pointer, code.add(c.base, i * c.row + x), count)
