"""Rows of an input from a table: raw values become numbers by the encoders of their columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from dslc.base.errors import DataError
from dslc.runtime.data.columns.encoder import Encoded, Encoder
from dslc.runtime.data.columns.number import Number
from dslc.runtime.data.columns.raw import Raw
from dslc.runtime.data.columns.typed import Typed, in_column
from dslc.runtime.data.fit import largest
from dslc.runtime.data.rows import AT_ONCE, BadSample
from dslc.runtime.data.source import Source
from dslc.runtime.data.tables.lines import MOST_BAD
from dslc.runtime.data.tables.table import Table, chosen, place_of, refuse_table, row_of, wrong_count

_AT_A_TIME: Final = 4096  # rows
_SHOWN: Final = 12  # columns named in a message


class TableColumns:
    """The columns that a source's key chooses, before anything is fitted. ``bad``: rows that cannot be read, whatever
    is fitted, with place and reason; empty for a large file, whose rows are checked when they are read."""

    def __init__(self, table: Table, source: Source, described: Mapping[str, Encoder]) -> None:
        """``described``: encoders by column name; a column without one gives its numbers. DataError R101, R102."""
        self.table = table
        self.source = source
        self.columns = chosen(source, table.names)
        self.names = [table.names[column] for column in self.columns]
        self.encoders = [described.get(name) or Number.plain(name) for name in self.names]
        self.count = table.count

    def found_bad(self) -> dict[int, tuple[str, str]]:
        """The rows of a small file that cannot be read."""
        bad: dict[int, tuple[str, str]] = {}
        for start in range(0, 0 if self.table.large else self.count, _AT_A_TIME):
            _, errors = self.typed(np.arange(start, min(start + _AT_A_TIME, self.count)))
            bad |= {start + at: (self.table.place(start + at), why) for at, why in errors.items()}
            refuse_bad(self.source, bad)
        return bad

    def typed(self, rows: NDArray[np.int64]) -> tuple[list[Typed], dict[int, str]]:
        """Each column's values in its kind, and why the row at a position cannot be read."""
        raws, errors = self.table.read(rows, self.columns)
        typed = [encoder.typed(raw) for encoder, raw in zip(self.encoders, raws)]
        for encoder, each in zip(self.encoders, typed):
            for at, why in each.errors.items():
                errors.setdefault(at, in_column(encoder.name, why))
        return typed, errors


