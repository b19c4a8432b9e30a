"""Axes of contractions, and how they are split into register tiles."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from dslc.compiler.codegen.cpu.llvm.writer import Code
from dslc.compiler.ir.described import described


@described("Axis", "size a b c")
@dataclass(frozen=True, slots=True)
class Axis:
    """A size, and the stride in each operand, in elements."""

    size: int
    a: int = 0
    b: int = 0
    c: int = 0

    def swapped(self) -> Axis:
        return Axis(self.size, self.b, self.a, self.c)


@dataclass(frozen=True, slots=True)
class Span:
    """An axis in the code: ints, or values."""

    size: Any
    a: Any
    b: Any
    c: Any


def divisor(n: int, most: int) -> int:
    """The largest divisor of n that is at most ``most``."""
    return next(d for d in range(max(1, min(n, most)), 0, -1) if n % d == 0)


def spans(
    code: Code, start: Any, stop: Any, size: Any, tile: int, rest: int | None = None
) -> Iterator[tuple[Any, int]]:
    """Yields tiles from start to stop of an axis of ``size``, then the rest at its end: (index, length), each inside
    its loop. ``start`` is a multiple of the tile; ``stop`` is one, too, or the end.

    ``rest``: what is left of the axis after whole tiles, needed if ``size`` is a value, which is more than a tile.
    """
    left = size % tile if rest is None else rest
    whole = size - left if isinstance(size, int) else code.add(size, -left)
    end = isinstance(stop, int) or stop is size
    if not isinstance(whole, int) or whole:
        with code.loop(whole if end else code.least(stop, whole), start, tile) as at:
            yield at, tile
    if not left:
        return
    if end:
        yield whole, left
    else:
        with code.b.if_then(code.b.icmp_signed("==", stop, code.int(size))):
            yield whole, left


def best_width(lanes: int, vector: int) -> int:
    """Vectors along the lanes of a tile, at most 4, such that the last tile wastes least."""
    vectors = -(-lanes // vector)
    return min((4, 3, 2), key=lambda w: (-(-vectors // w) * w, -w)) if vectors > 4 else vectors
