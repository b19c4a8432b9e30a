"""Rows by number: the interface through which a run reads data of every kind."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, Protocol

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
        found = np.empty((len(rows), *self.shape), self.dtype)
        where = np.searchsorted(self.starts, rows, side="right") - 1
        for part in np.unique(where):
            taken = np.flatnonzero(where == part)
            start = int(self.starts[part])
            try:
                found[taken] = self.parts[part].read(rows[taken] - start)
            except BadSample as bad:
                raise BadSample(bad.row + start, bad.place, bad.why) from bad
        return found
