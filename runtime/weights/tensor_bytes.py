"""One file of tensors: opened, its head, and the bytes of chosen tensors."""

from __future__ import annotations

import errno
import hashlib
import os
import stat
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from io import FileIO
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from dslc.base.errors import ArtifactError, WeightsMissing
from dslc.base.opened import Opened
from dslc.base.words import meant_path
from dslc.runtime.artifact.dtypes import numpy_dtype
from dslc.runtime.weights.safetensors_header import Entry, Head, damaged, header_length, parse_head

if TYPE_CHECKING:
    from numpy.typing import NDArray

_PART: Final = 1 << 20  # bytes of a tensor read at once


@dataclass(frozen=True, slots=True)
class FileTensor:
    """A tensor of a file. ``dtype`` is our name, or the format's name for an unsupported dtype; ``raw`` are its
    bytes."""

    dtype: str
    shape: tuple[int, ...]
    raw: NDArray[np.uint8]

    def array(self) -> NDArray[Any]:
        """The tensor as a read-only view of the file's bytes (bf16 as uint16). KeyError for an unsupported dtype."""
        return self.raw.view(numpy_dtype(self.dtype)).reshape(self.shape)

    def __str__(self) -> str:
        return f"{self.dtype}[{', '.join(map(str, self.shape))}]"


def read_tensors(
    file: FileIO, head: Head, names: Collection[str], place: str, *, verify: bool
) -> dict[str, FileTensor]:
    """The named tensors of a file whose head was read. All of them are one block of memory, some are one block each."""
    if len(names) == len(head.entries):
        body = np.empty(sum(entry.bytes for entry in head.entries.values()), dtype=np.uint8)
        file.seek(head.body)
        fill(file, body.data, place)
        return tensors_of(head, body, place, verify=verify)
    found = {}
    for name in sorted(names, key=lambda name: head.entries[name].start):
        entry = head.entries[name]
        raw = np.empty(entry.bytes, dtype=np.uint8)
        file.seek(head.body + entry.start)
        fill(file, raw.data, place)
        found[name] = _tensor(name, head, raw, place, verify=verify)
    return found


def tensors_of(head: Head, body: NDArray[np.uint8], place: str, *, verify: bool) -> dict[str, FileTensor]:
    """The tensors of a body, after a check of boolean values and digests."""
    return {
        name: _tensor(name, head, body[entry.start : entry.end], place, verify=verify)
        for name, entry in head.entries.items()
    }


def _tensor(name: str, head: Head, raw: NDArray[np.uint8], place: str, *, verify: bool) -> FileTensor:
    raw.flags.writeable = False
    entry = head.entries[name]
    _check_truth(name, entry, raw, place)
    if verify and head.digests:
        _check_digest(name, head, hashlib.sha256(raw.data).hexdigest(), place)
    return FileTensor(entry.dtype, entry.shape, raw)


def check_tensors(file: FileIO, head: Head, place: str) -> None:
    """Read all tensors in small parts and check truth values and digests. Raises ArtifactError R306."""
    part = np.empty(_PART, dtype=np.uint8)
    for name, entry in sorted(head.entries.items(), key=lambda item: item[1].start):
        if not head.digests and entry.dtype != "b1":
            continue
        file.seek(head.body + entry.start)
        digest = hashlib.sha256()
        for start in range(0, entry.bytes, _PART):
            found = part[: min(_PART, entry.bytes - start)]
            fill(file, found.data, place)
            _check_truth(name, entry, found, place)
            digest.update(found.data)
        _check_digest(name, head, digest.hexdigest(), place)


def _check_truth(name: str, entry: Entry, raw: NDArray[np.uint8], place: str) -> None:
    if entry.dtype == "b1" and raw.size and int(raw.max()) > 1:
        damaged(place, f"tensor {name[:80]!r} holds a truth value that is neither 0 nor 1")


def _check_digest(name: str, head: Head, have: str, place: str) -> None:
    said = head.digests.get(name)
    if head.digests and said != have:
        damaged(place, f"tensor {name[:80]!r} has SHA-256 {have}, the file says {(said or 'nothing')[:64]}")


@contextmanager
def opened(place: str, *, follow: bool = True, dir_fd: int | None = None) -> Iterator[tuple[FileIO, int]]:
    """A regular file, opened for reading, and its size."""
    # O_NONBLOCK: opening a FIFO must not wait for a writer.
    flags = os.O_RDONLY | os.O_NONBLOCK | (0 if follow else os.O_NOFOLLOW)
    with Opened() as scope, scope as files:
        try:
            handle = files.open(place, flags, dir_fd=dir_fd)
        except FileNotFoundError:
            help = meant_path(place, "check the path")
            raise WeightsMissing("R304", "there is no such file", place=place, help=help) from None
        except (OSError, ValueError) as error:
            if not follow and getattr(error, "errno", None) == errno.ELOOP:
                help = "copy the folder so that it has files instead of links: cp -rL FROM TO"
                raise ArtifactError("R306", "it is a link", place=place, help=help) from error
            raise _unreadable(place, error) from error
        try:
            status = os.fstat(handle)
            if not stat.S_ISREG(status.st_mode):
                raise ArtifactError("R306", "it is not a regular file", place=place, help="give a file's path")
            yield FileIO(handle, closefd=False), status.st_size
        except OSError as error:
            raise _unreadable(place, error) from error


def head_of(file: FileIO, size: int, place: str) -> Head:
    """The head of an opened file of ``size`` bytes. Raises ArtifactError R306."""
    start = bytearray(min(8, size))
    fill(file, memoryview(start), place)
    text = bytearray(header_length(bytes(start), size, place))
    fill(file, memoryview(text), place)
    return parse_head(bytes(text), size - 8 - len(text), place)


def fill(file: FileIO, view: memoryview, place: str) -> None:
    """Fill ``view`` from the file's current position."""
    done = 0
    while done < len(view):
        count = file.readinto(view[done:])
        if not count:
            raise ArtifactError("R306", "it is shorter than when it was opened", place=place, help="read it again")
        done += count


def _unreadable(place: str, error: Exception) -> ArtifactError:
    return ArtifactError("R306", f"it cannot be read: {error}", place=place, help="check the file and its permissions")
