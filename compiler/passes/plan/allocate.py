"""Assigns offsets to buffers with lifetimes: tries several greedy placements and returns the best.

Dynamic storage allocation is NP-hard; these are the usual greedy heuristics. One goes in order of time with a best-fit
free list (also backwards in time). Up to a few thousand buffers, others go by size, by area and by lifetime. They place
each buffer into the smallest gap that fits among the buffers alive at the same time. If the best of them is not close
to the bound, repeated rounds place buffers that end too high earlier (squeaky wheel optimisation, Joslin and Clements
1999).
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from operator import attrgetter
from random import Random
from typing import Final

_QUADRATIC_UP_TO: Final = 4000
#: The size of the gap above all buffers, and the size given to gaps that are too small, in bytes.
_ABOVE: Final = 1 << 61
_NO_GAP: Final = 1 << 62
#: Repeated placement begins if the need is more than (1 + _AIM) times the bound, and more than _SLACK bytes above it:
#: fewer are not worth seconds of building. It aims at the former, stops at (1 + _ENOUGH). Buffers take part from these
#: shares of the bound on, in turns. Limits: rounds, and pairs of simultaneously alive buffers visited per round.
_AIM: Final = 0.005
_ENOUGH: Final = 0.01
_SLACK: Final = 16 << 10
_SHARES: Final = (0.005, 0.001)
_ROUNDS: Final = 15
_PAIRS: Final = 1_000_000
#: The largest move of a buffer in the order, as a fraction of its length, in turns. First: forward, if the buffer ends
#: too high; second: forward, if it is alive at the same time as one; third: a random move of any buffer.
_MOVES: Final = ((0.5, 0.05, 0.025), (0.3, 0.05, 0.05))


_START: Final = attrgetter("start")
_END: Final = attrgetter("end")


@dataclass(frozen=True, slots=True)
class Buffer:
    """``size`` bytes (a multiple of the alignment), alive at the times ``start`` to ``end``, both included."""

    size: int
    start: int
    end: int


def assign(buffers: Sequence[Buffer], enough: int = 0) -> tuple[list[int], int, int]:
    """Offsets, the bytes that they need, and the lower bound: the most bytes alive at one time. Offsets that need at
    most ``enough`` bytes are not improved."""
    bound = lower_bound(buffers)
    best = _Best(buffers)
    best.take(_by_time(buffers))
    best.take(_by_time([Buffer(b.size, -b.end, -b.start) for b in buffers]))
    if len(buffers) <= _QUADRATIC_UP_TO:
        for order in _orders(buffers):
            if best.need > bound:
                best.take(_by_order(buffers, order, best.need))
        if best.need > max((1 + _AIM) * bound, bound + _SLACK, enough):
            for order in _improved_orders(buffers, bound):
                best.take(_by_order(buffers, order, best.need))
                if best.need <= max((1 + _ENOUGH) * bound, enough):
                    break
    return best.offsets, best.need, bound


class _Best:
    """The best offsets so far, and the bytes that these ``need``."""

    def __init__(self, buffers: Sequence[Buffer]) -> None:
        self.buffers = buffers
        self.offsets: list[int] = []
        self.need = _ABOVE

    def take(self, offsets: list[int] | None) -> None:
        """Replaces the offsets if the new ones need fewer bytes; None: they do not."""
        if offsets is None:
            return
        need = max((o + b.size for o, b in zip(offsets, self.buffers)), default=0)
        if need < self.need:
            self.offsets, self.need = offsets, need


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


def _orders(buffers: Sequence[Buffer]) -> list[list[int]]:
    """Indices by size, by area and by lifetime, the largest first."""
    spans = [b.end - b.start + 1 for b in buffers]
    numbers = range(len(buffers))
    return [
        sorted(numbers, key=lambda i: (-buffers[i].size, -spans[i], i)),
        sorted(numbers, key=lambda i: (-buffers[i].size * spans[i], i)),
        sorted(numbers, key=lambda i: (-spans[i], -buffers[i].size, i)),
    ]


class _FreeList:
    """Free ranges below ``top``, merged with their neighbours; takes the smallest that fits."""

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
        if self.top in self.start_of:  # the last range is free, but too short: it grows
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
    """Places buffers as a run-time allocator does, without knowledge of the future; larger ones first at one time."""
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


def _by_order(buffers: Sequence[Buffer], order: Sequence[int], below: int) -> list[int] | None:
    """Places buffers in this order, each into the smallest gap between those already placed that are alive at the same
    time. None if that needs ``below`` bytes or more."""
    import numpy as np

    offsets = [0] * len(buffers)
    starts, ends, lows, highs = (np.zeros(len(buffers), np.int64) for _ in range(4))
    gap_from, gap_size = (np.zeros(len(buffers) + 1, np.int64) for _ in range(2))
    placed = 0
    for i in order:
        b = buffers[i]
        if not b.size:
            continue
        alive = ((starts[:placed] <= b.end) & (ends[:placed] >= b.start)).nonzero()[0]
        alive = alive[lows[alive].argsort(kind="stable")]
        count = len(alive)
        gap_from[1 : count + 1] = np.maximum.accumulate(highs[alive])
        gap_size[:count] = lows[alive] - gap_from[:count]
        gap_size[count] = _ABOVE
        gaps = gap_size[: count + 1]
        gaps[gaps < b.size] = _NO_GAP
        offsets[i] = offset = int(gap_from[gaps.argmin()])
        if offset + b.size >= below:
            return None
        starts[placed], ends[placed], lows[placed], highs[placed] = b.start, b.end, offset, offset + b.size
        placed += 1
    return offsets


def _improved_orders(buffers: Sequence[Buffer], bound: int) -> Iterator[list[int]]:
    """The order of all buffers in the best placement of each round."""
    wheels: list[_Wheels] = []
    orders = _orders(buffers)
    for number in range(_ROUNDS):
        turn, which = divmod(number, len(_SHARES))
        if not turn:
            wheels.append(_Wheels(buffers, bound, _SHARES[which]))
        order, moves = orders[turn % len(orders)], _MOVES[turn % len(_MOVES)]
        yield wheels[which].order(order, moves, Random(number))


class _Wheels:
    """Squeaky wheel optimisation of buffers with at least ``share`` of the bound; smaller ones fill the gaps."""

    def __init__(self, buffers: Sequence[Buffer], bound: int, share: float) -> None:
        self.buffers = buffers
        self.cap = int((1 + _AIM) * bound)
        self.large = [i for i, b in enumerate(buffers) if b.size >= share * bound]
        self.neighbours = self._neighbours()

    def _neighbours(self) -> dict[int, list[int]]:
        """For each large buffer, the others alive at the same time."""
        import numpy as np

        numbers = np.array(self.large, np.int64)
        starts, ends = (np.array([time(self.buffers[i]) for i in self.large], np.int64) for time in (_START, _END))
        found = {}
        for place, (i, start, end) in enumerate(zip(self.large, starts, ends)):
            alive = (starts <= end) & (ends >= start)
            alive[place] = False
            found[i] = numbers[alive].tolist()
        return found

    def order(self, order: Sequence[int], moves: tuple[float, float, float], random: Random) -> list[int]:
        """The improved order of all buffers, starting from this one."""
        placed = self._best([i for i in order if i in self.neighbours], moves, random)
        small = (i for i in range(len(self.buffers)) if i not in self.neighbours)
        by_size = sorted(small, key=lambda i: (-self.buffers[i].size, i))
        return [*sorted(self.large, key=lambda i: (placed[i], i)), *by_size]

    def _best(self, order: list[int], moves: tuple[float, float, float], random: Random) -> dict[int, int]:
        """The best placement among those of this order and the orders derived from it."""
        blamed, near, shaken = moves
        best: dict[int, int] = {}
        least = -1
        for _ in range(1 + _PAIRS // (1 + sum(map(len, self.neighbours.values())))):
            placed = self._placed(order)
            high = [i for i in order if placed[i] + self.buffers[i].size > self.cap]
            need = max((placed[i] + self.buffers[i].size for i in order), default=0)
            if least < 0 or need < least:
                best, least = placed, need
            if not high:
                break
            ahead = dict.fromkeys((k for i in high for k in self.neighbours[i]), near)
            ahead.update(dict.fromkeys(high, blamed))
            key = {
                i: place + len(order) * (shaken * random.random() - ahead.get(i, 0.0) * random.random())
                for place, i in enumerate(order)
            }
            order = sorted(order, key=lambda i: (key[i], i))
        return best

    def _placed(self, order: Sequence[int]) -> dict[int, int]:
        """Places the buffers in this order, each into the smallest gap that fits between those already placed."""
        placed: dict[int, int] = {}
        taken: dict[int, list[tuple[int, int]]] = {i: [] for i in order}
        for i in order:
            size, offset, gap, best = self.buffers[i].size, 0, -1, 0
            for low, high in sorted(taken[i]):
                if low > offset:
                    if low - offset >= size and (gap < 0 or low - offset < gap):
                        gap, best = low - offset, offset
                    offset = high
                elif high > offset:
                    offset = high
            placed[i] = offset = best if gap >= 0 else offset
            stretch = (offset, offset + size)
            for k in self.neighbours[i]:
                taken[k].append(stretch)
        return placed
