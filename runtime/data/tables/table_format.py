"""A format whose files are tables."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING

from dslc.base.errors import DataError
from dslc.runtime.artifact.dtypes import numpy_dtype
from dslc.runtime.data.format import Format
from dslc.runtime.data.rows import AT_ONCE, Rows
from dslc.runtime.data.source import Source
from dslc.runtime.data.tables.table import Table, chosen, place_of
from dslc.runtime.data.text.texts import text_key

if TYPE_CHECKING:
    from dslc.runtime.data.tools import Tools
    from dslc.runtime.data.wanted import Wanted


class TableFormat(Format):
    """The key names columns: ``a``, ``a,b``, ``first..last``; or a column of texts: ``tokens(a)``."""

    keyed = True

    @abstractmethod
    def table(self, source: Source) -> Table:
        """The table of one file. Raises DataError R101 for a file that is not one, EnvironmentFault R205 for a package
        that is missing."""

    def names(self, source: Source, kept_open: list[Table]) -> Sequence[str]:
        """The names of all columns of a file; a table opened for this is added to ``kept_open``."""
        kept_open.append(self.table(source))
        return kept_open[-1].names

    def check_key(self, key: str) -> None:
        if not key:
            raise ValueError("the names of its columns are missing")

    def require(self, source: Source) -> None:
        """Also raises DataError R101 or R102 for a small file that is not a table or lacks a column."""
        super().require(source)
        if source.path.stat().st_size <= AT_ONCE:
            chosen(source, self.names(source, []))

    def prepared(self, source: Source, wanted: Wanted, tools: Tools) -> Source:
        text = text_key(source.key or "")
        if text is not None and text.tokens:
            _ = tools.tokenizer  # refuses at once what is no tokenizer
        return source

    def open(self, source: Source, wanted: Wanted) -> Rows:
        from dslc.runtime.data.tables.encoded import EncodedRows
        from dslc.runtime.data.tables.text_rows import TextRows

        table = self.table(source)
        assert source.key is not None
        text = text_key(source.key)
        if text is not None:
            return TextRows(table, source, wanted, text)
        if not wanted.described:
            return EncodedRows(table, source, {}, wanted.shape, numpy_dtype(wanted.tensor.dtype))
        assert wanted.fitted is not None
        fitted = wanted.fitted.inputs[wanted.tensor.name]
        names = tuple(table.names[column] for column in chosen(source, table.names))
        if names != fitted:
            cause = f"its columns are {', '.join(names)[:200]}; the training read {', '.join(fitted)[:200]}"
            raise DataError("R102", cause, place=place_of(source), help="name the same columns in the same order")
        return EncodedRows(table, source, wanted.fitted.columns, wanted.shape, numpy_dtype(wanted.tensor.dtype))
