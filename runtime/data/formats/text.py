"""Windows of a text: ``corpus.txt:tokens`` by a tokenizer, or ``corpus.txt:bytes``, which needs none.

The tokens are written to a ``.bin`` file once (``corpus.py``); bytes are read from the text itself.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from dslc.runtime.data.format import Format, has_suffix, register
from dslc.runtime.data.formats.tokens import TokenRows, check_windows, tokens
from dslc.runtime.data.rows import Rows
from dslc.runtime.data.source import Source

if TYPE_CHECKING:
    from dslc.runtime.data.tools import Tools
    from dslc.runtime.data.wanted import Wanted


class Text(Format):
    """``corpus.txt:tokens``, ``corpus.txt:bytes+1``."""

    usage = "`file.txt:tokens`"
    keyed = True
    windows = True

    def matches(self, path: str) -> bool:
        return has_suffix(path, ".txt")

    def check_key(self, key: str) -> None:
        check_windows(key, ("tokens", "bytes"))

    def prepared(self, source: Source, wanted: Wanted, tools: Tools) -> Source:
        assert source.key is not None
        key = tokens(source.key)
        if key.dtype == "bytes":
            return source
        from dslc.runtime.data.text.corpus import encoded

        path, item = encoded(source, tools.tokenizer, tools.notice)
        return Source(path, str(replace(key, dtype=item)), source.name)

    def open(self, source: Source, wanted: Wanted) -> Rows:
        return TokenRows(source, wanted.shape)


register(Text())
