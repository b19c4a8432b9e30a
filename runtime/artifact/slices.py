"""The slices of what a training step updates: who of several processes updates what (ZeRO-1, Rajbhandari et al. 2020).

Trained parameters, in the order of the state, lie side by side, each aligned. This range is cut into slices of equal
size, one or several for each shard of the step, so a tensor may be cut into pieces. Slots of the optimizer are cut like
their parameter. Each process updates as many of them, in stages, so that what belongs to one stage moves while another
one computes. The slices of a stage belong to the processes in turn, so what a backward pass computes late belongs to
all of them alike.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

ALIGNMENT: Final = 64  # bytes; of tensors in the state, of sums, and of slices
MOST_SLICES: Final = 64  # each may cut a tensor, whose pieces are updates of their own
#: 2 b / a of ``stage_count``: 2.8 us for each MB (0.19 and 0.51 ms for GPT-2's 249 MB on an H200, 2026-11-27), and an
#: estimate of 16 us for a transfer's start, which was not measured.
STAGE_BYTES: Final = 11 << 20


class Piece(NamedTuple):
    """Elements from ``start`` to before ``stop`` of a tensor, in row-major order, which belong to a slice."""

    start: int
    stop: int
    slice: int


def slice_count(shards: int, size: int = 0) -> int:
    """The number of slices of a step with so many shards: as many for each as a process with one shard has stages.
    ``size``: the bytes of all trained parameters."""
    count = min(shards, MOST_SLICES)
    return min(count * stage_count(size // count), MOST_SLICES)


def stage_count(size: int) -> int:
    """The number of stages, a power of two, in which a process exchanges and updates so many bytes of parameters.

    With k stages the k-th part of the additions and of the update still takes time of its own, and each stage begins
    two transfers. The sum is least at ``sqrt(a size / 2 b)`` for ``a`` seconds a byte and ``b`` a transfer's start."""
    count = 1
    while (2 * count) ** 2 * STAGE_BYTES <= size:
        count *= 2
    return count


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
