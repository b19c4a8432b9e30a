"""Chooses the sides of a transpose's tiles.

Tiles of 64 by 64 elements leave most threads without work if an axis has a few more elements than 32 or 64: of a matrix
of 33 by 65, a quarter of two such tiles exists. One tile with a whole axis of up to 128 elements as its side then fits
better: on an H200, transposes of 33 by 65 take 0.56 of the time in bf16 and 0.8 in f32, of 33 by 51 0.77 and 0.98.
Sides that cut an axis into equal parts are slower than squares, since each part begins anywhere in a sector of memory.
Bits do not depend on tiles.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import Final

from dslc.compiler.codegen.cuda.region.thread_mapping import BLOCK_THREADS, TILE, Tiles
from dslc.compiler.codegen.device_model import STATIC_SHARED_BYTES

#: How much larger the share of elements that exist is than that of square tiles, whose lines are found by shifts.
_MUCH_BETTER: Final = 1.4
_MOST_ELEMENTS: Final = TILE * TILE  # of the threads of a block: about 16 of each


def fitting(square: Tiles, shared: int) -> Tiles:
    """Square tiles, or others that fit the sizes much better. ``shared``: bytes of shared memory per element."""
    sides = [_sides(square.sizes[axis], square.vector) for axis in (square.axis, -1)]
    found = [square]
    for tall, wide, threads in product(*sides, (BLOCK_THREADS, BLOCK_THREADS * 3 // 4)):
        tiles = replace(square, tall=tall, wide=wide, threads=threads)
        elements = tiles.held * threads * tiles.vector
        if elements <= _MOST_ELEMENTS and shared * (elements + elements // tall + tall) <= STATIC_SHARED_BYTES:
            found.append(tiles)
    best = max(found, key=_worth)
    return best if best.used > _MUCH_BETTER * square.used else square


def _worth(tiles: Tiles) -> float:
    """The share of the threads' elements that exist, less for tiles so small that few bytes are on their way."""
    return float(tiles.used * min(1.0, 2 * tiles.tall * tiles.wide / TILE**2) ** 0.5)


def _sides(size: int, vector: int) -> list[int]:
    """That of a square, or the whole axis."""
    whole = -(-size // vector) * vector
    return [TILE, whole] if TILE != whole <= 2 * TILE else [TILE]
