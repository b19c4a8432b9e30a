"""Text as the tokens of a model, and back: by a tokenizer, as bytes, or as the numbers themselves."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, Protocol

from dslc.base.errors import DataError, InputError

if TYPE_CHECKING:
    from dslc.runtime.data.text.tokenize import Tokenizer

_BYTES: Final = 256
_INCOMPLETE: Final = "\ufffd"  # what a decoder writes for a part of a character


class Codec(Protocol):
    """``encode`` raises InputError R105 for a text without tokens. ``decode`` takes all tokens of a text."""

    def encode(self, text: str) -> list[int]: ...
    def decode(self, tokens: Sequence[int]) -> str: ...


class Bytes:
    """UTF-8: a token is a byte."""

    def encode(self, text: str) -> list[int]:
        found = list(text.encode("utf-8", "surrogateescape"))
        _require(text, found)
        return found

    def decode(self, tokens: Sequence[int]) -> str:
        return bytes(tokens).decode("utf-8", "replace")


class Numbers:
    """Numbers with spaces or commas between them."""

    def encode(self, text: str) -> list[int]:
        words = text.replace(",", " ").split()
        _require(text, words)
        if not all(word.isascii() and word.isdigit() and len(word) < 20 for word in words):
            raise InputError("R105", f"{text[:40]!r} is no list of tokens", place="--prompt", help="such as 15,2,7")
        return [int(word) for word in words]

    def decode(self, tokens: Sequence[int]) -> str:
        return "".join(f"{token} " for token in tokens)


class Tokens:
    """The tokens of a tokenizer's file, without special ones."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer

    def encode(self, text: str) -> list[int]:
        [ids] = self._tokenizer.stream([text])
        found: list[int] = ids.tolist()
        _require(text, found)
        return found

    def decode(self, tokens: Sequence[int]) -> str:
        return self._tokenizer.decode(tokens)


def codec_of(vocabulary: int, tokenizer: Tokenizer | None, *, numbers: bool) -> Codec:
    """The codec for a model with so many tokens. DataError R104 if it has more than bytes, and there is no
    tokenizer."""
    if numbers:
        return Numbers()
    if tokenizer is not None:
        return Tokens(tokenizer)
    if vocabulary > _BYTES:
        cause = f"the model has {vocabulary} tokens, more than there are bytes"
        help = "name its tokenizer: `data.tokenizer`, or --tokenizer FILE; or read and write numbers: --ids"
        raise DataError("R104", cause, place="data.tokenizer", help=help)
    return Bytes()


class Growing:
    """The text of tokens that come one by one; a part of a character waits for the rest. Only the last tokens are
    decoded: those since the last complete text, after the ones before it, on which a decoder may depend."""

    def __init__(self, codec: Codec) -> None:
        self._codec = codec
        self._before = self._shown = 0  # tokens[_before:_shown] are shown, and decoded again with those after them
        self.tokens: list[int] = []

    def add(self, token: int) -> str:
        """The text that the token adds to what was shown."""
        self.tokens.append(token)
        new = self.rest()
        if not new or new.endswith(_INCOMPLETE):
            return ""
        self._before, self._shown = self._shown, len(self.tokens)
        return new

    def rest(self) -> str:
        """The text after what was shown."""
        known = self._codec.decode(self.tokens[self._before : self._shown])
        return self._codec.decode(self.tokens[self._before :])[len(known) :]


def _require(text: str, found: Sequence[object]) -> None:
    """Raises InputError R105 for a text without tokens."""
    if not found:
        raise InputError("R105", f"the prompt {text[:40]!r} has no tokens", place="--prompt", help="write some text")
