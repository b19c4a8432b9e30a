"""Columns of Parquet and Arrow files (extra ``parquet``)."""

from __future__ import annotations

from dslc.runtime.data.format import has_suffix, register
from dslc.runtime.data.source import Source
from dslc.runtime.data.tables.table import Table
from dslc.runtime.data.tables.table_format import TableFormat


class Parquet(TableFormat):
    """``table.parquet:label``, with the keys of CSV."""

    usage = "`file.parquet:columns`"

    def matches(self, path: str) -> bool:
        return has_suffix(path, ".parquet")

    def table(self, source: Source) -> Table:
        from dslc.runtime.data.tables.arrow_table import ArrowTable

        return ArrowTable(source, "parquet")


class Arrow(TableFormat):
    """``table.arrow:label``, ``table.feather:label``, ``table.arrows:label``: Arrow's IPC files and streams."""

    usage = "`file.arrow:columns`"

    def matches(self, path: str) -> bool:
        return any(has_suffix(path, suffix) for suffix in (".arrow", ".feather", ".arrows"))

    def table(self, source: Source) -> Table:
        from dslc.runtime.data.tables.arrow_table import ArrowTable

        return ArrowTable(source, "arrow")


register(Parquet())
register(Arrow())
