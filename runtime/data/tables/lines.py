"""The lines of a text file, or the records of a CSV file, by number, and the dialect of a CSV file. Only the offset of
each is in memory."""

from __future__ import annotations

import mmap
import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Final, NoReturn

import numpy as np
from numpy.typing import NDArray

from dslc.base.errors import DataError
from dslc.runtime.data.file import open_file
from dslc.runtime.data.kinds import refuse_other_kind
from dslc.runtime.data.tables import records
from dslc.runtime.data.tables.packed import plain, unpacked

LONGEST_LINE: Final = records.LONGEST  # bytes
MOST_BAD: Final = 100_000  # lines that are not records; a file with more is not a table
_PART: Final = 1 << 20  # bytes searched for line ends at once


class Lines:
    """A file's lines, mapped read-only; of a compressed file those of its text. At first only the first line is known;
    ``index`` finds the others. With ``quoted``, line ends inside quotes end no line."""

    def __init__(self, path: Path, refuse: Callable[[str], NoReturn], *, quoted: bool = False) -> None:
        """Raises DataError R101 for a file that cannot be read, or is of another kind; ``refuse`` raises for one that
        is not a table."""
        text = unpacked(path, refuse)
        refuse_other_kind(text, str(path))
        self._path = path
        self._refuse = refuse
        with open_file(text) as file:
            self.size = os.fstat(file.fileno()).st_size
            self.data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) if self.size else b""
        end = _first_line_end(self.data, refuse)
        self.delimiter: str | None = None  # of a CSV file
        if quoted:
            self.delimiter = delimiter_of(path, records.unquoted(self.data, end).decode("utf-8", "replace"))
            end = records.first_end(self.data, self.delimiter)
        _refuse_zeros(bytes(self.data[:2]), path)
        self._starts = np.array([0, end])
        self._first = 0
        self._counted = 0, 0  # an offset, and the number of line ends before it

    def index(self, least: int, *, header: bool) -> None:
        """Find every line; ``header``: the first one is no row. ``least``: the bytes of the shortest row."""
        ends = _line_ends(self.data) if self.delimiter is None else records.record_ends(self.data, self.delimiter)
        self._starts = _line_starts(self.data, ends, least, self._refuse)
        if header:
            self._starts = self._starts[1:]
            self._first = 1

    @property
    def count(self) -> int:
        return len(self._starts) - 1

    def line(self, number: int) -> bytes:
        """A line without its end."""
        return bytes(self.data[self._starts[number] : self._starts[number + 1]]).rstrip(b"\r\n")

    def place(self, number: int) -> str:
        """The file and the number of the line in it, from 1, where a line or record begins."""
        if self.delimiter is None:
            return f"{self._path}:{number + self._first + 1}"
        return f"{self._path}:{self._line_ends_before(int(self._starts[number])) + 1}"

    def _line_ends_before(self, stop: int) -> int:
        """The number of line ends before an offset; counts on from the last offset that was asked for."""
        at, count = self._counted if self._counted[0] <= stop else (0, 0)
        for start in range(at, stop, _PART):
            count += bytes(self.data[start : min(start + _PART, stop)]).count(b"\n")
        self._counted = stop, count
        return count


def _refuse_zeros(start: bytes, path: Path) -> None:
    """Raise DataError R101 for the first two bytes of a text in UTF-16 without its mark."""
    if 0 in start:
        encoding, name = "UTF-16BE" if start[0] == 0 else "UTF-16LE", plain(path.name)[:60]
        help = f"convert it, for example by: iconv -f {encoding} -t UTF-8 {name} > new-{name}"
        raise DataError("R101", f"it seems to be {encoding}, not UTF-8", place=str(path), help=help)


def delimiter_of(path: Path, first: str) -> str:
    """The delimiter of a table: a tab in a ``.tsv`` file; else a comma, unless the first line has none outside of
    quotes but ``;`` or tabs."""
    if plain(path.name).lower().endswith(".tsv"):
        return "\t"
    if "," in first:
        return ","
    return ";" if ";" in first else "\t" if "\t" in first else ","


def _first_line_end(data: mmap.mmap | bytes, refuse: Callable[[str], NoReturn]) -> int:
    """The end of the first line; searches no further than the longest allowed line."""
    end = data.find(b"\n", 0, LONGEST_LINE)
    if end < 0 and len(data) > LONGEST_LINE:
        records.too_long(1, refuse)
    return len(data) if end < 0 else end + 1


def _line_ends(data: mmap.mmap | bytes) -> Iterator[tuple[NDArray[np.int64], int]]:
    """The offset after each line end, by parts of the file, with the end of the part."""
    for start in range(0, len(data), _PART):
        part = np.frombuffer(data[start : start + _PART], np.uint8)
        yield np.flatnonzero(part == 10) + start + 1, start + len(part)


def _line_starts(
    data: mmap.mmap | bytes,
    parts: Iterable[tuple[NDArray[np.int64], int]],
    least: int,
    refuse: Callable[[str], NoReturn],
) -> NDArray[np.int64]:
    """The offset of each line, and the end of the last: i64[lines + 1]. The last line may lack its line end.

    Rejects at once a line that is too long, and too many lines of less than ``least`` bytes.
    """
    found, last, lines, short = [np.zeros(1, np.int64)], 0, 0, 0
    for ends, searched in parts:
        sizes = np.diff(ends, prepend=last, append=searched)  # the last line may go on after it
        if int(sizes.max()) > LONGEST_LINE:
            records.too_long(lines + int(np.argmax(sizes)) + 1, refuse)
        short += int(np.count_nonzero(sizes[:-1] < least))
        if short > MOST_BAD:
            refuse(f"more than {MOST_BAD} lines are shorter than a record of its columns")
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
