"""Columns of a CSV file (RFC 4180, UTF-8): a record is one line; only numbers are read.

Columns are named as ``label``; ``a,b,c``; ``first..last`` in the file's order. If the first line contains only numbers,
the columns have no names and are ``0``, ``1``, and so on. Only the offset of each line is kept in memory, and the
values of small files. A line that is not a record is a bad sample; the rest of the file stays usable.
"""

from __future__ import annotations

import csv
import mmap
import os
import re
import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from math import prod
from typing import TYPE_CHECKING, Any, Final, NoReturn

import numpy as np
from numpy.typing import NDArray

from dslc.base.errors import DataError
from dslc.runtime.artifact.dtypes import numpy_dtype
from dslc.runtime.data.file import open_file
from dslc.runtime.data.fit import largest
from dslc.runtime.data.format import Format, has_suffix, register
from dslc.runtime.data.rows import AT_ONCE, BadSample, Rows
from dslc.runtime.data.source import Source
from dslc.runtime.nearest import nearest

if TYPE_CHECKING:
    from dslc.runtime.data.wanted import Wanted

_LONGEST_LINE: Final = 1 << 20  # bytes
_MOST_COLUMNS: Final = 100_000
_MOST_BAD: Final = 100_000  # lines that are not records; a file with more is not a table
_PART: Final = 1 << 20  # bytes searched for line ends at once
_INTEGER = re.compile(r" *[-+]?[0-9]{1,20} *\Z")
_PLAIN_FLOATS = re.compile(rb"[-+0-9.eE,]+")
_PLAIN_INTEGERS = re.compile(rb"[-0-9,]+")
_AT_A_TIME: Final = 128  # lines
_FLOAT = re.compile(r" *[-+]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]{1,9})? *\Z|(?i: *[-+]?(?:nan|inf) *\Z)")


