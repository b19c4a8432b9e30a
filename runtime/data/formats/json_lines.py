"""Columns of a JSON lines file: one object per line."""

from __future__ import annotations

from dslc.runtime.data.format import has_suffix, register
from dslc.runtime.data.source import Source
from dslc.runtime.data.tables.json_table import JsonTable
from dslc.runtime.data.tables.packed import plain
from dslc.runtime.data.tables.table import Table
from dslc.runtime.data.tables.table_format import TableFormat


class JsonLines(TableFormat):
    """``table.jsonl:label``, ``table.jsonl.xz:label``, with the keys of CSV."""

    usage = "`file.jsonl:columns`"

    def matches(self, path: str) -> bool:
        return any(has_suffix(plain(path), suffix) for suffix in (".jsonl", ".ndjson"))

    def table(self, source: Source) -> Table:
        return JsonTable(source)


register(JsonLines())
