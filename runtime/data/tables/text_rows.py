"""Rows of an input from a column of texts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dslc.runtime.data.rows import AT_ONCE, BadSample
from dslc.runtime.data.source import Source
from dslc.runtime.data.tables.encoded import refuse_bad
from dslc.runtime.data.tables.table import Table, chosen
from dslc.runtime.data.text.texts import AT_A_TIME, TextKey, TextRefused, encoder_for, problem

if TYPE_CHECKING:
    from dslc.runtime.data.wanted import Wanted


class TextRows:
    """The texts of a column as tokens, bytes or masks. A missing value is an empty text, as CSV cannot tell them apart.
    A small file is encoded on opening. ``bad``: its rows that cannot be read, with place and reason."""

    def __init__(self, table: Table, source: Source, wanted: Wanted, key: TextKey) -> None:
        """Raises DataError R101, R102, R104."""
        self._table = table
        self._column = chosen(source, table.names)
        self._encoder = encoder_for(key, wanted, source)
        self.count = table.count
        self.shape = wanted.shape
        self.dtype = self._encoder.dtype
        self.bad: dict[int, tuple[str, str]] = {}
        self._values: NDArray[Any] | None = None
        self.in_memory = not table.large and self.count * self.shape[0] * self.dtype.itemsize <= AT_ONCE
        if self.in_memory:
            self._load(source)

    def _load(self, source: Source) -> None:
        values = np.zeros((self.count, *self.shape), self.dtype)
        for start in range(0, self.count, AT_A_TIME):
            rows = np.arange(start, min(start + AT_A_TIME, self.count))
            values[start : start + len(rows)], errors = self._block(rows)
            self.bad |= {start + at: (self._table.place(start + at), why) for at, why in errors.items()}
            refuse_bad(source, self.bad)
        self._values = values
        self._table.close()

    def read(self, rows: NDArray[np.int64]) -> NDArray[Any]:
        if self._values is not None:
            for row in rows.tolist() if self.bad else ():
                if row in self.bad:
                    raise BadSample(row, *self.bad[row])
            found: NDArray[Any] = self._values[rows]
            return found
        values, errors = self._block(rows)
        for at, why in sorted(errors.items()):
            raise BadSample(int(rows[at]), self._table.place(int(rows[at])), why)
        return values

    def _block(self, rows: NDArray[np.int64]) -> tuple[NDArray[Any], dict[int, str]]:
        """The values [n, T] of rows, and why the row at a position cannot be read."""
        [raw], errors = self._table.read(rows, self._column)
        texts = []
        for at, (value, missing) in enumerate(zip(raw.values.tolist(), raw.missing.tolist())):
            why = None if missing else problem(value)
            if why is not None:
                errors.setdefault(at, why)
            texts.append("" if missing or why is not None else value)
        try:
            return self._encoder.encode(texts), errors
        except TextRefused:
            return self._one_by_one(texts, errors), errors

    def _one_by_one(self, texts: list[str], errors: dict[int, str]) -> NDArray[Any]:
        """The values if the tokenizer refuses some of the texts, which go to ``errors``."""
        values = np.zeros((len(texts), *self.shape), self.dtype)
        for at, text in enumerate(texts):
            try:
                values[at] = self._encoder.encode([text])[0]
            except TextRefused as error:
                errors.setdefault(at, error.message)
        return values
