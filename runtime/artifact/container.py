"""The container of an artifact: preamble, header, blobs, end marker. ``docs/artifact.md`` states every byte.

The reader trusts nothing: every size is compared with the file's size, as Python ints, before memory is allocated for
it. The header is verified before it is parsed; each blob is verified in the buffer that is returned.
"""

from __future__ import annotations

import errno
import hashlib
import os
import stat
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NoReturn

from dslc.base import canonical
from dslc.base.errors import ArtifactError
from dslc.base.opened import Opened

MAGIC: Final = b"\x89DSLC\r\n\x1a"  # a high bit, a line end and a ctrl-Z reveal a transfer in text mode
CONTAINER_VERSION: Final = 1
PREAMBLE: Final = struct.Struct("<8sIQ32s12x")  # magic, version, header length, SHA-256 of the header, zeros
END: Final = b"DSLC-END"
ALIGNMENT: Final = 64
MAX_HEADER: Final = 16 << 20
MAX_FILE: Final = 256 << 20
_REBUILD: Final = "build it again, or copy it again from its origin"


@dataclass(frozen=True, slots=True)
class Blob:
    """A named piece of an artifact."""

    name: str
    kind: str
    data: bytes | memoryview


@dataclass(frozen=True, slots=True)
class Container:
    """The contents of a file: the header, its digest (the artifact's id), the offset of the first blob, and the
    blobs."""

    header: dict[str, Any]
    id: str
    blob_start: int
    blobs: Mapping[str, Blob]


