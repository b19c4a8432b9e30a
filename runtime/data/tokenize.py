"""Text as tokens, by a tokenizer file of Hugging Face's ``tokenizers`` (extra ``text``), such as ``tokenizer.json``.

A tokenizer file is data: it holds a vocabulary and rules. Its patterns run over the text, so a file by a stranger may
be slow, but it cannot run code.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, Final, TypeVar

import numpy as np
from numpy.typing import NDArray

from dslc.base.errors import DataError, EnvironmentFault
from dslc.base.words import reason
from dslc.runtime.data.file import open_file, read_exactly

NOTE: Final = "dslc.tokenizer"  # the note of weights that holds the digest of the tokenizer of their training data
_LARGEST_FILE: Final = 48 << 20  # bytes; the largest published files have about 35 MiB
_AT_ONCE: Final = 1024  # texts encoded by one call of the library
_PADDING: Final = ("[PAD]", "<pad>", "<|pad|>", "<|padding|>")

Found = TypeVar("Found")


class Tokenizer:
    """``digest``: the SHA-256 of the file, in hex. ``size``: token ids are less. ``padding``: the id that fills short
    texts: that of the file's padding, else that of a token called ``[PAD]`` or ``<pad>``, else 0."""

    def __init__(self, path: Path) -> None:
        """Raises DataError R101 for a file that is missing or no tokenizer, EnvironmentFault R205 without the
        library."""
        self.path = path
        with open_file(path) as file:
            size = os.fstat(file.fileno()).st_size
            if size > _LARGEST_FILE:
                self._refuse(f"it has {size} bytes, more than {_LARGEST_FILE}")
            try:
                data = read_exactly(file, size).tobytes()
            except (EOFError, OSError) as error:
                self._refuse(reason(error))
        self.digest = hashlib.sha256(data).hexdigest()
        library = _library()
        self.version: str = library.__version__
        try:
            text = data.decode("utf-8")
        except UnicodeDecodeError as error:
            self._refuse(reason(error))
        self._plain = self._ask(lambda: library.Tokenizer.from_str(text))
        self._plain.no_padding()
        self._plain.no_truncation()
        self._rows = self._ask(lambda: library.Tokenizer.from_str(text))
        given = self._rows.padding
        known = [self._rows.token_to_id(name) for name in _PADDING]
        self.padding: int = given["pad_id"] if given else next((id for id in known if id is not None), 0)
        self._rows.no_padding()
        vocabulary = self._plain.get_vocab(with_added_tokens=True)
        self.size: int = max(vocabulary.values(), default=-1) + 1
        for name, largest in (("token", self.size - 1), ("padding", self.padding)):
            if largest >= 2**31:
                self._refuse(f"it has a {name} with the id {largest}, more than {2**31 - 1}")

    @property
    def note(self) -> dict[str, str]:
        """The note of weights that were trained on this tokenizer's tokens."""
        return {NOTE: self.digest}

    def require_trained(self, notes: Mapping[str, str]) -> None:
        """Raise DataError R104 if weights with these notes were trained with another tokenizer."""
        trained = notes.get(NOTE, self.digest)
        if trained != self.digest:
            cause = f"the weights were trained with another tokenizer, whose SHA-256 begins with {trained[:12]!a}"
            help = "name that tokenizer as `data.tokenizer`: to this one, the model's tokens mean other texts"
            raise DataError("R104", cause, place=f"data.tokenizer: {self.path}", help=help)

    def encode(self, texts: Sequence[str], length: int) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        """Each text as one row of ids, i32[n, length], and the number of its tokens, i32[n].

        The file's special tokens, such as ``[CLS]``, are added. A longer text is cut to ``length`` tokens, of which the
        special ones are kept; a shorter one is filled with ``padding`` at its end. Raises DataError R101 if the
        library refuses a text.
        """
        rows = np.full((len(texts), length), self.padding, np.int32)
        counts = np.zeros(len(texts), np.int32)
        self._ask(lambda: self._rows.enable_truncation(length))
        for start in range(0, len(texts), _AT_ONCE):
            part = [_encodable(text) for text in texts[start : start + _AT_ONCE]]
            for at, found in enumerate(self._ask(lambda part=part: self._rows.encode_batch(part)), start):  # type: ignore[misc]
                ids = self._known(found.ids[:length])
                rows[at, : len(ids)] = ids
                counts[at] = len(ids)
        return rows, counts

    def stream(self, pieces: Iterable[str]) -> Iterator[NDArray[Any]]:
        """The ids of each piece of a long text, without special tokens; u16, or u32 for a vocabulary over 65,536."""
        for piece in pieces:
            found = self._ask(lambda piece=piece: self._plain.encode(piece, add_special_tokens=False))  # type: ignore[misc]
            yield np.array(self._known(found.ids), self.dtype)

    @property
    def dtype(self) -> np.dtype[Any]:
        """The smallest of u16 and u32 that holds every id."""
        return np.dtype("<u2" if self.size <= 1 << 16 else "<u4")

    def _known(self, ids: list[int]) -> list[int]:
        """The ids, if the vocabulary has all: a file's rules may insert others."""
        if ids and max(ids) >= self.size:
            why = f"the tokenizer gives the id {max(ids)}, and its vocabulary ends at {self.size - 1}"
            raise DataError("R101", why, place=str(self.path), help=_HELP)
        return ids

    def _ask(self, call: Callable[[], Found]) -> Found:
        """The result of a call of the library. It raises plain exceptions, and panics of Rust, which are no
        ``Exception``."""
        try:
            return call()
        except BaseException as error:
            if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
                raise
            why = f"the tokenizer refuses: {reason(error)}"
            raise DataError("R101", why, place=str(self.path), help=_HELP) from error

    def _refuse(self, why: str) -> None:
        raise DataError("R101", f"it is not a tokenizer: {why}", place=str(self.path), help=_HELP)


def tokenizer_of(path: Path | None) -> Tokenizer:
    """The tokenizer in a file, read once. DataError R104 if there is none, and the errors of ``Tokenizer``."""
    if path is None:
        help = "add `tokenizer: tokenizer.json` to `data`, or read plain bytes: `corpus.txt:bytes`, `x.csv:bytes(a)`"
        raise DataError("R104", "text needs a tokenizer", place="data.tokenizer", help=help)
    with open_file(path) as file:
        status = os.fstat(file.fileno())
    _library()
    return _read_once(path, status.st_size, status.st_mtime_ns)


@lru_cache(maxsize=2)
def _read_once(path: Path, size: int, changed: int) -> Tokenizer:
    """The tokenizer of a file that had this size and time of its last change."""
    return Tokenizer(path)


_HELP: Final = "save it again with `Tokenizer.save(FILE)` of Hugging Face's tokenizers"


def _encodable(text: str) -> str:
    """The text without lone surrogates, which UTF-8 cannot hold."""
    return text.encode("utf-8", "replace").decode("utf-8")


def _library() -> Any:
    try:
        import tokenizers
    except ImportError as error:
        help = "pip install 'dslc[text]'"
        raise EnvironmentFault("R205", "text needs tokenizers", place="data.tokenizer", help=help) from error
    return tokenizers
