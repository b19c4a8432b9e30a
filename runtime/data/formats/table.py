"""Columns of a CSV file (RFC 4180, UTF-8), with line ends inside quotes; only numbers are read.

Columns are named as ``label``; ``a,b,c``; ``first..last`` in the file's order. If the first line contains only numbers,
the columns have no names and are ``0``, ``1``, and so on. Only the offset of each record is kept in memory, and the
values of small files. A line that is not a record is a bad sample; the rest of the file stays usable.
"""

from __future__ import annotations

import csv
import re
import warnings
from collections.abc import Sequence
from functools import partial
from math import prod
from typing import TYPE_CHECKING, Any, Final, NoReturn

import numpy as np
from numpy.typing import NDArray

from dslc.runtime.artifact.dtypes import numpy_dtype
from dslc.runtime.data.columns.encoder import missing_why, undescribed_why
from dslc.runtime.data.columns.typed import (
    GAPS,
    TRUTH,
    in_column,
    integer_of,
    not_a_number,
    not_an_integer,
    rounded_why,
    written_integer,
)
from dslc.runtime.data.fit import exact_integers, largest
from dslc.runtime.data.format import has_suffix, register
from dslc.runtime.data.rows import AT_ONCE, BadSample, Rows
from dslc.runtime.data.source import Source
from dslc.runtime.data.tables.advice import said, wrong_width
from dslc.runtime.data.tables.csv_table import FLOAT, CsvHead, CsvTable, fields
from dslc.runtime.data.tables.lines import MOST_BAD, Lines
from dslc.runtime.data.tables.packed import plain
from dslc.runtime.data.tables.table import Table, chosen, refuse_table, wrong_count
from dslc.runtime.data.tables.table_format import TableFormat
from dslc.runtime.data.text.texts import text_key

if TYPE_CHECKING:
    from dslc.runtime.data.wanted import Wanted

_PLAIN_FLOATS = re.compile(rb"[-+0-9.eE,]+")
_PLAIN_INTEGERS = re.compile(rb"[-0-9,]+")
_AT_A_TIME: Final = 128  # lines


class TableRows:
    """Some columns of a file. ``bad``: the rows found not to be records, with place and reason."""

    def __init__(self, source: Source, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
        """``shape`` is that of one row; ``dtype`` is the target: a float dtype, else values become int64.

        Raises DataError R101 for a file that is not a table, R102 for missing or too few columns.
        """
        self._refuse = partial(refuse_table, source)
        self.dtype = dtype if dtype.kind == "f" else np.dtype(np.int64)
        # Up to this magnitude a float64 represents the text exactly (integers), or rounds to a finite value (floats).
        self._most = largest(self.dtype) if self.dtype.kind == "f" else 2.0**53 - 1
        self._exact = exact_integers(self.dtype) if self.dtype.kind == "f" else 2**53
        self._lines = Lines(source.path, self._refuse, quoted=True)
        head = CsvHead(source, self._lines)
        self._delimiter = head.delimiter
        self._columns = chosen(source, head.names)
        self._names = [head.names[column] for column in self._columns]
        self._width = len(head.names)
        # A record has at least a digit for each column, followed by a comma or the line's end.
        self._lines.index(2 * self._width, header=head.named)
        self.count = self._lines.count
        self.shape = shape
        if len(self._columns) != prod(shape):
            raise wrong_count(source, [head.names[column] for column in self._columns], shape)
        self.bad: dict[int, tuple[str, str]] = {}
        self._values: NDArray[Any] | None = None
        self.in_memory = max(self._lines.size, self.count * len(self._columns) * self.dtype.itemsize) <= AT_ONCE
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

    def place_of(self, row: int, at: int) -> tuple[str, str]:
        return self._lines.place(row), self._names[at]

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
                    if len(self.bad) > MOST_BAD:
                        self._refuse(f"more than {MOST_BAD} lines are not records, such as {bad.place}: {bad.why}")
        return found

    def _record(self, row: int) -> list[float] | list[int]:
        """The values of a row in the order of the columns; BadSample for a line that lacks them."""
        try:
            record = fields(self._lines.line(row).decode("utf-8"), self._delimiter)
        except (UnicodeDecodeError, csv.Error) as error:
            self._bad(row, said(error))
        if len(record) != self._width:
            self._bad(row, wrong_width(record, self._width))
        texts = [TRUTH.get(record[column].strip(" ").lower(), record[column]) for column in self._columns]
        floats_wanted = self.dtype.kind == "f"
        integers: list[int] = []
        for name, field in zip(self._names, texts):
            if floats_wanted and FLOAT.match(field):
                continue
            if not floats_wanted and (whole := integer_of(field)) is not None:
                integers.append(whole)
                continue
            if field.strip().lower() in GAPS:
                self._bad(row, missing_why(name, "median"))
            why = not_a_number(field) if floats_wanted else not_an_integer(field)
            self._bad(row, in_column(name, undescribed_why(name, why, "onehot" if floats_wanted else "index")))
        if not floats_wanted:
            if not all(-(2**63) <= value < 2**63 for value in integers):
                name = next(n for n, value in zip(self._names, integers) if not -(2**63) <= value < 2**63)
                self._bad(row, in_column(name, "a value does not fit 64 bits"))
            return integers
        floats = [float(field) for field in texts]
        for name, field, value in zip(self._names, texts, floats):
            if abs(value) > self._most and "inf" not in field.lower():
                self._bad(row, in_column(name, f"{field[:40]} is too large for {self.dtype.name}"))
            if abs(value) > self._exact and written_integer(field):
                self._bad(row, rounded_why(name, field, self.dtype))
        return floats

    def _plain(self, rows: Sequence[int]) -> NDArray[np.float64] | None:
        """The values of rows that contain only plain numbers, parsed much faster; None if a row contains other text."""
        lines = [self._lines.line(row) for row in rows]
        if self._delimiter != ",":
            if any(b"," in line for line in lines):
                return None
            lines = [line.replace(self._delimiter.encode(), b",") for line in lines]
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
        size = np.abs(found)
        if not found.size or float(size.max()) > self._most:
            return None
        maybe_rounded = (size > self._exact) & (found == np.rint(found))
        return None if maybe_rounded.any() else found

    def _bad(self, row: int, why: str) -> NoReturn:
        raise BadSample(row, self._lines.place(row), why)


class Csv(TableFormat):
    """``table.csv:label``, ``"table.csv:a,b,c"``, ``table.csv:first..last``, ``table.tsv:label``,
    ``table.csv.gz:label``."""

    usage = "`file.csv:columns`"

    def matches(self, path: str) -> bool:
        return any(has_suffix(plain(path), suffix) for suffix in (".csv", ".tsv"))

    def table(self, source: Source) -> Table:
        return CsvTable(source)

    def names(self, source: Source, kept_open: list[Table]) -> Sequence[str]:
        return CsvHead(source, Lines(source.path, partial(refuse_table, source), quoted=True)).names

    def open(self, source: Source, wanted: Wanted) -> Rows:
        if wanted.described or text_key(source.key or "") is not None:
            return super().open(source, wanted)
        return TableRows(source, wanted.shape, numpy_dtype(wanted.tensor.dtype))


register(Csv())