class TableRows:
    """Some columns of a file. ``bad``: the rows found not to be records, with place and reason."""

    def __init__(self, source: Source, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
        """``shape`` is that of one row; ``dtype`` is the target: a float dtype, else values become int64.

        Raises DataError R101 for a file that is not a table, R102 for missing or too few columns.
        """
        assert source.key is not None
        self._source = source
        self.dtype = dtype if dtype.kind == "f" else np.dtype(np.int64)
        # Up to this magnitude a float64 represents the text exactly (integers), or rounds to a finite value (floats).
        self._most = largest(self.dtype) if self.dtype.kind == "f" else 2.0**53 - 1
        with open_file(source.path) as file:
            size = os.fstat(file.fileno()).st_size
            self._data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) if size else b""
        self._starts = np.array([0, _first_line_end(self._data, self._refuse)])
        first = self._fields(0)
        if len(first) > _MOST_COLUMNS:
            self._refuse(f"it has {len(first)} columns, more than {_MOST_COLUMNS}")
        named = not all(_FLOAT.match(field) for field in first)
        names = [field.strip() for field in first] if named else [str(number) for number in range(len(first))]
        self._columns = self._chosen(source.key, names)
        self._width = len(first)
        # A record has at least a digit for each column, followed by a comma or the line's end.
        self._starts = _line_starts(self._data, 2 * self._width, self._refuse)
        if named:
            self._starts = self._starts[1:]
        self._first_line = 2 if named else 1
        self.count = len(self._starts) - 1
        self.shape = shape
        if len(self._columns) != prod(shape):
            cause = f"it gives {len(self._columns)} columns, a row of the input has {prod(shape)} values: {list(shape)}"
            raise DataError("R102", cause, place=self._place, help="name that many columns: `table.csv:first..last`")
        self.bad: dict[int, tuple[str, str]] = {}
        self._values: NDArray[Any] | None = None
        self.in_memory = max(size, self.count * len(self._columns) * self.dtype.itemsize) <= AT_ONCE
        if self.in_memory:
            self._values = self._all()

    def read(self, rows: NDArray[np.int64]) -> NDArray[Any]:
        if self._values is not None:
            for row in rows.tolist() if self.bad else ():
                if row in self.bad:
                    raise BadSample(row, *self.bad[row])
            return self._values[rows].reshape(len(rows), *self.shape)
        plain = self._plain(rows.tolist())
        if plain is not None:
            return plain.astype(self.dtype).reshape(len(rows), *self.shape)
        found = np.empty((len(rows), len(self._columns)), self.dtype)
        for at, row in enumerate(rows.tolist()):
            found[at] = self._record(row)
        return found.reshape(len(rows), *self.shape)

    @property
    def _place(self) -> str:
        return f"{self._source.path} ({self._source.name[:100]})"

    def _refuse(self, why: str) -> NoReturn:
        raise DataError(
            "R101", f"it is not a table: {why}", place=self._place, help="write it as CSV with one row per line"
        )

    def _all(self) -> NDArray[Any]:
        found = np.zeros((self.count, len(self._columns)), self.dtype)
        for start in range(0, self.count, _AT_A_TIME):
            rows = range(start, min(start + _AT_A_TIME, self.count))
            plain = self._plain(rows)
            if plain is not None:
                found[rows.start : rows.stop] = plain
                continue
            for row in rows:
                try:
                    found[row] = self._record(row)
                except BadSample as bad:
                    self.bad[row] = (bad.place, bad.why)
                    if len(self.bad) > _MOST_BAD:
                        self._refuse(f"more than {_MOST_BAD} lines are not records, such as {bad.place}: {bad.why}")
        return found

    def _line(self, number: int) -> bytes:
        return bytes(self._data[self._starts[number] : self._starts[number + 1]]).rstrip(b"\r\n")

    def _fields(self, number: int) -> list[str]:
        """The fields of a line. Its exceptions become a bad sample, or a rejection of the header."""
        try:
            text = self._line(number).decode("utf-8-sig" if number == 0 else "utf-8")
            return next(iter(csv.reader([text], strict=True)), [])
        except (UnicodeDecodeError, csv.Error) as error:
            self._refuse(f"line {number + 1}: {error}")

    def _record(self, row: int) -> list[float] | list[int]:
        """The values of a row in the order of the columns; BadSample for a line that lacks them."""
        try:
            text = self._line(row).decode("utf-8")
            fields = next(iter(csv.reader([text], strict=True)), [])
        except (UnicodeDecodeError, csv.Error) as error:
            self._bad(row, str(error))
        if len(fields) != self._width:
            self._bad(row, f"it has {len(fields)} fields, not {self._width}")
        chosen = [fields[column] for column in self._columns]
        kind, pattern = ("a number", _FLOAT) if self.dtype.kind == "f" else ("an integer", _INTEGER)
        for field in chosen:
            if not pattern.match(field):
                self._bad(row, f"{field[:40]!a} is not {kind}")
        if self.dtype.kind != "f":
            integers = [int(field) for field in chosen]
            if not all(-(2**63) <= value < 2**63 for value in integers):
                self._bad(row, "a value does not fit 64 bits")
            return integers
        floats = [float(field) for field in chosen]
        for field, value in zip(chosen, floats):
            if abs(value) > self._most and "inf" not in field.lower():
                self._bad(row, f"{field[:40]} is too large for {self.dtype.name}")
        return floats

    def _plain(self, rows: Sequence[int]) -> NDArray[np.float64] | None:
        """The values of rows that contain only plain numbers, parsed much faster; None if a row contains other text."""
        lines = [self._line(row) for row in rows]
        allowed = _PLAIN_FLOATS if self.dtype.kind == "f" else _PLAIN_INTEGERS
        if not all(line.count(b",") == self._width - 1 and allowed.fullmatch(line) for line in lines):
            return None
        with warnings.catch_warnings():
            # For text that is not a number numpy warns and stops, so the number of values is too small.
            warnings.simplefilter("ignore", DeprecationWarning)
            try:
                flat = np.fromstring(b",".join(lines), np.float64, sep=",")
            except ValueError:
                return None  # numpy will raise this instead of the warning
        if flat.size != len(lines) * self._width:
            return None
        found: NDArray[np.float64] = flat.reshape(len(lines), self._width)[:, self._columns]
        return found if found.size and float(np.abs(found).max()) <= self._most else None

    def _bad(self, row: int, why: str) -> NoReturn:
        raise BadSample(row, f"{self._source.path}:{row + self._first_line}", why)

    def _chosen(self, key: str, names: list[str]) -> list[int]:
        """The indices of the columns that a key names."""
        if len(set(names)) < len(names):
            double = Counter(names).most_common(1)[0][0]
            self._refuse(f"two columns are called `{double[:60]}`")
        at = {name: number for number, name in enumerate(names)}
        found: list[int] = []
        for part in [key] if key in at else key.split(","):
            low, dots, high = part.partition("..")
            if part in at or not dots:
                low = high = part
            for name in (low, high):
                if name not in at:
                    close = nearest(name, names)
                    help = f"did you mean `{close}`?" if close else f"it has {', '.join(names[:8])[:200] or 'none'}"
                    raise DataError("R102", f"there is no column `{name[:60]}`", place=self._place, help=help)
            found.extend(range(at[low], at[high] + 1))
        return found


