"""What the preparation of data may use, apart from the data: a tokenizer, and a way to report progress."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dslc.runtime.data.text.tokenize import Tokenizer
    from dslc.runtime.data.wanted import Wanted


class Tools:
    """``tokenizer_file``: the file named by ``data.tokenizer``, or None. ``inputs``: all inputs of the section, whose
    data are not prepared yet."""

    def __init__(
        self, tokenizer_file: Path | None, notice: Callable[[str], None], inputs: Sequence[Wanted] = ()
    ) -> None:
        self.tokenizer_file = tokenizer_file
        self.notice = notice
        self.inputs = inputs
        self.stored: dict[str, Path | None] = {}  # the file of each dataset that one of the inputs has asked for

    @cached_property
    def tokenizer(self) -> Tokenizer:
        """Read when it is first used. DataError R104 if the configuration names none, R101 if it is damaged."""
        from dslc.runtime.data.text.tokenize import tokenizer_of

        return tokenizer_of(self.tokenizer_file)

    @property
    def tokenizer_used(self) -> Tokenizer | None:
        """The tokenizer if any data needed it."""
        return self.__dict__.get("tokenizer")
