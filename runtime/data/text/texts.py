"""Texts as rows of one length: tokens or bytes, cut or filled at the end, and masks of what is not filling.

A key names them: ``tokens(review)``, ``tokens.mask(review)``, ``bytes(review)``, ``bytes.mask(review)``.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from dslc.base.errors import DataError
from dslc.runtime.data.source import Source

if TYPE_CHECKING:
    from dslc.runtime.data.text.tokenize import Tokenizer
    from dslc.runtime.data.wanted import Wanted

LONGEST: Final = 1 << 20  # bytes of one text in UTF-8
AT_A_TIME: Final = 1024  # texts that are best encoded by one call: a tokenizer is asked in another process
_KEY = re.compile(r"(tokens|bytes)(\.mask)?\((.+)\)\Z", re.DOTALL)


class TextRefused(DataError):
    """R101: a tokenizer refuses one of some texts. It may take the others."""


@dataclass(frozen=True)
class TextKey:
    """``column``: where the text is: a column of a table, a member of a sample, a field of a row. ``tokens``: by the
    tokenizer, else its bytes. ``mask``: 1 for each token or byte of the text and 0 for filling, instead of them."""

    column: str
    tokens: bool = True
    mask: bool = False


def text_key(key: str) -> TextKey | None:
    """The parts of a key that names a text; None for another key."""
    found = _KEY.match(key)
    return None if found is None else TextKey(found[3], found[1] == "tokens", found[2] is not None)


class TextEncoder:
    """Encodes texts as rows of an input, [T] each."""

    def __init__(self, key: TextKey, length: int, tokenizer: Path | None) -> None:
        """Raises DataError R104 if tokens are wanted and ``tokenizer`` is None, R101 if that is no tokenizer."""
        self._key = key
        self._length = length
        self._tokenizer: Tokenizer | None = None
        if key.tokens:
            from dslc.runtime.data.text.tokenize import tokenizer_of

            self._tokenizer = tokenizer_of(tokenizer)
        self.dtype: np.dtype[Any] = np.dtype(np.uint8 if key.mask or not key.tokens else np.int32)

    def encode(self, texts: Sequence[str]) -> NDArray[Any]:
        """Rows [n, T]: i32 tokens, u8 bytes, or a u8 mask. TextRefused, or DataError R101 if the tokenizer fails."""
        if self._tokenizer is not None:
            rows, counts = self._tokenizer.encode(texts, self._length)
        else:
            rows, counts = np.zeros((len(texts), self._length), np.uint8), np.zeros(len(texts), np.int32)
            for at, text in enumerate(texts):
                data = text.encode("utf-8", "replace")[: self._length]
                rows[at, : len(data)] = np.frombuffer(data, np.uint8)
                counts[at] = len(data)
        if self._key.mask:
            return (np.arange(self._length) < counts[:, None]).astype(np.uint8)
        return rows


def encoder_for(key: TextKey, wanted: Wanted, source: Source) -> TextEncoder:
    """The encoder of an input's texts. DataError R102 if a row of the input is not [T]; those of ``TextEncoder``."""
    if len(wanted.shape) != 1 or wanted.shape[0] < 1:
        cause = f"a row of this input is {list(wanted.shape)}, but a text fills a row of {_kind(key)}"
        help = "declare the input as `i32[B, T]`" + (", or as `f32[B, T]`" if key.mask else "")
        raise DataError("R102", cause, place=f"{wanted.field}: {source.path} ({source.name})", help=help)
    return TextEncoder(key, wanted.shape[0], wanted.tokenizer)


def problem(value: object) -> str | None:
    """Why a value cannot be encoded as a text; None if it can."""
    if not isinstance(value, str):
        return f"{str(value)[:40]!r} is not a text"
    if len(value) > LONGEST or len(value.encode("utf-8", "replace")) > LONGEST:
        return f"the text has more than {LONGEST} bytes"
    return None


def _kind(key: TextKey) -> str:
    return "0 and 1" if key.mask else "tokens" if key.tokens else "bytes"
