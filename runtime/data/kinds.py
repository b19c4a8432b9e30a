"""Files whose contents are of another kind than their names say: compressed, a web page, a pointer of Git LFS.

``other_kind`` knows them by their first bytes, for tables, arrays, pictures and weights."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from dslc.base.errors import DataError
from dslc.runtime.data.file import open_file

_UNPACK: Final = "unpack it, and name the unpacked file"
_PULL: Final = "fetch it: git lfs pull"
_AGAIN: Final = "download the file again; its address may need a login"
#: Help that gives the same file without what hides it, so it holds for every reader.
UNCOVERS: Final = (_UNPACK, _PULL, _AGAIN)
_CONVERT: Final = "convert its pictures to PNG or JPEG"
_ARRAYS: Final = "write its arrays into an .npz file, by numpy.savez"
#: The first bytes -> what such a file is, and what to do.
_KINDS: Final = (
    (b"\x1f\x8b", "it is compressed by gzip", _UNPACK),
    (b"BZh", "it is compressed by bzip2", _UNPACK),
    (b"\xfd7zXZ\x00", "it is compressed by xz", _UNPACK),
    (b"\x28\xb5\x2f\xfd", "it is compressed by Zstandard", _UNPACK),
    (b"PK\x03\x04", "it is a ZIP file, as those of Excel are", "write its table as CSV or Parquet; unpack an archive"),
    (b"\xd0\xcf\x11\xe0", "it is a file of an old Excel", "write its table as CSV or Parquet"),
    (b"SQLite format 3", "it is a database of SQLite", "write a table of it as CSV or Parquet"),
    (b"PAR1", "it is a Parquet file", "call it .parquet"),
    (b"ARROW1", "it is an Arrow file", "call it .arrow"),
    (b"\x93NUMPY", "it is an array of numpy", "call it .npy"),
    (b"\x89HDF", "it is an HDF5 file", _ARRAYS),
    (b"\xff\xff\xff\xff", "it may be a stream of Arrow", "call it .arrows"),
    (b"%PDF-", "it is a PDF", "write its table as CSV"),
    (b"GGUF", "it is a GGUF file", _ARRAYS),
    *((begin, "it is a GIF", _CONVERT) for begin in (b"GIF87a", b"GIF89a")),
    *((begin, "it is a TIFF", _CONVERT) for begin in (b"II*\0", b"MM\0*")),
    # The first box of ISO 14496-12, whose length comes first.
    *((bytes([0, 0, 0, n]) + b"ftyp", "it is HEIC or AVIF, or a film", _CONVERT) for n in range(0x10, 0x50, 4)),
    *((b"\x80" + bytes([protocol]), "it is a pickle of Python", _ARRAYS) for protocol in range(2, 6)),
    (b"version https://git-lfs.github.com/", "it is a pointer of Git LFS, not the data", _PULL),
    (b"<!doctype html", "it is a web page, not data", _AGAIN),
    (b"<html", "it is a web page, not data", _AGAIN),
)
_ENOUGH: Final = 8  # bytes of a longer beginning that tell the kind
LONGEST: Final = max(len(begin) for begin, _, _ in _KINDS)


def other_kind(start: bytes) -> tuple[str, str] | None:
    """What a file is that begins with ``start``, at least 8 bytes of it, and what to do; None if that is not known."""
    for begin, what, help in _KINDS:
        first = start[: len(begin)]
        if len(first) >= min(len(begin), _ENOUGH) and begin.startswith(first.lower() if begin[:1] == b"<" else first):
            return what, help
    return None


def refuse_other_kind(path: Path, place: str, *own: bytes) -> None:
    """Raise DataError R101 if a file begins as one of another kind. ``own``: beginnings that the caller reads."""
    with open_file(path) as file:
        start = file.read(LONGEST)
    found = None if own and start.startswith(own) else other_kind(start)
    if found is not None:
        raise DataError("R101", found[0], place=place, help=found[1])
