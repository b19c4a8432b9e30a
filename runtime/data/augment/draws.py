"""The random numbers of an augmentation: they depend only on (seed, epoch, row), and on the place of a step in its
list.

All come from Philox4x64-10 with the key (seed, epoch), whose raw stream is stable across versions of numpy and equal on
all machines. The stream of a row starts at the counter (0, 0, row, 1). Of its 64-bit outputs, step k takes 2k and
2k + 1 (``pairs``). A step that needs more takes the stream that starts at (0, k + 1, row, 1) (``row``). The stream of a
whole batch starts at (0, 0, first row, 2).
"""

from __future__ import annotations

from typing import Final, TypeVar

import numpy as np
from numpy.typing import NDArray

_ROW: Final = 1
_BATCH: Final = 2

Choice = TypeVar("Choice")


class Stream:
    """Draws in sequence. Floats are exact functions of the 64-bit outputs."""

    def __init__(self, seed: int, epoch: int, counter: tuple[int, int, int, int]) -> None:
        key = np.array([seed, epoch], np.uint64)
        self._bits = np.random.Philox(key=key, counter=np.array(counter, np.uint64))

    def unit(self) -> float:
        """A multiple of 2^-53 in [0, 1)."""
        return float(int(self._bits.random_raw()) >> 11) * 2.0**-53

    def between(self, low: float, high: float) -> float:
        return low + (high - low) * self.unit()

    def below(self, count: int) -> int:
        """An integer in [0, count)."""
        return int(self._bits.random_raw()) % count

    def order(self, count: int) -> list[int]:
        """A permutation of range(count)."""
        keys = [int(self._bits.random_raw()) for _ in range(count)]
        return sorted(range(count), key=lambda at: (keys[at], at))

    def outputs(self, count: int) -> NDArray[np.uint64]:
        found: NDArray[np.uint64] = self._bits.random_raw(count)
        return found


def batch_stream(seed: int, epoch: int, rows: NDArray[np.int64]) -> Stream:
    """The draws of a batch with these rows, of which the first belongs to no other batch of the epoch."""
    return Stream(seed, epoch, (0, 0, int(rows[0]), _BATCH))


class Draws:
    """The draws of some rows for a list of ``steps`` steps."""

    def __init__(self, seed: int, epoch: int, rows: NDArray[np.int64], steps: int) -> None:
        self._seed, self._epoch, self._rows, self._steps = seed, epoch, rows.tolist(), steps
        self._pairs: NDArray[np.uint64] | None = None

    def of(self, number: int) -> StepDraws:
        """Those of the step at place ``number``."""
        return StepDraws(self, number)

    def pairs(self, number: int) -> NDArray[np.uint64]:
        if self._pairs is None:
            self._pairs = np.empty((len(self._rows), 2 * self._steps), np.uint64)
            for at, row in enumerate(self._rows):
                self._pairs[at] = Stream(self._seed, self._epoch, (0, 0, row, _ROW)).outputs(2 * self._steps)
        return self._pairs[:, 2 * number : 2 * number + 2]

    def stream(self, number: int, at: int) -> Stream:
        return Stream(self._seed, self._epoch, (0, number + 1, self._rows[at], _ROW))


class StepDraws:
    """The draws of some rows for one step."""

    def __init__(self, draws: Draws, number: int) -> None:
        self._draws, self._number = draws, number

    def pairs(self) -> NDArray[np.uint64]:
        """Two 64-bit numbers per row, u64[rows, 2]."""
        return self._draws.pairs(self._number)

    def row(self, at: int) -> Stream:
        """The stream of the row at index ``at``."""
        return self._draws.stream(self._number, at)
