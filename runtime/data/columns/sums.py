"""Statistics of a column in one pass over blocks of rows, the same bits for the same rows in the same order.

Sums are exact within a block (``math.fsum``) and over the blocks' sums. Medians are exact: the different values are
counted.
"""

from __future__ import annotations

import math
from typing import Final

import numpy as np
from numpy.typing import NDArray

from dslc.base.errors import DataError

#: Rows per block. Part of the definition of the sums: another number could change their last bits.
BLOCK: Final = 1 << 16
_MOST_DIFFERENT: Final = 1 << 24
_PENDING: Final = 1 << 20  # values that are counted together


class Moments:
    """Mean, standard deviation (of the population), smallest and largest value."""

    def __init__(self) -> None:
        self._blocks: list[tuple[int, float, float]] = []  # count, sum, squares around the block's mean
        self.low, self.high = math.inf, -math.inf

    def add(self, values: NDArray[np.float64]) -> None:
        """Add a block of finite values."""
        if not len(values):
            return
        total = math.fsum(values.tolist())
        gaps = values - total / len(values)
        self._blocks.append((len(values), total, math.fsum((gaps * gaps).tolist())))
        self.low, self.high = min(self.low, float(values.min())), max(self.high, float(values.max()))

    def repeat(self, value: float, count: int) -> None:
        """Add the same value ``count`` times."""
        if count:
            self._blocks.append((count, value * count, 0.0))
            self.low, self.high = min(self.low, value), max(self.high, value)

    @property
    def count(self) -> int:
        return sum(count for count, _, _ in self._blocks)

    def mean(self) -> float:
        return math.fsum(total for _, total, _ in self._blocks) / self.count

    def deviation(self) -> float:
        mean = self.mean()
        between = (count * (total / count - mean) ** 2 for count, total, _ in self._blocks)
        return math.sqrt((math.fsum(square for _, _, square in self._blocks) + math.fsum(between)) / self.count)


class Counts:
    """How often each different value occurs, for exact quantiles in bounded memory."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._values = np.empty(0)
        self._counts = np.empty(0, np.int64)
        self._pending: list[NDArray[np.float64]] = []
        self._waiting = 0

    def add(self, values: NDArray[np.float64]) -> None:
        self._pending.append(values)
        self._waiting += len(values)
        if self._waiting >= max(_PENDING, len(self._values)):
            self._merge()

    def repeat(self, value: float, count: int) -> None:
        self._merge()
        self._join(np.array([value]), np.array([count], np.int64))

    def quantile(self, share: float) -> float:
        """The value below which ``share`` of the values lie, linear between two of them."""
        self._merge()
        ends = np.cumsum(self._counts)
        place = share * (int(ends[-1]) - 1)
        low = math.floor(place)
        a, b = (float(self._values[np.searchsorted(ends, at, side="right")]) for at in (low, math.ceil(place)))
        return a if a == b else a + (b - a) * (place - low)

    def _merge(self) -> None:
        if self._pending:
            values, counts = np.unique(np.concatenate(self._pending), return_counts=True)
            self._pending.clear()
            self._waiting = 0
            self._join(values, counts.astype(np.int64))

    def _join(self, values: NDArray[np.float64], counts: NDArray[np.int64]) -> None:
        both, places = np.unique(np.concatenate([self._values, values]), return_inverse=True)
        sums = np.zeros(len(both), np.int64)
        np.add.at(sums, places, np.concatenate([self._counts, counts]))
        self._values, self._counts = both, sums
        if len(both) > _MOST_DIFFERENT:
            raise DataError(
                "R104",
                f"it has more than {_MOST_DIFFERENT} different values, too many for an exact median",
                place=f"data.columns.{self._name}",
                help="use `mean`, `standard` or `minmax`",
            )
