"""Fits the columns of an input's tables to the training rows: one pass, in the order of the rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Final

import numpy as np
from numpy.typing import NDArray

from dslc.base.errors import DataError
from dslc.runtime.data.columns.encoder import Encoder
from dslc.runtime.data.columns.sums import BLOCK
from dslc.runtime.data.columns.typed import Typed
from dslc.runtime.data.names import format_of
from dslc.runtime.data.rows import BadSample
from dslc.runtime.data.tables.encoded import TableColumns
from dslc.runtime.data.tables.table import Table, chosen
from dslc.runtime.data.tables.table_format import TableFormat
from dslc.runtime.data.text.texts import text_key
from dslc.runtime.data.wanted import Wanted
from dslc.runtime.nearest import nearest

_PART: Final = 4096  # rows read at once


class TableInput:
    """An input whose tables are open and whose columns may still have to be fitted."""

    def __init__(self, wanted: Wanted, described: Mapping[str, Encoder]) -> None:
        """Raises DataError R101, R102."""
        self.wanted = wanted
        self.parts: list[TableColumns] = []
        for source in wanted.files:
            format = format_of(source)
            assert isinstance(format, TableFormat)
            self.parts.append(TableColumns(format.table(source), source, described))
            if self.parts[-1].names != self.parts[0].names:
                cause = f"its columns are not those of {self.parts[0].source.path.name}"
                place = f"{wanted.field}: {source.path}"
                raise DataError("R102", cause, place=place, help="write all files with the same columns")
        self.names = tuple(self.parts[0].names)
        self.encoders = self.parts[0].encoders
        self._starts = np.cumsum([0, *(part.count for part in self.parts)]).tolist()
        self.count: int = self._starts[-1]
        self.bad: dict[int, tuple[str, str]] = {}
        self.late: dict[int, tuple[str, str]] = {}  # nothing is fitted yet

    @property
    def rows(self) -> TableInput:
        """Itself, with a ``count``, as the rows of an opened column have."""
        return self

    def scan(self) -> None:
        """Find the bad rows of small files."""
        for start, part in zip(self._starts, self.parts):
            self.bad |= {start + row: why for row, why in part.found_bad().items()}

    def fit(self, rows: NDArray[np.int64], note: Callable[[BadSample], None]) -> list[Encoder]:
        """The encoders fitted to these rows, in increasing order. A row that cannot be read goes to ``note`` and is
        left out. Raises DataError R103, R104, R106."""
        fitters = [encoder.fitter() if encoder.facts is None else None for encoder in self.encoders]
        for start in range(0, len(rows), BLOCK):
            typed = self._block(rows[start : start + BLOCK], note)
            for fitter, values in zip(fitters, typed):
                if fitter is not None:
                    fitter.add(values)
        for part in self.parts:
            part.table.close()
        return [
            encoder if fitter is None else encoder.fitted(fitter.facts())
            for encoder, fitter in zip(self.encoders, fitters)
        ]

    def _block(self, rows: NDArray[np.int64], note: Callable[[BadSample], None]) -> list[Typed]:
        """The columns of the readable ones among increasing rows."""
        found: list[list[Typed]] = []
        for part, (first, end) in zip(self.parts, pairwise(self._starts)):
            inside = rows[np.searchsorted(rows, first) : np.searchsorted(rows, end)] - first
            for start in range(0, len(inside), _PART):
                some = inside[start : start + _PART]
                typed, errors = part.typed(some)
                for at, why in sorted(errors.items()):
                    row = int(some[at])
                    note(BadSample(row + first, part.table.place(row), why))
                good = np.delete(np.arange(len(some)), sorted(errors))
                found.append([Typed(each.values[good], each.missing[good]) for each in typed])
        return [
            Typed(np.concatenate([part[at].values for part in found]), np.concatenate([p[at].missing for p in found]))
            for at in range(len(self.names))
        ]


def reads_table(wanted: Wanted) -> bool:
    """True if the input's data are tables."""
    return isinstance(format_of(wanted.files[0]), TableFormat)


def columns_of(wanted: Wanted, kept_open: list[Table]) -> tuple[str, ...]:
    """The columns that an input of tables reads, or its key if it reads a text; a table opened for this is added to
    ``kept_open``. Raises DataError R101, R102."""
    source = wanted.files[0]
    format = format_of(source)
    assert isinstance(format, TableFormat)
    names = format.names(source, kept_open)
    columns = chosen(source, names)
    return tuple(names[column] for column in columns) if text_key(source.key or "") is None else (source.key or "",)


def require_used(described: Iterable[str], inputs: Mapping[str, Sequence[str]]) -> None:
    """Raise DataError R104 if dslc.yaml describes a column that no input reads."""
    read = {name for names in inputs.values() for name in names}
    for name in described:
        if name not in read:
            close = nearest(name, read)
            help = (
                f"did you mean `{close}`?" if close else f"they read {', '.join(sorted(read)[:8])[:200] or 'no table'}"
            )
            raise DataError(
                "R104", f"no input reads the column `{name[:60]}`", place=f"data.columns.{name[:60]}", help=help
            )


def require_one_file(inputs: Iterable[TableInput]) -> None:
    """Raise DataError R104 if a column to fit is read from different files: their rows would give different facts."""
    seen: dict[str, TableInput] = {}
    for each in inputs:
        for name, encoder in zip(each.names, each.encoders):
            first = seen.setdefault(name, each)
            same = [s.path for s in first.wanted.files] == [s.path for s in each.wanted.files]
            if encoder.facts is None and not same:
                files = " and of ".join(table.wanted.files[0].path.name for table in (first, each))
                cause = f"`{name[:60]}` is a column of {files}"
                raise DataError("R104", cause, place=f"data.columns.{name[:60]}", help="rename one of the columns")
