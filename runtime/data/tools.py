"""What the preparation of data may use, apart from the data: a tokenizer, and a way to report progress."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

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
        from dslc.runtime.data.tokenize import tokenizer_of

        return tokenizer_of(self.tokenizer_file)

    @property
    def tokenizer_used(self) -> Tokenizer | None:
        """The tokenizer if any data needed it."""
        return self.__dict__.get("tokenizer")
