"""The slices of what a training step updates: who of several processes updates what (ZeRO-1, Rajbhandari et al. 2020).

Trained parameters, in the order of the state, lie side by side, each aligned. This range is cut into slices of equal
size, one or several for each shard of the step, so a tensor may be cut into pieces. Slots of the optimizer are cut like
their parameter. Each process updates as many of them, in stages, so that what belongs to one stage moves while another
one computes. The slices of a stage belong to the processes in turn, so what a backward pass computes late belongs to
all of them alike.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Final, NamedTuple

ALIGNMENT: Final = 64  # bytes; of tensors in the state, of sums, and of slices
MOST_SLICES: Final = 64  # each may cut a tensor, whose pieces are updates of their own
_MIB: Final = 1 << 20


@dataclass(frozen=True)
class Link:
    """What an exchange between two GPUs costs. ``copies``: (bytes, us) of transfers both ways at once, the smallest
    first; ``flag``: us until each process has seen a number that the other one has written; ``update``: us to add and
    update a MiB of parameters."""

    copies: tuple[tuple[int, float], ...]
    flag: float
    update: float

    @property
    def least(self) -> int:
        """The bytes of the smallest transfer that was measured."""
        return self.copies[0][0]

    def move(self, size: int) -> float:
        """us of a transfer with a flag before and after it, on the line through the two nearest measurements."""
        lines = list(pairwise(self.copies))
        (low, start), (high, end) = next((line for line in lines if size <= line[1][0]), lines[-1])
        return start + (size - low) * (end - start) / (high - low) + 2 * self.flag


#: Two H200 with NVLink: copy engines (2026-11-28); 58 us to add and 175 to update 59.4 MiB by AdamW (2026-11-29).
LINK = Link(((8 * _MIB, 40), (31 * _MIB, 89), (62 * _MIB, 171), (125 * _MIB, 340), (249 * _MIB, 671)), 5.5, 3.93)


class Piece(NamedTuple):
    """Elements from ``start`` to before ``stop`` of a tensor, in row-major order, which belong to a slice."""

    start: int
    stop: int
    slice: int


def slice_count(shards: int, size: int = 0) -> int:
    """The number of slices of a step with so many shards: as many for each as a process with one shard has stages.
    ``size``: the bytes of all trained parameters."""
    count = min(shards, MOST_SLICES)
    return min(count * stage_count(size // count, early=True), MOST_SLICES)


def stage_count(size: int, early: bool) -> int:
    """The number of stages, a power of two, in which a process exchanges and updates so many bytes of parameters: that
    for which ``exchange_time`` is least. No stage is smaller than the smallest transfer that was measured."""
    counts = [1]
    while size // (2 * counts[-1]) >= LINK.least:
        counts.append(2 * counts[-1])
    return min(counts, key=lambda count: exchange_time(size, count, early))


def exchange_time(size: int, stages: int, early: bool) -> float:
    """An estimate of the us after a shard's end in which processes exchange and update so many bytes of parameters.

    ``early``: all stages but the last begin before, and only the updated parameters of the last but one still wait for
    the stream of transfers. Each of these stages delays the shard, by an estimate of two flags. Otherwise all begin
    after it. Gradients are counted in f32."""
    move, update = LINK.move(size // stages), LINK.update * size / stages / _MIB
    if early and stages > 1:
        return move + max(update, move) + move + 2 * LINK.flag * (stages - 1)
    moved = arrived = move  # when the stream of transfers ends, and when the gradients of the next stage are there
    updated = 0.0
    for stage in range(stages):
        updated = max(updated, arrived) + update
        if stage + 1 < stages:
            moved = arrived = moved + move
        moved = max(moved, updated) + move
    return moved


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
