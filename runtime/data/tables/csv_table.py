"""A CSV file (RFC 4180, UTF-8) as a table of texts."""

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
from dslc.runtime.data.tables.advice import help_for_head, said, wrong_width
from dslc.runtime.data.tables.lines import LONGEST_LINE, Lines
from dslc.runtime.data.tables.table import MOST_COLUMNS, refuse_table

#: A field that is a number, spaces around it allowed.
FLOAT: Final = re.compile(
    r" *[-+]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]{1,9})? *\Z|(?i: *[-+]?(?:nan|inf) *\Z)"
)


# The module refuses fields of more than 128 KiB unless it is told otherwise; lines are limited here.
csv.field_size_limit(max(LONGEST_LINE, csv.field_size_limit()))


class CsvHead:
    """The header of a file. ``names``: 0, 1, ... if the first line holds only numbers; then ``named`` is False."""

    def __init__(self, source: Source, lines: Lines) -> None:
        refuse = partial(refuse_table, source)
        if not lines.data:
            refuse("the file is empty")
        line = lines.line(0)
        try:
            text = line.decode("utf-8-sig")
            assert lines.delimiter is not None
            self.delimiter = lines.delimiter
            first = fields(text, self.delimiter)
        except (UnicodeDecodeError, csv.Error) as error:
            refuse(f"line 1: {said(error)}", help_for_head(error, source.path, line))
        if not first:
            refuse("line 1: it is empty", "the first line names the columns")
        if len(first) > MOST_COLUMNS:
            refuse(f"it has {len(first)} columns, more than {MOST_COLUMNS}")
        self.named = not all(FLOAT.match(field) for field in first)
        self.names = [field.strip() for field in first] if self.named else [str(at) for at in range(len(first))]


def fields(text: str, delimiter: str) -> list[str]:
    """The fields of a record. csv.Error for a malformed one."""
    return next(iter(csv.reader([text], strict=True, delimiter=delimiter)), [])


class CsvTable:
    """Every value is a text; an empty field is missing."""

    doubles: frozenset[str] = frozenset()

    def __init__(self, source: Source) -> None:
        """Raises DataError R101 for a file that is not a table."""
        self._lines = Lines(source.path, partial(refuse_table, source), quoted=True)
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
        lines = [self._lines.line(row) for row in rows.tolist()]
        records, errors = self._sound(lines), dict[int, str]()
        if records is None:
            records = [self._record(at, line, errors) for at, line in enumerate(lines)]
        return [raw_objects([record[column] for record in records]) for column in columns], errors

    def _sound(self, lines: Sequence[bytes]) -> Sequence[Sequence[Any]] | None:
        """The fields of lines that all are records, parsed together, which is faster; else None."""
        try:
            texts = [line.decode("utf-8") for line in lines]
            found = list(csv.reader(texts, strict=True, delimiter=self._delimiter))
        except (UnicodeDecodeError, csv.Error):
            return None
        # A quote that stays open takes in the next line, so that there are fewer records.
        width = len(self.names)
        return found if len(found) == len(lines) and all(len(record) == width for record in found) else None

    def _record(self, at: int, line: bytes, errors: dict[int, str]) -> Sequence[Any]:
        """The fields of a line; gaps if it is no record, with the reason in ``errors``."""
        width = len(self.names)
        try:
            record = fields(line.decode("utf-8"), self._delimiter)
            if len(record) == width:
                return record
            errors[at] = wrong_width(record, width)
        except (UnicodeDecodeError, csv.Error) as error:
            errors[at] = said(error)
        return [None] * width
