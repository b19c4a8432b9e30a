"""Where the records of a CSV file end. A line end inside a quoted field is a part of the field (RFC 4180).

A field is quoted if it begins with a quote; a quote inside of it is written twice. A quoted field that nothing closes,
or whose closing quote is followed by text on another line, is a fault of the line on which it begins: that line is then
a record of its own, which the reader refuses, and the lines after it stay records.
"""

from __future__ import annotations

import mmap
import re
from collections.abc import Callable, Iterator
from typing import Final, NoReturn

import numpy as np
from numpy.typing import NDArray

LONGEST: Final = 1 << 20  # bytes of a record
_QUOTE: Final = 34
_LINE_END: Final = 10
_MARK: Final = b"\xef\xbb\xbf"  # of UTF-8, at the start of a file
_QUOTED: Final = re.compile(rb'"(?:[^"]|"")*+"')
_RECORD: Final = re.compile(rb'(?:"(?:[^"]|"")*+"|[^"\n])*+')


def too_long(line: int, refuse: Callable[[str], NoReturn]) -> NoReturn:
    refuse(f"line {line} is longer than {LONGEST} bytes")


def unquoted(data: mmap.mmap | bytes, line: int) -> bytes:
    """The first record without its quoted parts; the first line, which ends at ``line``, if no quotes match."""
    found = _RECORD.match(data, 0, LONGEST)
    first = found.group() if found else b""
    whole = len(first) == len(data) or data[len(first) : len(first) + 1] == b"\n"
    return _QUOTED.sub(b"", first) if whole else bytes(data[:line])


def record_ends(data: mmap.mmap | bytes, delimiter: str) -> Iterator[tuple[NDArray[np.int64], int]]:
    """The offset after each record, by parts of the file, each with its last offset. A record that is too long gives
    its first ``LONGEST`` + 1 bytes, and ends the search."""
    step, at = delimiter.encode(), 0
    while at < len(data):
        part = bytes(data[at : at + LONGEST])
        ends = _regular(part, step, first=at == 0)
        if ends is None or not len(ends):  # a fault among the quotes, or one record that fills the part
            ends = np.fromiter(_one_by_one(data, at, at + len(part), step), np.int64) - at
        yield ends + at, at + int(ends[-1])
        if int(np.diff(ends, prepend=0).max()) > LONGEST:
            return
        at += int(ends[-1])


def first_end(data: mmap.mmap | bytes, delimiter: str) -> int:
    """The offset after the first record."""
    return _end(data, 0, delimiter.encode())


def _regular(part: bytes, delimiter: bytes, *, first: bool) -> NDArray[np.int64] | None:
    """The ends of the records in a part that begins with one; None if a quote is neither at the begin nor at the end
    of a field, nor next to another: then the number of quotes before a line end does not tell whether it is quoted."""
    values = np.frombuffer(part, np.uint8)
    lines, quotes = np.flatnonzero(values == _LINE_END), np.flatnonzero(values == _QUOTE)
    if not len(quotes):
        return lines + 1
    opening, closing = quotes[::2], quotes[1::2]
    before = np.zeros(256, bool)
    before[[delimiter[0], _LINE_END, _QUOTE]] = True
    begins = before[values[opening - 1]]
    begins[0] = begins[0] if opening[0] else True
    if first and part.startswith(_MARK):
        begins |= opening == len(_MARK)
    after = before.copy()
    after[13] = True
    follows = after[values[np.minimum(closing + 1, len(values) - 1)]]
    if len(closing) and closing[-1] == len(values) - 1:
        follows[-1] = True  # at the end of the file, or of the part, whose last record is read again
    if not (begins.all() and follows.all()):
        return None
    outside: NDArray[np.int64] = lines[np.searchsorted(quotes, lines) % 2 == 0] + 1
    return outside


def _one_by_one(data: mmap.mmap | bytes, at: int, stop: int, delimiter: bytes) -> Iterator[int]:
    """The ends of the records that begin in data[at:stop], of the last one that is too long, too."""
    while at < stop:
        begin, at = at, _end(data, at, delimiter)
        yield at
        if at - begin > LONGEST:
            return


def _end(data: mmap.mmap | bytes, begin: int, delimiter: bytes) -> int:
    """The offset after the record that begins at ``begin``; at most LONGEST + 1 bytes further. Linear."""
    limit = min(len(data), begin + LONGEST + 1)
    at = begin + (len(_MARK) if begin == 0 and data[:3] == _MARK else 0)
    opens = data[at : at + 1] == b'"'
    line = end = _line_end(data, at, limit)
    while True:
        if opens:
            at = _after_quoted(data, at + 1, limit)
            if at < 0 or (at > line and data[at : at + 1] not in (b"", b"\r", b"\n", delimiter)):
                return line
            if at >= end:
                end = _line_end(data, at, limit)
        found = data.find(delimiter + b'"', at, end)
        if found < 0:
            return end
        at, opens = found + 1, True


def _line_end(data: mmap.mmap | bytes, at: int, limit: int) -> int:
    found = data.find(b"\n", at, limit)
    return limit if found < 0 else found + 1


def _after_quoted(data: mmap.mmap | bytes, at: int, limit: int) -> int:
    """The offset after the quote that closes a field; -1 if there is none."""
    while True:
        found = data.find(b'"', at, limit)
        if found < 0:
            return -1
        if data[found + 1 : found + 2] != b'"':
            return found + 1
        at = found + 2
