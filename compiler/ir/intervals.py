"""The owners of a region's bytes: disjoint intervals in chunks of a sorted list, fast up to 150,000 intervals."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from typing import Final

_CHUNK: Final = 512


class Ownership:
    """Intervals ``[low, high)``, each with an owner. A write removes every interval that it touches completely: a value
    that lost some of its bytes can no longer be read as that value."""

    def __init__(self) -> None:
        self._chunks: list[list[int]] = [[]]  # starts of intervals, in order
        self._heads: list[int] = [0]  # the smallest start that belongs in each chunk
        self._at: dict[int, tuple[int, object]] = {}  # start -> (end, owner)

    def owner(self, low: int, high: int) -> object | None:
        """The owner of exactly these bytes, or None."""
        if low == high:
            return self
        end, owner = self._at.get(low, (-1, None))
        return owner if end == high else None

    def holds(self, low: int, high: int, owner: object) -> bool:
        """True if ``owner`` owns these bytes as one interval. An empty range belongs to every owner."""
        return low == high or self.owner(low, high) is owner

    def touches(self, low: int, high: int) -> bool:
        """True if at least one of these bytes has an owner."""
        return bool(self._touched(low, high))

    def owners(self, low: int, high: int) -> list[object]:
        """The owners of any of these bytes."""
        return [self._at[start][1] for start in self._touched(low, high)]

    def write(self, low: int, high: int, owner: object) -> None:
        """Makes ``owner`` the owner of these bytes."""
        if low == high:
            return
        for start in self._touched(low, high):
            del self._at[start]
            chunk = self._chunks[bisect_right(self._heads, start) - 1]
            del chunk[bisect_left(chunk, start)]
        self._at[low] = (high, owner)
        index = bisect_right(self._heads, low) - 1
        chunk = self._chunks[index]
        insort(chunk, low)
        if len(chunk) > 2 * _CHUNK:
            self._chunks[index : index + 1] = [chunk[:_CHUNK], chunk[_CHUNK:]]
            self._heads.insert(index + 1, chunk[_CHUNK])

    def _touched(self, low: int, high: int) -> list[int]:
        if low == high:
            return []
        found: list[int] = []
        index = bisect_right(self._heads, low) - 1
        # the last interval that starts before `low` may reach into it
        before = index
        while before > 0 and not (self._chunks[before] and self._chunks[before][0] < low):
            before -= 1
        at = bisect_left(self._chunks[before], low)
        if at and self._at[self._chunks[before][at - 1]][0] > low:
            found.append(self._chunks[before][at - 1])
        while index < len(self._chunks) and self._heads[index] < high:
            chunk = self._chunks[index]
            found += chunk[bisect_left(chunk, low) : bisect_left(chunk, high)]
            index += 1
        return found
