"""The slices of what a training step updates, one for each shard: who of several processes updates what (ZeRO-1,
Rajbhandari et al. 2020).

Trained parameters, in the order of the state, lie side by side, each aligned. This range is cut into as many slices of
equal size as the step has shards, so a tensor may be cut into pieces. Slots of the optimizer are cut like their
parameter. A process that owns neighbouring shards owns the slices with the same numbers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

ALIGNMENT: Final = 64  # bytes; of tensors in the state, of sums, and of slices
MOST_SLICES: Final = 64  # each may cut a tensor, whose pieces are updates of their own


class Piece(NamedTuple):
    """Elements from ``start`` to before ``stop`` of a tensor, in row-major order, which belong to a slice."""

    start: int
    stop: int
    slice: int


def slice_count(shards: int) -> int:
    """The number of slices of a step with so many shards."""
    return min(shards, MOST_SLICES)


def pieces_of(params: Iterable[tuple[str, int, int]], slices: int) -> Mapping[str, tuple[Piece, ...]]:
    """The pieces of each trained parameter. ``params``: (name, elements, bytes of an element), in the state's order."""
    listed = list(params)
    size = slice_bytes(listed, slices)
    found: dict[str, tuple[Piece, ...]] = {}
    at = 0
    for name, count, itemsize in listed:
        end, pieces, here = at + count * itemsize, list[Piece](), at
        while here < end:
            number = here // size
            stop = min(end, (number + 1) * size)
            pieces.append(Piece((here - at) // itemsize, (stop - at) // itemsize, number))
            here = stop
        found[name] = tuple(pieces)
        at += aligned(count * itemsize)
    return found


def slice_bytes(params: Iterable[tuple[str, int, int]], slices: int) -> int:
    """The bytes of a slice."""
    total = sum(aligned(count * itemsize) for _, count, itemsize in params)
    return max(ALIGNMENT, aligned(-(-total // slices)))


def piece_name(name: str, piece: Piece) -> str:
    """The name of a piece in an update's graph: ``w[0:16]``."""
    return f"{name}[{piece.start}:{piece.stop}]"


def aligned(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT
