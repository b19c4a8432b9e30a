"""Offsets for buffers with lifetimes: several greedy placements, and the best of them.

Dynamic storage allocation is NP-hard; these are the usual greedy heuristics: in order of time with a best-fit free list
(also backwards in time), and for up to a few thousand buffers by size and by area, each into the smallest gap that
fits among the buffers alive at the same time. Where the best of them is not near the bound, hill climbing goes on from
it: buffers are placed one after another, each as low as possible, in an order in which one or two change their places
at a time, mostly who ends highest and who lives beside it.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Final

_QUADRATIC_UP_TO: Final = 4000
#: Hill climbing: the part above the bound that is near enough; which buffers take part, by their parts of the bound;
#: and for each of these rounds, how many pairs of buffers alive at the same time it may look at.
_NEAR: Final = 0.005
_SHARES: Final = (0.01, 0.002, 0.004, 0.002)
_PAIRS: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class Buffer:
    """``size`` bytes (a multiple of the alignment), alive at the times ``start`` to ``end``, both included."""

    size: int
    start: int
    end: int


def assign(buffers: Sequence[Buffer]) -> tuple[list[int], int, int]:
    """Offsets, the bytes that they need, and the lower bound: the most bytes alive at one time."""
    bound = lower_bound(buffers)
    best: list[int] = []
    least = -1
    for offsets in _portfolio(buffers):
        need = _top(buffers, offsets)
        if least < 0 or need < least:
            best, least = offsets, need
        if least == bound:
            break
    for number, share in enumerate(_SHARES):
        if least > (1 + _NEAR) * bound and len(buffers) <= _QUADRATIC_UP_TO:
            offsets = _climbed(buffers, best, bound, share, number)
            need = _top(buffers, offsets)
            if need < least:
                best, least = offsets, need
    return best, max(least, 0), bound


def _top(buffers: Sequence[Buffer], offsets: Iterable[int]) -> int:
    """The bytes that these offsets need."""
    return max((o + b.size for o, b in zip(offsets, buffers)), default=0)


def lower_bound(buffers: Sequence[Buffer]) -> int:
    """The most bytes alive at one time."""
    change: dict[int, int] = {}
    for b in buffers:
        change[b.start] = change.get(b.start, 0) + b.size
        change[b.end + 1] = change.get(b.end + 1, 0) - b.size
    alive = most = 0
    for time in sorted(change):
        alive += change[time]
        most = max(most, alive)
    return most


def _portfolio(buffers: Sequence[Buffer]) -> Iterable[list[int]]:
    yield _by_time(buffers)
    yield _by_time([Buffer(b.size, -b.end, -b.start) for b in buffers])
    if len(buffers) <= _QUADRATIC_UP_TO:
        sizes = [b.size for b in buffers]
        spans = [b.end - b.start + 1 for b in buffers]
        numbers = range(len(buffers))
        yield _by_order(buffers, sorted(numbers, key=lambda i: (-sizes[i], -spans[i], i)))
        yield _by_order(buffers, sorted(numbers, key=lambda i: (-sizes[i] * spans[i], i)))
        yield _by_order(buffers, sorted(numbers, key=lambda i: (-spans[i], -sizes[i], i)))


class _FreeList:
    """Free stretches below ``top``, merged with their neighbours; takes the smallest that fits."""

    def __init__(self) -> None:
        self.top = 0
        self.by_size: list[tuple[int, int]] = []
        self.end_of: dict[int, int] = {}
        self.start_of: dict[int, int] = {}

    def take(self, size: int) -> int:
        at = bisect_left(self.by_size, (size, 0))
        if at < len(self.by_size):
            have, start = self.by_size[at]
            self._remove(start, start + have)
            if have > size:
                self._insert(start + size, start + have)
            return start
        start = self.top
        if self.top in self.start_of:  # the last stretch is free, but too short: the region grows from there
            start = self.start_of[self.top]
            self._remove(start, self.top)
        self.top = start + size
        return start

    def give(self, start: int, end: int) -> None:
        if start in self.start_of:
            before = self.start_of[start]
            self._remove(before, start)
            start = before
        if end in self.end_of:
            after = self.end_of[end]
            self._remove(end, after)
            end = after
        self._insert(start, end)

    def _insert(self, start: int, end: int) -> None:
        insort(self.by_size, (end - start, start))
        self.end_of[start] = end
        self.start_of[end] = start

    def _remove(self, start: int, end: int) -> None:
        del self.by_size[bisect_left(self.by_size, (end - start, start))]
        del self.end_of[start]
        del self.start_of[end]


def _by_time(buffers: Sequence[Buffer]) -> list[int]:
    """As an allocator would at run time, knowing nothing of the future; larger ones first at one time."""
    offsets = [0] * len(buffers)
    events: list[tuple[int, int, int, int]] = []
    for i, b in enumerate(buffers):
        if b.size:
            events.append((b.start, 1, -b.size, i))
            events.append((b.end + 1, 0, 0, i))
    free = _FreeList()
    for _, starts, _, i in sorted(events):
        if starts:
            offsets[i] = free.take(buffers[i].size)
        else:
            free.give(offsets[i], offsets[i] + buffers[i].size)
    return offsets


def _by_order(buffers: Sequence[Buffer], order: Sequence[int]) -> list[int]:
    """One after another into the smallest gap between those placed before that live at the same time."""
    import numpy as np

    offsets = [0] * len(buffers)
    starts, ends, lows, highs = (np.zeros(len(buffers), np.int64) for _ in range(4))
    placed = 0
    for i in order:
        b = buffers[i]
        if not b.size:
            continue
        alive = np.flatnonzero((starts[:placed] <= b.end) & (ends[:placed] >= b.start))
        alive = alive[np.argsort(lows[alive], kind="stable")]
        gap_from = np.concatenate(([0], np.maximum.accumulate(highs[alive])))
        gap_size = lows[alive] - gap_from[:-1]
        fitting = np.flatnonzero(gap_size >= b.size)
        offset = int(gap_from[fitting[np.argmin(gap_size[fitting])]] if len(fitting) else gap_from[-1])
        offsets[i] = offset
        starts[placed], ends[placed], lows[placed], highs[placed] = b.start, b.end, offset, offset + b.size
        placed += 1
    return offsets


def _climbed(buffers: Sequence[Buffer], offsets: Sequence[int], bound: int, share: float, seed: int) -> list[int]:
    """Hill climbing from these offsets over the order of the larger buffers; the smaller ones fill the gaps."""
    random = Random(seed)
    large = [i for i, b in enumerate(buffers) if b.size >= share * bound]
    beside = {
        i: {k for k in large if k != i and buffers[k].start <= buffers[i].end and buffers[k].end >= buffers[i].start}
        for i in large
    }

    def pick(some: Sequence[int]) -> int:
        return some[int(random.random() * len(some))]

    order = sorted(large, key=lambda i: (offsets[i], i))
    placed = _lowest(buffers, order, beside)
    need = max((placed[i] + buffers[i].size for i in large), default=0)
    for _ in range(_PAIRS // (1 + sum(map(len, beside.values())))):
        if need <= (1 + _NEAR) * bound:
            break
        highest = pick([i for i in large if placed[i] + buffers[i].size == need])
        with_it = [highest, *sorted(beside[highest])]
        tried = [*order]
        match int(random.random() * 4):
            case 0:  # earlier than one of those that it lies above
                before = [p for p in range(order.index(highest)) if order[p] in beside[highest]] or [0]
                tried.remove(highest)
                tried.insert(pick(before), highest)
            case 1:
                one, other = (order.index(pick(with_it)) for _ in range(2))
                tried[one], tried[other] = tried[other], tried[one]
            case kind:
                moved = pick(with_it if kind == 2 else large)
                tried.remove(moved)
                tried.insert(int(random.random() * len(order)), moved)
        found = _lowest(buffers, tried, beside)
        top = max(found[i] + buffers[i].size for i in large)
        if top <= need:
            order, placed, need = tried, found, top
    small = sorted((i for i in range(len(buffers)) if i not in beside), key=lambda i: (-buffers[i].size, i))
    return _by_order(buffers, [*sorted(large, key=lambda i: (placed[i], i)), *small])


def _lowest(buffers: Sequence[Buffer], order: Sequence[int], beside: Mapping[int, set[int]]) -> dict[int, int]:
    """The buffers of ``order``, one after another as low as those placed before allow that live at the same time."""
    placed: dict[int, int] = {}
    for i in order:
        offset = 0
        for low, high in sorted((placed[k], placed[k] + buffers[k].size) for k in beside[i] if k in placed):
            if low - offset >= buffers[i].size:
                break
            offset = max(offset, high)
        placed[i] = offset
    return placed
