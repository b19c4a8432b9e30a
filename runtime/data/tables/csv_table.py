"""A CSV file (RFC 4180, UTF-8; one line per record) as a table of texts."""

from __future__ import annotations

import csv
import re
from collections.abc import Sequence
from functools import partial
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from dslc.runtime.data.columns.raw import Raw, raw_objects
from dslc.runtime.data.rows import AT_ONCE
from dslc.runtime.data.source import Source
from dslc.runtime.data.tables.lines import Lines, delimiter_of
from dslc.runtime.data.tables.table import MOST_COLUMNS, refuse_table

#: A field that is a number, spaces around it allowed.
FLOAT: Final = re.compile(
    r" *[-+]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]{1,9})? *\Z|(?i: *[-+]?(?:nan|inf) *\Z)"
)
_OPEN_QUOTE: Final = "unexpected end of data"  # of the csv module


class CsvHead:
    """The header of a file. ``names``: 0, 1, ... if the first line holds only numbers; then ``named`` is False."""

    def __init__(self, source: Source, lines: Lines) -> None:
        refuse = partial(refuse_table, source)
        try:
            text = lines.line(0).decode("utf-8-sig")
            self.delimiter = delimiter_of(source.path, text)
            first = fields(text, self.delimiter)
        except (UnicodeDecodeError, csv.Error) as error:
            refuse(f"line 1: {said(error)}")
        if len(first) > MOST_COLUMNS:
            refuse(f"it has {len(first)} columns, more than {MOST_COLUMNS}")
        self.named = not all(FLOAT.match(field) for field in first)
        self.names = [field.strip() for field in first] if self.named else [str(at) for at in range(len(first))]


def fields(text: str, delimiter: str) -> list[str]:
    """The fields of a line. csv.Error for a malformed line."""
    return next(iter(csv.reader([text], strict=True, delimiter=delimiter)), [])


def said(error: Exception) -> str:
    """The reason why a line is no record, for messages."""
    if str(error) == _OPEN_QUOTE:
        return "a quoted field does not end on its line; line ends inside quotes are not read"
    return str(error)


class CsvTable:
    """Every value is a text; an empty field is missing."""

    doubles: frozenset[str] = frozenset()

    def __init__(self, source: Source) -> None:
        """Raises DataError R101 for a file that is not a table."""
        self._lines = Lines(source.path, partial(refuse_table, source))
        head = CsvHead(source, self._lines)
        self.names: Sequence[str] = head.names
        self._delimiter = head.delimiter
        self._lines.index(len(head.names), header=head.named)
        self.count = self._lines.count
        self.large = self._lines.size > AT_ONCE

    def close(self) -> None:
        pass

    def place(self, row: int) -> str:
        return self._lines.place(row)

    def read(self, rows: NDArray[np.int64], columns: Sequence[int]) -> tuple[list[Raw], dict[int, str]]:
        width, errors = len(self.names), dict[int, str]()
        blank = [None] * width
        records: list[list[Any]] = []
        for at, row in enumerate(rows.tolist()):
            try:
                record: list[Any] = fields(self._lines.line(row).decode("utf-8"), self._delimiter)
                if len(record) != width:
                    errors[at] = f"it has {len(record)} fields, not {width}"
            except (UnicodeDecodeError, csv.Error) as error:
                errors[at] = said(error)
            records.append(blank if at in errors else record)
        return [raw_objects([record[column] for record in records]) for column in columns], errors
