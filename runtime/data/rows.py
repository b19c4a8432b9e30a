"""Rows by number: the interface through which a run reads data of every kind."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Protocol, TypeAlias, runtime_checkable

import numpy as np
from numpy.typing import NDArray

#: Data of at most so many bytes is checked and converted on opening; larger data while its rows are read.
AT_ONCE: Final = 256 << 20


class BadSample(Exception):
    """A single row that cannot be read: an image that does not decode, a line that is not a record."""

    def __init__(self, row: int, place: str, why: str) -> None:
        super().__init__(why)
        self.row = row
        self.place = place  # the file, and the line in the file
        self.why = why


class Rows(Protocol):
    """Data whose axis 0 is the row. ``dtype`` and ``shape`` (of one row) are those of the file."""

    @property
    def count(self) -> int: ...
    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def dtype(self) -> np.dtype[Any]: ...
    @property
    def in_memory(self) -> bool:
        """True if reading costs only a copy; else worker processes may do it."""
        ...

    def read(self, rows: NDArray[np.int64]) -> NDArray[Any]:
        """A fresh array [len(rows), *shape]. Raises BadSample for the first row that cannot be read."""
        ...


#: Chooses the window (top, left, height, width) of the picture at an index of the rows asked for, from its size
#: (height, width).
ChooseOf: TypeAlias = "Callable[[int, int, int], tuple[int, int, int, int]]"


@runtime_checkable
class Windowed(Protocol):
    """Rows that are scaled from pictures of any size."""

    def read_windows(self, rows: NDArray[np.int64], choose: ChooseOf | None, /) -> NDArray[Any]:
        """As ``read``, but each row is the chosen window of its picture."""
        ...


@runtime_checkable
class Decoded(Protocol):
    """Rows that are decoded from pictures."""

    def faults(self, notice: Callable[[str], None], what: str, /) -> Mapping[int, tuple[str, str | None]]:
        """The rows that are no pictures by their first bytes, with place and reason; None for a doubtful one, which a
        decoder must look at. ``notice`` gets lines of progress about ``what``."""
        ...


def faults_of(rows: Rows, notice: Callable[[str], None], what: str) -> Mapping[int, tuple[str, str | None]]:
    """``Decoded.faults`` of the rows of all files; empty for others."""
    if isinstance(rows, JoinedRows):
        parts = zip(rows.starts.tolist(), rows.parts)
        return {start + row: why for start, part in parts for row, why in faults_of(part, notice, what).items()}
    return rows.faults(notice, what) if isinstance(rows, Decoded) else {}


def windowed(rows: Rows) -> bool:
    """True if the rows, of all files, are ``Windowed``."""
    return all(windowed(part) for part in rows.parts) if isinstance(rows, JoinedRows) else isinstance(rows, Windowed)


@runtime_checkable
class Placed(Protocol):
    """Rows of a table, whose values have places that a user knows."""

    def place_of(self, row: int, at: int, /) -> tuple[str, str]:
        """The file and the line of a row, and the column of its value ``at``."""
        ...


def whereabouts(rows: Rows, row: int, at: int) -> tuple[int, int, str | None, str | None]:
    """The number of the file that holds a row, and the row's number in it; of ``Placed`` rows also the row's place, and
    the column of its value ``at``."""
    if isinstance(rows, JoinedRows):
        part = int(np.searchsorted(rows.starts, row, side="right")) - 1
        return (part, *whereabouts(rows.parts[part], row - int(rows.starts[part]), at)[1:])
    if isinstance(rows, ShapedRows):
        return whereabouts(rows.rows, row, at)
    return (0, row, *rows.place_of(row, at)) if isinstance(rows, Placed) else (0, row, None, None)


def known_bad(rows: Rows) -> Mapping[int, tuple[str, str]]:
    """The rows found to be unreadable on opening, with place and reason: the attribute ``bad`` of a table's rows."""
    found: Mapping[int, tuple[str, str]] = getattr(rows, "bad", {})
    return found


def known_late(rows: Rows) -> Mapping[int, tuple[str, str]]:
    """The rows of a small table that do not fit what was fitted, with place and reason. They raise BadSample when they
    are read, but count as rows: which rows are split off for evaluation does not depend on what was fitted."""
    found: Mapping[int, tuple[str, str]] = getattr(rows, "late", {})
    return found


class ArrayRows:
    """An array in memory, or memory-mapped from a file."""

    def __init__(self, array: NDArray[Any]) -> None:
        self.array = array
        self.count = len(array)
        self.shape = array.shape[1:]
        self.dtype = array.dtype
        self.in_memory = not isinstance(array, np.memmap) or array.nbytes <= AT_ONCE

    def read(self, rows: NDArray[np.int64]) -> NDArray[Any]:
        found: NDArray[Any] = np.asarray(self.array[rows])
        return found


class ShapedRows:
    """The same rows, with each row reshaped."""

    def __init__(self, rows: Rows, shape: tuple[int, ...]) -> None:
        self.rows = rows
        self.count = rows.count
        self.shape = shape
        self.dtype = rows.dtype
        self.in_memory = rows.in_memory

    def read(self, rows: NDArray[np.int64]) -> NDArray[Any]:
        return self.rows.read(rows).reshape(len(rows), *self.shape)


class JoinedRows:
    """The rows of several files in sequence; all have the same shape and dtype."""

    def __init__(self, parts: Sequence[Rows]) -> None:
        self.parts = parts
        self.starts = np.cumsum([0, *(part.count for part in parts)])
        self.count = int(self.starts[-1])
        self.shape = parts[0].shape
        self.dtype = parts[0].dtype
        self.in_memory = all(part.in_memory for part in parts)
        #: Rows found to be unreadable on opening, with place and reason.
        self.bad: dict[int, tuple[str, str]] = {
            start + row: why for start, part in zip(self.starts.tolist(), parts) for row, why in known_bad(part).items()
        }
        self.late: dict[int, tuple[str, str]] = {
            start + row: why
            for start, part in zip(self.starts.tolist(), parts)
            for row, why in known_late(part).items()
        }

    def read(self, rows: NDArray[np.int64]) -> NDArray[Any]:
        return self.read_windows(rows, None)

    def read_windows(self, rows: NDArray[np.int64], choose: ChooseOf | None) -> NDArray[Any]:
        """With ``choose``, all files must be ``Windowed``."""
        found = np.empty((len(rows), *self.shape), self.dtype)
        where = np.searchsorted(self.starts, rows, side="right") - 1
        for number in np.unique(where):
            taken = np.flatnonzero(where == number)
            start, part = int(self.starts[number]), self.parts[number]
            try:
                if choose is not None and isinstance(part, Windowed):
                    found[taken] = part.read_windows(rows[taken] - start, _of_these(choose, taken))
                else:
                    found[taken] = part.read(rows[taken] - start)
            except BadSample as bad:
                raise BadSample(bad.row + start, bad.place, bad.why) from bad
        return found


def _of_these(choose: ChooseOf, taken: NDArray[np.int64]) -> ChooseOf:
    """The choice for those of the rows at the indices ``taken``."""
    return lambda at, height, width: choose(int(taken[at]), height, width)