class EncodedRows:
    """The rows of an input. A small file is encoded on opening. ``bad`` as in TableColumns; an error that depends on
    what was fitted (an unknown category) is raised when its row is read, so that it cannot change which rows there
    are."""

    def __init__(
        self,
        table: Table,
        source: Source,
        described: Mapping[str, Encoder],
        shape: tuple[int, ...],
        dtype: np.dtype[Any],
    ) -> None:
        """``shape`` and ``dtype`` are those of a row of the input. Raises DataError R101, R102, R104."""
        self._table = table
        self._columns = TableColumns(table, source, described)
        self._source = source
        self.count = table.count
        self.shape = shape
        encoders = self._columns.encoders
        widths = [encoder.width for encoder in encoders]
        self._names = [name for name, width in zip(self._columns.names, widths) for _ in range(width)]
        self._width = sum(widths)
        if self._width != prod(shape):
            _require_values(table, self._columns.columns)
            raise _misfit(source, shape, self._columns.names, widths)
        plain = all(isinstance(encoder, Number) and encoder.is_plain for encoder in encoders)
        doubles = plain and dtype.kind == "f" and not table.doubles.isdisjoint(self._columns.names)
        self.dtype = np.dtype(np.float64) if doubles else dtype if dtype.kind == "f" else np.dtype(np.int64)
        self._most = largest(self.dtype) if self.dtype.kind == "f" else None
        self._target = dtype
        self.bad: dict[int, tuple[str, str]] = {}
        self.late: dict[int, tuple[str, str]] = {}
        self._values: NDArray[Any] | None = None
        self.in_memory = not table.large and self.count * self._width * self.dtype.itemsize <= AT_ONCE
        if self.in_memory:
            self._load(plain)

    def _load(self, plain: bool) -> None:
        values = np.zeros((self.count, self._width), self.dtype)
        for start in range(0, self.count, _AT_A_TIME):
            rows = np.arange(start, min(start + _AT_A_TIME, self.count))
            values[start : start + len(rows)], early, late = self._block(rows)
            self.bad |= {start + at: (self._table.place(start + at), why) for at, why in early.items()}
            self.late |= {start + at: (self._table.place(start + at), why) for at, why in late.items()}
            refuse_bad(self._source, self.bad)
        if plain:  # nothing was fitted, so nothing can differ
            self.bad |= self.late
            self.late.clear()
        self._values = values
        self._table.close()

    def read(self, rows: NDArray[np.int64]) -> NDArray[Any]:
        if self._values is not None:
            for row in rows.tolist() if self.bad or self.late else ():
                known = self.bad.get(row) or self.late.get(row)
                if known is not None:
                    raise BadSample(row, *known)
            return self._values[rows].reshape(len(rows), *self.shape)
        values, early, late = self._block(rows)
        for at, why in sorted({**late, **early}.items()):
            row = int(rows[at])
            raise BadSample(row, self._table.place(row), why)
        return values.reshape(len(rows), *self.shape)

    def place_of(self, row: int, at: int) -> tuple[str, str]:
        return self._table.place(row), self._names[at]

    def _block(self, rows: NDArray[np.int64]) -> tuple[NDArray[Any], dict[int, str], dict[int, str]]:
        """The values [n, width] and the errors of rows: those of any encoder, and those of the fitted facts."""
        raws, early = self._table.read(rows, self._columns.columns)
        late: dict[int, str] = {}
        parts = []
        for encoder, raw in zip(self._columns.encoders, raws):
            found = self._encode(encoder, raw)
            parts.append(found.values)
            rounded = encoder.rounded(raw, found.values, self._target) if self._target.kind == "f" else {}
            for into, errors in ((early, found.errors), (late, found.late), (late, rounded)):
                for at, why in errors.items():
                    into.setdefault(at, in_column(encoder.name, why))
        values = np.concatenate(parts, 1)
        if self._most is not None:
            over = np.isfinite(values) & (np.abs(values) > self._most)
            for at, column in np.argwhere(over).tolist():
                why = f"{values[at, column]:g} is too large for {self.dtype.name}"
                late.setdefault(at, in_column(self._names[column], why))
            values[over] = 0.0
        return values.astype(self.dtype), early, late

    def _encode(self, encoder: Encoder, raw: Raw) -> Encoded:
        if self.dtype.kind == "f":
            return encoder.encode(raw)
        try:
            return encoder.encode_integers(raw)
        except TypeError as error:
            raise DataError(
                "R104",
                f"the column `{encoder.name[:60]}` cannot be integers: {error}",
                place=place_of(self._source),
                help="declare the input as a float, or change data.columns",
            ) from error


def refuse_bad(source: Source, bad: Mapping[int, tuple[str, str]]) -> None:
    """Raise DataError R101 if too many rows are bad for a table."""
    if len(bad) > MOST_BAD:
        place, why = bad[max(bad)]
        refuse_table(source, f"more than {MOST_BAD} rows cannot be read, such as {place}: {why}")


def _require_values(table: Table, columns: Sequence[int]) -> None:
    """Raise DataError R102 if the first row has a list where it should have a value: then not their number is wrong."""
    _, errors = table.read(np.arange(min(1, table.count)), columns)
    if 0 in errors:
        raise DataError("R102", errors[0], place=table.place(0), help="write a column for each element of a list")


def _misfit(source: Source, shape: tuple[int, ...], names: Sequence[str], widths: Sequence[int]) -> DataError:
    """The error for columns that do not fill a row of the input, with the arithmetic."""
    if all(width == 1 for width in widths):
        return wrong_count(source, names, shape)
    parts = [f"{name[:40]} {width}" for name, width in zip(names, widths)]
    more = f" + {sum(widths[_SHOWN:])} of {len(widths) - _SHOWN} more" if len(parts) > _SHOWN else ""
    cause = f"its columns give {' + '.join(parts[:_SHOWN])}{more} = {sum(widths)} values, {row_of(shape)}"
    return DataError("R102", cause, place=place_of(source), help=f"declare that axis with the size {sum(widths)}")
