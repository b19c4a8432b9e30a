"""Numbers of which ranges grow by an amount, and their maximum, both in logarithmic time."""

from __future__ import annotations


class RangeMaxTree:
    """A segment tree with range add and maximum. Adding and finding the maximum take log n."""

    def __init__(self, count: int) -> None:
        self.leaves = 1 << max(0, count - 1).bit_length()
        self.more = [0] * (2 * self.leaves)  # amounts added to all leaves below the node
        self.most = [0] * (2 * self.leaves)

    def add(self, first: int, last: int, amount: int) -> None:
        """Adds to the places ``first`` to ``last``, both included."""
        more, most = self.more, self.most
        low, high = first + self.leaves, last + self.leaves + 1
        ends = (low, high - 1)
        while low < high:
            if low & 1:
                more[low] += amount
                most[low] += amount
                low += 1
            if high & 1:
                high -= 1
                more[high] += amount
                most[high] += amount
            low >>= 1
            high >>= 1
        for at in ends:
            at >>= 1
            while at:
                left, right = most[2 * at], most[2 * at + 1]
                most[at] = more[at] + (left if left > right else right)
                at >>= 1

    @property
    def top(self) -> int:
        """The maximum."""
        return self.most[1]

    def peak(self) -> int:
        """The first place of the maximum."""
        at = 1
        while at < self.leaves:
            at = 2 * at if self.most[2 * at] >= self.most[2 * at + 1] else 2 * at + 1
        return at - self.leaves

    def __getitem__(self, place: int) -> int:
        at, found = place + self.leaves, 0
        while at:
            found += self.more[at]
            at >>= 1
        return found
