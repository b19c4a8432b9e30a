"""Text as tokens, by a tokenizer file of Hugging Face's ``tokenizers`` (extra ``text``), such as ``tokenizer.json``.

A tokenizer file is data: it holds a vocabulary and rules. It cannot run code, but a file by a stranger may make the
library slow, panic, abort, or take all memory. So the library runs in a process of its own, with limits.
"""

from __future__ import annotations

import hashlib
import os
import weakref
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from dslc.base.errors import DataError
from dslc.base.words import reason
from dslc.runtime.data.file import open_file, read_exactly
from dslc.runtime.data.text.texts import AT_A_TIME, TextRefused
from dslc.runtime.data.text.tokenize_client import HELP, Client, refuse, require_library

NOTE: Final = "dslc.tokenizer"  # the note of weights that holds the digest of the tokenizer of their training data
_LARGEST_FILE: Final = 48 << 20  # bytes; the largest published files have about 35 MiB
#: Bytes of texts in a request, unless one text has more; the process's memory is limited. The library keeps what it
#: cuts off a row's text: of a text of 1 MiB in rows of 3 tokens 1.7 GiB; of a piece of a stream at most 0.4.
_BYTES_OF_ROWS: Final = 1 << 20
_BYTES_OF_PIECES: Final = 4 << 20


class Tokenizer:
    """``digest``: the SHA-256 of the file, in hex. ``size``: token ids are less. ``padding``: the id that fills short
    texts: that of the file's padding, else that of a token called ``[PAD]`` or ``<pad>``, else 0. ``version`` of the
    library."""

    def __init__(self, path: Path) -> None:
        """Raises DataError R101 for a file that is missing or no tokenizer, EnvironmentFault R205 without the
        library, ResourceError R401 if no process can be started."""
        self.path = path
        with open_file(path) as file:
            size = os.fstat(file.fileno()).st_size
            if size > _LARGEST_FILE:
                refuse(path, f"it is not a tokenizer: it has {size} bytes, more than {_LARGEST_FILE}")
            try:
                data = read_exactly(file, size).tobytes()
            except (EOFError, OSError) as error:
                refuse(path, f"it is not a tokenizer: {reason(error)}")
        self.digest = hashlib.sha256(data).hexdigest()
        self._client = client = Client(path, data)
        weakref.finalize(self, client.end, 0.05)
        self.version: str = client.described["version"]
        self.padding: int = client.described["padding"]
        largest: int = client.described["largest"]
        self.size = largest + 1
        for name, id in (("token", largest), ("padding", self.padding)):
            if id >= 2**31:
                refuse(path, f"it is not a tokenizer: it has a {name} with the id {id}, more than {2**31 - 1}")

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
        start = 0
        for part in _portions(texts, _BYTES_OF_ROWS):
            found, ids = self._encoded(part, length)
            counts[start : start + len(part)] = found
            rows[start : start + len(part)][np.arange(length) < found[:, None]] = ids
            start += len(part)
        return rows, counts

    def stream(self, pieces: Iterable[str]) -> Iterator[NDArray[Any]]:
        """The ids of each piece of a long text, without special tokens; u16, or u32 for a vocabulary over 65,536.
        Several pieces are encoded at a time, each by itself."""
        for part in _portions(pieces, _BYTES_OF_PIECES):
            counts, ids = self._encoded(part, None)
            yield from np.split(ids.astype(self.dtype), np.cumsum(counts[:-1]))

    def decode(self, ids: Sequence[int]) -> str:
        """The text of ids; those that the vocabulary lacks are left out. Raises DataError R101 if the library refuses
        them."""
        return self._client.decode(ids)

    @property
    def dtype(self) -> np.dtype[Any]:
        """The smallest of u16 and u32 that holds every id."""
        return np.dtype("<u2" if self.size <= 1 << 16 else "<u4")

    def _encoded(self, texts: Sequence[str], length: int | None) -> tuple[NDArray[np.int32], NDArray[np.uint32]]:
        """As ``Client.encode``, if the vocabulary has every id: a file's rules may insert others."""
        counts, ids = self._client.encode(texts, length)
        largest = int(ids.max(initial=0))
        if len(ids) and largest >= self.size:
            why = f"the tokenizer gives the id {largest}, and its vocabulary ends at {self.size - 1}"
            raise TextRefused("R101", why, place=str(self.path), help=HELP)
        return counts, ids


def _portions(texts: Iterable[str], most: int) -> Iterator[list[str]]:
    """The texts in their order, as many at a time as one request holds: at most so many bytes."""
    part: list[str] = []
    size = 0
    for text in texts:
        length = len(text) if text.isascii() else len(text.encode("utf-8", "replace"))
        if part and (len(part) == AT_A_TIME or size + length > most):
            yield part
            part, size = [], 0
        part.append(text)
        size += length
    if part:
        yield part


def tokenizer_of(path: Path | None) -> Tokenizer:
    """The tokenizer in a file, read once. DataError R104 if there is none, and the errors of ``Tokenizer``."""
    if path is None:
        help = "add `tokenizer: tokenizer.json` to `data`, or read plain bytes: `corpus.txt:bytes`, `x.csv:bytes(a)`"
        raise DataError("R104", "text needs a tokenizer", place="data.tokenizer", help=help)
    with open_file(path) as file:
        status = os.fstat(file.fileno())
    require_library()
    return _read_once(path, status.st_size, status.st_mtime_ns)


@lru_cache(maxsize=2)
def _read_once(path: Path, size: int, changed: int) -> Tokenizer:
    """The tokenizer of a file that had this size and time of its last change."""
    return Tokenizer(path)
