"""What the preparation of data may use, apart from the data: a tokenizer, and a way to report progress."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from dslc.base.errors import DataError

if TYPE_CHECKING:
    from dslc.runtime.data.tokenize import Tokenizer


class Tools:
    """``tokenizer_file``: the file named by ``data.tokenizer``, or None."""

    def __init__(self, tokenizer_file: Path | None, notice: Callable[[str], None]) -> None:
        self.tokenizer_file = tokenizer_file
        self.notice = notice

    @cached_property
    def tokenizer(self) -> Tokenizer:
        """Read when it is first used. DataError R104 if the configuration names none, R101 if it is damaged."""
        if self.tokenizer_file is None:
            help = "add `tokenizer: tokenizer.json` to `data`, or read plain bytes: `corpus.txt:bytes`"
            raise DataError("R104", "text needs a tokenizer", place="data.tokenizer", help=help)
        from dslc.runtime.data.tokenize import Tokenizer

        return Tokenizer(self.tokenizer_file)
