"""Tar shards as of WebDataset: ``train-{000..099}.tar:jpg``, ``train-{000..099}.tar:cls``; see ``data/shards``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dslc.base.errors import DataError
from dslc.runtime.data.format import Format, has_suffix, register
from dslc.runtime.data.rows import Rows
from dslc.runtime.data.source import Source

if TYPE_CHECKING:
    from dslc.runtime.data.tools import Tools
    from dslc.runtime.data.wanted import Wanted

_COMPRESSED = (".tar.gz", ".tgz", ".tar.bz2", ".tar.xz", ".tar.zst")


class Tar(Format):
    """``train-{000..099}.tar:jpg``, ``train-{000..099}.tar:json.label``."""

    usage = "`shard-*.tar:suffix`"
    keyed = True

    def matches(self, path: str) -> bool:
        return any(has_suffix(path, suffix) for suffix in (".tar", *_COMPRESSED))

    def check_key(self, key: str) -> None:
        from dslc.runtime.data.shards.values import member_of

        super().check_key(key)
        member_of(key)

    def require(self, source: Source) -> None:
        if source.path.name.lower().endswith(_COMPRESSED):
            cause = "a compressed tar cannot be read by row"
            raise DataError("R101", cause, place=str(source.path), help="unpack it to a plain .tar: gunzip FILE.tar.gz")
        super().require(source)

    def prepared(self, source: Source, wanted: Wanted, tools: Tools) -> Source:
        from dslc.runtime.data.shards.values import needs_tokenizer

        self.require(source)
        assert source.key is not None
        if needs_tokenizer(source.key):
            _ = tools.tokenizer  # refuses at once what is no tokenizer
        return source

    def open(self, source: Source, wanted: Wanted) -> Rows:
        from dslc.runtime.data.shards.rows import ShardPictures, ShardRows

        return ShardPictures(source, wanted) if self.decodes(source) else ShardRows(source, wanted)

    def decodes(self, source: Source) -> bool:
        from dslc.runtime.data.shards.values import is_picture

        return is_picture(source.key or "")

    def row_names(self, source: Source) -> list[str] | None:
        """The base names of the samples, such as ``n01/0001``."""
        from dslc.runtime.data.shards.index import sampled

        names: list[str] = []
        for name, _, _ in sampled(source.path):
            if not names or names[-1] != name:
                names.append(name)
        return names


register(Tar())
