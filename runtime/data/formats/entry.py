"""Datasets of installed Python packages: ``entry:NAME(split=train):field``; see ``data/entries``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from dslc.base.errors import DataError
from dslc.runtime.data.entries.call import call_of, divided, is_entry
from dslc.runtime.data.format import Format, register
from dslc.runtime.data.rows import Rows
from dslc.runtime.data.source import Source
from dslc.runtime.data.store import ROWS
from dslc.runtime.data.text.texts import text_key

if TYPE_CHECKING:
    from dslc.runtime.data.tools import Tools
    from dslc.runtime.data.wanted import Wanted


class Entry(Format):
    """``entry:NAME(split=train):field``. Rows that cannot be read by number are stored in a file of the cache first,
    which is a source of this format, too."""

    usage = "`entry:NAME(split=train):field`"
    keyed = True

    def matches(self, path: str) -> bool:
        return is_entry(path) or _is_file(path)

    def divided(self, text: str) -> tuple[str, str] | None:
        return divided(text)

    def check_key(self, key: str) -> None:
        raise ValueError("such a file belongs to the cache; name its `entry:`")  # ``divided`` takes all other names

    def require(self, source: Source) -> None:
        from dslc.runtime.data.entries.loader import require

        require(call_of(source).name)

    def contents(self, source: Source) -> list[str]:
        from dslc.runtime.data.entries.loader import identity

        return [identity(call_of(source), times=False)]

    def prepared(self, source: Source, wanted: Wanted, tools: Tools) -> Source:
        from dslc.runtime.data.entries.store import stored

        text = text_key(call_of(source).field or "")
        if text is not None and text.tokens:
            _ = tools.tokenizer  # refuses at once what is no tokenizer
        return stored(source, wanted, tools)

    def open(self, source: Source, wanted: Wanted) -> Rows:
        from dslc.runtime.data.entries.rows import EntryRows
        from dslc.runtime.data.entries.spool import StoredRows

        stored = _is_file(source.path.name)
        rows: Rows = StoredRows(source, int(source.key or "")) if stored else EntryRows(source, wanted)
        same_classes(self.class_names(source), wanted, source)
        return rows

    def class_names(self, source: Source) -> Sequence[str] | None:
        from dslc.runtime.data.entries.loader import loaded
        from dslc.runtime.data.entries.rows import class_names
        from dslc.runtime.data.entries.spool import Stored

        if _is_file(source.path.name):
            return Stored(source.path).classes(int(source.key or ""))
        call = call_of(source)
        return class_names(loaded(call), call)


def _is_file(path: str) -> bool:
    """True for stored rows."""
    return ROWS.match(path.rpartition("/")[2]) is not None


def same_classes(names: Sequence[str] | None, wanted: Wanted, source: Source) -> None:
    """Raise DataError R103 if a label counts other classes than the training did."""
    trained = None if wanted.fitted is None else wanted.fitted.classes.get(wanted.tensor.name)
    if names is not None and trained is not None and tuple(names) != tuple(trained):
        cause = f"its classes are {', '.join(names[:8])[:100]}; those of the training {', '.join(trained[:8])[:100]}"
        place = f"{wanted.field}: {source.name}"
        raise DataError("R103", cause, place=place, help="use a dataset with the same classes in the same order")


register(Entry())
