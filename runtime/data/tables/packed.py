"""Text tables that gzip, bzip2 or xz has compressed: ``rows.csv.gz``. Such a file is unpacked once, into a file of the
cache (``store``), which is then mapped and read by row as an uncompressed table is.

The name in the cache is made from the bytes of the compressed file. A file may join several compressed streams, and
zeros may follow them, as on tapes. Every stream must be whole and have the right checksum.
"""

from __future__ import annotations

import bz2
import hashlib
import lzma
import os
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO, Final, NoReturn, Protocol

from dslc.base.cache_entry import key_of
from dslc.base.errors import DataError
from dslc.base.publish import Sink
from dslc.base.words import reason
from dslc.runtime.data.file import open_file
from dslc.runtime.data.kinds import LONGEST, other_kind
from dslc.runtime.data.store import Store
from dslc.runtime.data.tables import records

_READ: Final = 1 << 15  # bytes that are read at once; many short streams copy what follows them
_PART: Final = 1 << 20  # bytes that are unpacked at once
_MEMORY: Final = 256 << 20  # bytes that a dictionary of xz may take; its highest preset takes 65 MiB
_GZIP: Final = 16 + zlib.MAX_WBITS  # the format of gzip, as zlib counts: header, checksum and length are checked
_DAMAGED: Final = (zlib.error, lzma.LZMAError, OSError, EOFError, ValueError)


class _Stream(Protocol):
    """A decompressor, as of ``bz2`` and ``lzma``."""

    @property
    def eof(self) -> bool: ...
    @property
    def needs_input(self) -> bool: ...
    @property
    def unused_data(self) -> bytes: ...
    def decompress(self, data: bytes, max_length: int) -> bytes: ...


class _Gzip:
    """``zlib`` with the interface of the other two."""

    def __init__(self) -> None:
        self._stream = zlib.decompressobj(_GZIP)
        self.needs_input = True

    @property
    def eof(self) -> bool:
        return self._stream.eof

    @property
    def unused_data(self) -> bytes:
        return self._stream.unused_data

    def decompress(self, data: bytes, max_length: int) -> bytes:
        found = self._stream.decompress(self._stream.unconsumed_tail + data, max_length)
        self.needs_input = len(found) < max_length and not self._stream.unconsumed_tail
        return found


@dataclass(frozen=True)
class _Packing:
    suffix: str
    program: str
    magic: bytes
    stream: Callable[[], _Stream]


_PACKINGS: Final = (
    _Packing(".gz", "gzip", b"\x1f\x8b", _Gzip),
    _Packing(".bz2", "bzip2", b"BZh", bz2.BZ2Decompressor),
    _Packing(".xz", "xz", b"\xfd7zXZ\x00", partial(lzma.LZMADecompressor, lzma.FORMAT_XZ, _MEMORY)),
)


def plain(name: str) -> str:
    """The name of a table without the suffix of its compression: ``rows.csv`` of ``rows.csv.gz``."""
    found = _packing(name)
    return name if found is None else name[: -len(found.suffix)]


def unpacked(path: Path, refuse: Callable[[str], NoReturn]) -> Path:
    """The file that holds the text of a table: ``path`` itself, or what it unpacks to, in the cache.

    ``refuse`` raises for a text that is no table. Raises DataError R101 for a file that is damaged, or whose name
    does not say how it is compressed; ResourceError R402.
    """
    packing = _packing(path.name)
    with open_file(path) as file:
        start = file.read(LONGEST)
        if packing is None or not start.startswith(packing.magic):
            _refuse_misnamed(path, packing, start)
            return path
        before = os.fstat(file.fileno())
        file.seek(0)
        digest = hashlib.sha256()
        while part := file.read(_PART):
            digest.update(part)

        def write(sink: Sink) -> None:
            assert packing is not None
            file.seek(0)
            for part in _short_lines(_parts(file, packing, path), refuse):
                sink.write(part)
            if os.fstat(file.fileno()).st_mtime_ns != before.st_mtime_ns:
                help = "run it again when nobody writes to it"
                raise DataError("R101", "it was changed while it was read", place=str(path), help=help)

        name = f"unpacked-{key_of('unpacked', (packing.program, digest.digest())).hex()}.txt"
        return Store.open().make(name, write, size_hint=before.st_size)


def _packing(name: str) -> _Packing | None:
    return next((each for each in _PACKINGS if name.lower().endswith(each.suffix)), None)


def _refuse_misnamed(path: Path, packing: _Packing | None, start: bytes) -> None:
    """Raise DataError R101 if the first bytes of a file are compressed in another way than its name says."""
    inside = next((each for each in _PACKINGS if start.startswith(each.magic)), None)
    if inside is not None:
        cause, help = f"it is compressed by {inside.program}", f"call it {plain(path.name)[:60]}{inside.suffix}"
        raise DataError("R101", cause, place=str(path), help=help)
    if packing is not None:
        found = other_kind(start)
        cause = "the file is empty" if not start else f"it is not compressed by {packing.program}, as its name says"
        if found is not None:
            cause = f"{found[0]}, not compressed by {packing.program}"
        help = f"compress it, or call it {plain(path.name)[:60]}" if found is None else found[1]
        raise DataError("R101", cause, place=str(path), help="write it again" if not start else help)


def _parts(file: IO[bytes], packing: _Packing, path: Path) -> Iterator[bytes]:
    """What a file unpacks to, at most ``_PART`` bytes at once. DataError R101 for a damaged one."""
    try:
        data = file.read(_READ)
        while data:
            stream = packing.stream()
            while True:
                yield stream.decompress(data, _PART)
                if stream.eof:
                    break
                data = file.read(_READ) if stream.needs_input else b""
                if not data and stream.needs_input:
                    raise EOFError("its end is missing, so rows are lost")
            data = stream.unused_data.lstrip(b"\0")
            while not data and (more := file.read(_READ)):
                data = more.lstrip(b"\0")
    except _DAMAGED as error:
        help = f"fetch or write the file again; {packing.program} -t {path.name[:60]} tests it"
        raise DataError("R101", f"it cannot be unpacked: {reason(error)}", place=str(path), help=help) from error


def _short_lines(parts: Iterator[bytes], refuse: Callable[[str], NoReturn]) -> Iterator[bytes]:
    """The parts as they are; refuses a text with a line that is too long before it takes room on the disk."""
    lines = size = 0
    for part in parts:
        first = part.find(b"\n")
        size += len(part) if first < 0 else first
        if size > records.LONGEST:
            records.too_long(lines + 1, refuse)
        if first >= 0:
            lines += part.count(b"\n")
            size = len(part) - 1 - part.rfind(b"\n")
        yield part