def aligned(offset: int) -> int:
    """The next multiple of 64."""
    return -(-offset // ALIGNMENT) * ALIGNMENT


def pack(header: Mapping[str, Any], blobs: Sequence[Blob]) -> bytes:
    """The bytes of a container; ``header["blobs"]`` is written here. The same input gives the same bytes.

    Raises ArtifactError R301 for a header that canonical JSON cannot hold or that is too large.
    """
    table, offset = [], 0
    for blob in blobs:
        table.append(
            {
                "name": blob.name,
                "kind": blob.kind,
                "offset": offset,
                "bytes": len(blob.data),
                "sha256": hashlib.sha256(blob.data).hexdigest(),
            }
        )
        offset = aligned(offset + len(blob.data))
    try:
        text = canonical.dumps({**header, "blobs": table})
    except (ValueError, TypeError) as error:
        raise ArtifactError("R301", f"this header cannot be written: {error}", place="header") from error
    if len(text) > MAX_HEADER:
        raise ArtifactError("R301", f"a header of {len(text)} bytes, at most {MAX_HEADER}", place="header")
    out = bytearray(PREAMBLE.pack(MAGIC, CONTAINER_VERSION, len(text), hashlib.sha256(text).digest()))
    for piece in (text, *(blob.data for blob in blobs)):
        out += piece
        out += bytes(aligned(len(out)) - len(out))
    out += END
    if len(out) > MAX_FILE:
        raise ArtifactError("R301", f"an artifact of {len(out)} bytes, at most {MAX_FILE}", place="artifact")
    return bytes(out)


def unpack(data: bytes, check_header: Callable[[dict[str, Any]], None], *, place: str = "artifact") -> Container:
    """Like ``read``, from bytes in memory."""
    view = memoryview(data)
    return _Reader(lambda start, count: view[start : start + count], len(view), place).run(check_header)


def read(path: str | os.PathLike[str], check_header: Callable[[dict[str, Any]], None]) -> Container:
    """Read a container from a regular file, never through a link.

    ``check_header`` is called with the header before its fields are used; it must raise unless ``blobs`` is a list of
    {name, kind, offset, bytes, sha256}. Raises ArtifactError R301 with the offset and the rule, R302 for another
    version of the container, and R311 if the file cannot be read.
    """
    with _opened(Path(path)) as (fd, size):
        return _Reader(lambda start, count: _pread(fd, start, count), size, str(path)).run(check_header)


class _Reader:
    def __init__(self, take: Callable[[int, int], memoryview], size: int, place: str) -> None:
        self._take, self.size, self.place = take, size, place

    def refuse(self, offset: int, rule: str, help: str = _REBUILD) -> NoReturn:
        raise ArtifactError("R301", rule, place=f"{self.place}:{offset}", help=help)

    def take(self, start: int, count: int) -> memoryview:
        got = self._take(start, count)
        if len(got) != count:
            self.refuse(start + len(got), "the file ends here; it was longer when it was opened")
        return got

    def zeros(self, start: int, end: int) -> None:
        found = bytes(self.take(start, end - start))
        if found.strip(b"\0"):
            self.refuse(end - len(found.lstrip(b"\0")), "padding is zero")

    def run(self, check_header: Callable[[dict[str, Any]], None]) -> Container:
        size = self.size
        if size > MAX_FILE:
            self.refuse(MAX_FILE, f"a file of {size} bytes, at most {MAX_FILE}")
        if size < PREAMBLE.size + len(END):
            self.refuse(size, f"the file ends within the preamble of {PREAMBLE.size} bytes")
        magic, version, length, digest = PREAMBLE.unpack(self.take(0, PREAMBLE.size))
        if magic != MAGIC:
            build = f"this is a model's source: `dslc build {self.place}` makes the artifact"
            help = build if self.place.endswith(".nn") else _REBUILD
            self.refuse(0, "this is not a dslc artifact: its magic number differs", help)
        if version != CONTAINER_VERSION:
            raise ArtifactError(
                "R302",
                f"the container has version {version}, this dslc reads version {CONTAINER_VERSION}",
                place=f"{self.place}:8",
                help="build it again with this dslc, or load it with the one that built it",
            )
        self.zeros(PREAMBLE.size - 12, PREAMBLE.size)
        if length > MAX_HEADER:
            self.refuse(12, f"a header of {length} bytes, at most {MAX_HEADER}")
        start = aligned(PREAMBLE.size + length)
        if start + len(END) > size:
            self.refuse(12, f"a header of {length} bytes in a file of {size}")
        text = self.take(PREAMBLE.size, length)
        if hashlib.sha256(text).digest() != digest:
            self.refuse(20, f"the header's SHA-256 is {hashlib.sha256(text).hexdigest()}, not {digest.hex()}")
        self.zeros(PREAMBLE.size + length, start)
        header = canonical.loads(text, place=self.place, offset=PREAMBLE.size)
        if not isinstance(header, dict):
            self.refuse(PREAMBLE.size, "the header is an object")
        check_header(header)
        table: list[dict[str, Any]] = header["blobs"]
        end = self.layout(start, table)
        blobs: dict[str, Blob] = {}
        for entry in table:
            at = start + entry["offset"]
            found = self.take(at, entry["bytes"]).toreadonly()
            sha = hashlib.sha256(found).hexdigest()
            if sha != entry["sha256"]:
                self.refuse(at, f"the SHA-256 of blob {entry['name']!r} is {sha}, not {entry['sha256']}")
            self.zeros(at + entry["bytes"], aligned(at + entry["bytes"]))
            blobs[entry["name"]] = Blob(entry["name"], entry["kind"], found)
        if bytes(self.take(end, len(END))) != END:
            self.refuse(end, "the end marker is missing")
        return Container(header, f"sha256:{digest.hex()}", start, blobs)

    def layout(self, start: int, table: list[dict[str, Any]]) -> int:
        """Check that the blobs follow each other and fill the file; returns the end marker's offset."""
        at, names = 0, set()
        for index, entry in enumerate(table):
            if entry["name"] in names:
                self.refuse(PREAMBLE.size, f"blobs[{index}]: {entry['name']!r} occurs twice")
            names.add(entry["name"])
            if entry["offset"] != at:
                self.refuse(PREAMBLE.size, f"blobs[{index}] lies at {entry['offset']}, the next free offset is {at}")
            at = aligned(at + entry["bytes"])
            if start + at + len(END) > self.size:
                self.refuse(PREAMBLE.size, f"blobs[{index}] of {entry['bytes']} bytes in a file of {self.size}")
        if start + at + len(END) != self.size:
            self.refuse(start + at + len(END), "bytes after the end")
        return start + at


@contextmanager
def _opened(path: Path) -> Iterator[tuple[int, int]]:
    """The open file, opened relative to its folder without following a link, and its size."""
    with Opened() as scope, scope as files:
        try:
            folder = files.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
            fd = files.open(path.name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=folder)
            files.close(folder)
            found = os.fstat(fd)
            if not stat.S_ISREG(found.st_mode):
                raise ArtifactError("R301", "not a regular file", place=str(path), help="give the .dslc file")
            yield fd, found.st_size
        except OSError as error:
            raise _unreadable(path, error) from error


def _unreadable(path: Path, error: OSError) -> ArtifactError:
    if error.errno == errno.ELOOP:
        return ArtifactError("R301", "a symbolic link", place=str(path), help="give the file that it points to")
    what = (error.strerror or str(error)).lower()
    return ArtifactError("R311", f"cannot be read: {what}", place=str(path), help="check the path and its permissions")


def _pread(fd: int, start: int, count: int) -> memoryview:
    """``count`` bytes from ``start``; fewer only at the end of the file."""
    buffer = bytearray(count)
    view, got = memoryview(buffer), 0
    while got < count:
        more = os.preadv(fd, [view[got:]], start + got)
        if more == 0:
            break
        got += more
    return view[:got]