def _first_line_end(data: mmap.mmap | bytes, refuse: Callable[[str], NoReturn]) -> int:
    """The end of the first line; searches no further than the longest allowed line."""
    end = data.find(b"\n", 0, _LONGEST_LINE)
    if end < 0 and len(data) > _LONGEST_LINE:
        _too_long(1, refuse)
    return len(data) if end < 0 else end + 1


def _line_starts(data: mmap.mmap | bytes, least: int, refuse: Callable[[str], NoReturn]) -> NDArray[np.int64]:
    """The offset of each line, and the end of the last: i64[lines + 1]. The last line may lack its line end.

    Rejects at once a line that is too long, and too many lines of less than ``least`` bytes.
    """
    found, last, lines, short = [np.zeros(1, np.int64)], 0, 0, 0
    for start in range(0, len(data), _PART):
        part = np.frombuffer(data[start : start + _PART], np.uint8)
        ends = np.flatnonzero(part == 10) + start + 1
        sizes = np.diff(ends, prepend=last, append=start + len(part))  # the last line continues in the next part
        if int(sizes.max()) > _LONGEST_LINE:
            _too_long(lines + int(np.argmax(sizes)) + 1, refuse)
        short += int(np.count_nonzero(sizes[:-1] < least))
        if short > _MOST_BAD:
            refuse(f"more than {_MOST_BAD} lines are shorter than a record of its columns")
        found.append(ends)
        lines += len(ends)
        last = int(ends[-1]) if len(ends) else last
    starts = np.concatenate(found)
    if starts[-1] != len(data):
        starts = np.append(starts, len(data))
    stay = len(starts)
    while stay > 1 and not bytes(data[starts[stay - 2] : min(starts[stay - 1], starts[stay - 2] + 3)]).strip(b"\r\n"):
        stay -= 1  # drops empty lines at the end
    return starts[:stay]


def _too_long(line: int, refuse: Callable[[str], NoReturn]) -> NoReturn:
    refuse(f"line {line} is longer than {_LONGEST_LINE} bytes")


class Csv(Format):
    """``table.csv:label``, ``"table.csv:a,b,c"``, ``table.csv:first..last``."""

    usage = "`file.csv:columns`"
    keyed = True

    def matches(self, path: str) -> bool:
        return has_suffix(path, ".csv")

    def open(self, source: Source, wanted: Wanted) -> Rows:
        return TableRows(source, wanted.shape, numpy_dtype(wanted.tensor.dtype))


register(Csv())
