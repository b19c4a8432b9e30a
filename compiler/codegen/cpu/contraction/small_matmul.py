"""Products of small matrices inside a kernel, with operands in near memory: ``c = a b`` or ``c += a b``.

A tile of c, some rows times some vectors along its lanes, stays in registers while the inner index runs. The products
of an element are added with fused multiply-add in the order of that index, so bits do not depend on tiles or levels.
"""

from __future__ import annotations

from dataclasses import dataclass
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


def product(
    v: Vectors, a: Matrix, b: Matrix, c: Matrix, rows: int, lanes: int, inner: tuple[Any, Any], add: Any = False
) -> None:
    """c[rows, lanes] = (c +) the sum over k of a[row, k] * b[k, lane], with ``inner`` = (first k, end of k).

    At most ``ROWS`` rows; columns (the lanes) of ``b`` and ``c`` are contiguous. ``add``: a bool, or an i1.
    """
    code = v.code
    high, wide = _TILES[code.registers]
    for column, width in spans(code, 0, lanes, lanes, wide * v.lanes):
        for row in range(0, rows, high):
            here = Matrix(a.pointer, code.add(a.base, row * a.row), a.row, a.column)
            right = Matrix(b.pointer, code.add(b.base, column), b.row)
            target = Matrix(c.pointer, code.add(code.add(c.base, row * c.row), column), c.row)
            _tile(v, here, right, target, min(high, rows - row), width, inner, add)


def _tile(v: Vectors, a: Matrix, b: Matrix, c: Matrix, rows: int, lanes: int, inner: tuple[Any, Any], add: Any) -> None:
    code, irb = v.code, v.b
    columns = [(x, min(v.lanes, lanes - x)) for x in range(0, lanes, v.lanes)]
    places = [(i, x, count) for i in range(rows) for x, count in columns]
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
            for i in range(rows):
                factor = v.splat(left, again * a.column + i * a.row)
                for vector, place in zip(vectors, sums[i * len(columns) :]):
                    irb.store(v.fma(factor, vector, irb.load(place, typ=v.type)), place)

    if isinstance(add, bool):
        begin(add)
    else:
        with irb.if_else(add) as (then, otherwise):
            with then:
                begin(True)
            with otherwise:
                begin(False)
    first, last = inner
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
