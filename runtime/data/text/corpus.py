"""A text file encoded once, into a file of tokens that every later run maps into memory.

The text is cut into pieces of about 1 MiB, each of which is encoded by itself: a token never lies across a cut. A cut
is made after the last line end of a piece, else after its last space, else between two characters. So a text of up to
1 MiB has exactly the tokens that the tokenizer gives for it as a whole, and memory is bounded for any text.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Final

from dslc.base.cache_entry import key_of
from dslc.base.errors import DataError
from dslc.base.failpoint import fail
from dslc.base.publish import Sink
from dslc.runtime.data.file import open_file
from dslc.runtime.data.source import Source
from dslc.runtime.data.store import Store
from dslc.runtime.data.text.tokenize import Tokenizer

_PIECE: Final = 1 << 20  # bytes; part of what determines the tokens
_PART: Final = 1 << 20  # bytes read at once for the digest
_SAYS: Final = 5.0  # seconds between two lines about the progress


def encoded(source: Source, tokenizer: Tokenizer, notice: Callable[[str], None]) -> tuple[Path, str]:
    """The ``.bin`` file of a text's tokens, and their dtype: u16 or u32. Encodes the text if no earlier run did.

    Raises DataError R101 for a text that is missing or not UTF-8, ResourceError R402.
    """
    store = Store.open()
    with open_file(source.path) as file:
        size = os.fstat(file.fileno()).st_size
        next(pieces(file, source), None)  # refuses at once what is no text, however large it is
        file.seek(0)
        fields = (_digest(file), tokenizer.digest, tokenizer.version, str(_PIECE))
        name = f"tokens-{key_of('tokens', fields).hex()}.bin"
        found = store.find(name)
        if found is None:
            file.seek(0)

            def write(sink: Sink) -> None:
                before = os.fstat(file.fileno())
                _encode(file, source, size, tokenizer, sink, notice)
                if os.fstat(file.fileno()).st_mtime_ns != before.st_mtime_ns:
                    help = "train again when nobody writes to it"
                    raise DataError("R101", "it was changed while it was read", place=str(source.path), help=help)

            found = store.make(name, write, size_hint=size // 2)
    return found, "u16" if tokenizer.dtype.itemsize == 2 else "u32"


def _digest(file: IO[bytes]) -> bytes:
    digest = hashlib.sha256()
    while part := file.read(_PART):
        digest.update(part)
    return digest.digest()


def _encode(
    file: IO[bytes], source: Source, size: int, tokenizer: Tokenizer, sink: Sink, notice: Callable[[str], None]
) -> None:
    count, said = 0, time.monotonic()
    for ids in tokenizer.stream(pieces(file, source)):
        fail("data.encode")
        sink.write(ids.tobytes())
        count += len(ids)
        if time.monotonic() - said >= _SAYS:
            said = time.monotonic()
            notice(f"{source.name}: {100 * file.tell() // max(1, size)} % is encoded, {count:,} tokens")
    notice(f"{source.name}: {count:,} tokens")


def pieces(file: IO[bytes], source: Source) -> Iterator[str]:
    """The text in pieces, in order. DataError R101 for bytes that are not UTF-8."""
    rest, start = b"", 0
    while True:
        part = file.read(_PIECE - len(rest))
        rest += part
        if not rest:
            return
        end = _cut(rest) if part else len(rest)
        piece, rest = rest[:end], rest[end:]
        yield _decoded(piece, start, source)
        start += end


def _decoded(piece: bytes, start: int, source: Source) -> str:
    at = piece.find(b"\0")
    try:
        if at >= 0:
            raise UnicodeDecodeError("utf-8", piece, at, at + 1, "a NUL is no character of a text")
        return piece.decode("utf-8")
    except UnicodeDecodeError as error:
        cause = f"byte {start + error.start} is not UTF-8: {error.reason}"
        help = "convert the file: iconv -f ENCODING -t UTF-8"
        raise DataError("R101", cause, place=f"{source.path} ({source.name})", help=help) from error


def _cut(piece: bytes) -> int:
    """Where a full piece ends."""
    if len(piece) < _PIECE:
        return len(piece)
    for mark in (b"\n", b" "):
        at = piece.rfind(mark)
        if at >= 0:
            return at + 1
    end = len(piece)
    while end > len(piece) - 4 and piece[end - 1] & 0xC0 == 0x80:  # continues a character
        end -= 1
    return end - 1 if piece[end - 1] >= 0xC0 else len(piece)
