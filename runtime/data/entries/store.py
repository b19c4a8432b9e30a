"""Stores the rows of a dataset that can only be iterated, unless an earlier run has stored the same."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from dslc.base.cache_entry import key_of
from dslc.base.publish import Sink
from dslc.runtime.data.entries.call import Call, call_of, is_entry
from dslc.runtime.data.entries.loader import guarded, identity, loaded
from dslc.runtime.data.entries.rows import by_number, class_names, iterated, length_of, selected
from dslc.runtime.data.entries.spool import Stored, write
from dslc.runtime.data.entries.values import Converter
from dslc.runtime.data.rows import AT_ONCE
from dslc.runtime.data.source import Source
from dslc.runtime.data.store import Store
from dslc.runtime.data.text.texts import text_key

if TYPE_CHECKING:
    from dslc.runtime.data.tools import Tools
    from dslc.runtime.data.wanted import Wanted


def stored(source: Source, wanted: Wanted, tools: Tools) -> Source:
    """The source of the stored rows; the source itself if its rows can be read by number.

    Raises DataError R101, R102, R106, ResourceError R402.
    """
    call = call_of(source)
    together = [want for want in tools.inputs if _same(want.files[0], call)]
    dataset = f"{call.text} {call.spool}"
    if dataset not in tools.stored:  # once: a dataset may change the files that its arguments name
        tools.stored[dataset] = _file(call, together, tools)
    path = tools.stored[dataset]
    if path is None:
        return source
    return Source(path, str([want.field for want in together].index(wanted.field)), source.name)


def _file(call: Call, together: list[Wanted], tools: Tools) -> Path | None:
    """The file of the stored rows; None if the dataset is not stored."""
    store = Store.open()
    name = f"entry-{_key(call, together, tools)}.rows"
    path = store.find(name)
    if path is None:
        dataset = loaded(call)
        if by_number(dataset) and not call.spool:
            return None
        calls = [call_of(want.files[0]) for want in together]
        fields = [Converter(want, want.files[0], each.field) for want, each in zip(together, calls)]
        classes = [class_names(dataset, each) for each in calls]
        total = length_of(dataset, call) if hasattr(dataset, "__len__") else None
        with guarded(call.name, "its `select_columns` failed"):
            dataset = selected(dataset, [field.field for field in fields])

        def put(sink: Sink) -> None:
            write(iterated(dataset, call), fields, classes, sink, tools.notice, f"entry:{call.name}", total)

        path = store.make(name, put, verify=lambda made: Stored(made).verify())
        loaded.cache_clear()  # an iterator gives its rows once
    elif path.stat().st_size <= AT_ONCE:
        Stored(path).verify()
    return path


def _same(source: Source, call: Call) -> bool:
    """True if a source is a field of the same dataset."""
    return is_entry(source.path.name) and replace(call_of(source), field=call.field) == call


def _key(call: Call, together: list[Wanted], tools: Tools) -> str:
    """The SHA-256 of everything that determines the stored rows."""
    parts = [identity(call)]
    for want in together:
        field = call_of(want.files[0]).field or ""
        parts += [field, want.tensor.dtype, str(want.shape), str(want.pictures.as_data())]
        text = text_key(field)
        if text is not None and text.tokens:
            parts += [tools.tokenizer.digest, tools.tokenizer.version]
    return key_of("entry", parts).hex()
