"""Files of named tensors in the safetensors format, with a SHA-256 of each tensor in the metadata.

Format (https://huggingface.co/docs/safetensors): u64 header length, a JSON header ``{name: {dtype, shape,
data_offsets}, "__metadata__": {text: text}}``, then the tensors' little-endian row-major bytes without gaps. The
digest of tensor NAME has the key ``sha256:NAME``. Equal tensors and metadata give equal bytes here; the public
library orders its metadata randomly, but reads these files unchanged.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from io import FileIO
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from dslc.base.errors import ArtifactError, WeightsMissing
from dslc.base.opened import Opened
from dslc.runtime.artifact.dtypes import name_of, numpy_dtype
from dslc.runtime.session.host_memory import ensure_free
from dslc.runtime.weights.safetensors_header import (
    DIGEST,
    FILE_NAME,
    METADATA,
    Entry,
    Head,
    damaged,
    header_length,
    parse_head,
)

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


@dataclass(frozen=True, slots=True)
class TensorFile:
    """A complete file. ``verified``: it has digests, and every tensor matches its digest."""

    tensors: Mapping[str, FileTensor]
    metadata: Mapping[str, str]
    verified: bool


def encode(
    tensors: Mapping[str, NDArray[Any]],
    metadata: Mapping[str, str] | None = None,
    dtypes: Mapping[str, str] | None = None,
) -> bytes:
    """The bytes of a file. ``dtypes`` gives the dtype of tensors whose numpy dtype does not determine it (bf16)."""
    named = {n: (dtypes or {}).get(n) or name_of(a.dtype) for n, a in tensors.items()}
    texts = dict(metadata or {})
    header: dict[str, Any] = {METADATA: texts}
    parts: list[bytes] = []
    end = 0
    # The widest dtype first, so that every tensor starts at a multiple of its item size.
    for name in sorted(tensors, key=lambda n: (-tensors[n].dtype.itemsize, n)):
        dtype = named[name]
        if dtype is None:
            raise TypeError(f"{name}: {tensors[name].dtype} cannot be stored in a tensor file")
        raw = np.ascontiguousarray(tensors[name]).tobytes()
        parts.append(raw)
        texts[DIGEST + name] = hashlib.sha256(raw).hexdigest()
        header[name] = {
            "dtype": FILE_NAME[dtype],
            "shape": list(tensors[name].shape),
            "data_offsets": [end, end + len(raw)],
        }
        end += len(raw)
    text = json.dumps(header, sort_keys=True, separators=(",", ":"), ensure_ascii=True).encode("ascii")
    text += b" " * (-len(text) % 8)
    return b"".join([len(text).to_bytes(8, "little"), text, *parts])


def read(
    path: str | os.PathLike[str],
    *,
    verify: bool = True,
    follow: bool = True,
    dir_fd: int | None = None,
    accept: Callable[[Head], object] | None = None,
) -> TensorFile:
    """Read and check a complete file; the tensors are views of one block of memory.

    ``follow=False`` rejects a symbolic link; ``dir_fd`` makes ``path`` relative to an open folder. ``accept`` is called
    with the head before memory is allocated for the tensors' bytes, and raises to reject them. Raises WeightsMissing
    R304 if the file is missing, ArtifactError R306 if it is unreadable or damaged (naming the rule and
    the tensor), OutOfMemory R401 if it is larger than the free memory.
    """
    place = os.fspath(path)
    with _opened(place, follow, dir_fd) as (file, size):
        head = _head(file, size, place)
        if accept is not None:
            accept(head)
        need = size - head.body
        ensure_free(need, [(os.path.basename(place), need)])
        body = np.empty(need, dtype=np.uint8)
        _fill(file, body.data, place)
    return _checked(head, body, place, verify)


def read_head(path: str | os.PathLike[str]) -> tuple[Head, bool]:
    """The head of a file, and whether it has digests that all tensors match; raises the errors of ``read``.

    The tensors are read in small parts, so the memory use does not depend on the file's size.
    """
    place = os.fspath(path)
    with _opened(place, True, None) as (file, size):
        head = _head(file, size, place)
        part = np.empty(_PART, dtype=np.uint8)
        for name, entry in sorted(head.entries.items(), key=lambda item: item[1].start):
            if not head.digests and entry.dtype != "b1":
                continue
            file.seek(head.body + entry.start)
            digest = hashlib.sha256()
            for start in range(0, entry.bytes, _PART):
                found = part[: min(_PART, entry.bytes - start)]
                _fill(file, found.data, place)
                _check_truth(name, entry, found, place)
                digest.update(found.data)
            _check_digest(name, head, digest.hexdigest(), place)
    return head, bool(head.digests)


def read_metadata(path: str | os.PathLike[str]) -> Mapping[str, str]:
    """The texts of a file, without its tensors and digests; raises the errors of ``read``."""
    place = os.fspath(path)
    with _opened(place, True, None) as (file, size):
        return _head(file, size, place).metadata


def decode(data: NDArray[np.uint8], place: str, *, verify: bool = True) -> TensorFile:
    """The file whose bytes are ``data``, u8[n]; ``place`` names it in errors (ArtifactError R306)."""
    length = header_length(data[:8].tobytes(), data.size, place)
    head = parse_head(data[8 : 8 + length].tobytes(), data.size - 8 - length, place)
    return _checked(head, data[head.body :], place, verify)


def _checked(head: Head, body: NDArray[np.uint8], place: str, verify: bool) -> TensorFile:
    """The tensors of a body, after a check of boolean values and digests."""
    body.flags.writeable = False
    tensors = {}
    for name, entry in head.entries.items():
        tensors[name] = FileTensor(entry.dtype, entry.shape, body[entry.start : entry.end])
        _check_truth(name, entry, tensors[name].raw, place)
    if verify:
        for name, tensor in tensors.items() if head.digests else ():
            _check_digest(name, head, hashlib.sha256(tensor.raw.data).hexdigest(), place)
    return TensorFile(tensors, head.metadata, bool(head.digests) and verify)


def _check_truth(name: str, entry: Entry, raw: NDArray[np.uint8], place: str) -> None:
    if entry.dtype == "b1" and raw.size and int(raw.max()) > 1:
        damaged(place, f"tensor {name[:80]!r} holds a truth value that is neither 0 nor 1")


def _check_digest(name: str, head: Head, have: str, place: str) -> None:
    said = head.digests.get(name)
    if head.digests and said != have:
        damaged(place, f"tensor {name[:80]!r} has SHA-256 {have}, the file says {(said or 'nothing')[:64]}")


@contextmanager
def _opened(place: str, follow: bool, dir_fd: int | None) -> Iterator[tuple[FileIO, int]]:
    """A regular file, opened for reading, and its size."""
    # O_NONBLOCK: opening a FIFO must not wait for a writer.
    flags = os.O_RDONLY | os.O_NONBLOCK | (0 if follow else os.O_NOFOLLOW)
    with Opened() as scope, scope as files:
        try:
            handle = files.open(place, flags, dir_fd=dir_fd)
        except FileNotFoundError:
            raise WeightsMissing("R304", "there is no such file", place=place, help="check the path") from None
        except (OSError, ValueError) as error:
            raise _unreadable(place, error) from error
        try:
            status = os.fstat(handle)
            if not stat.S_ISREG(status.st_mode):
                raise ArtifactError("R306", "it is not a regular file", place=place, help="give a file's path")
            yield FileIO(handle, closefd=False), status.st_size
        except OSError as error:
            raise _unreadable(place, error) from error


def _head(file: FileIO, size: int, place: str) -> Head:
    start = bytearray(min(8, size))
    _fill(file, memoryview(start), place)
    text = bytearray(header_length(bytes(start), size, place))
    _fill(file, memoryview(text), place)
    return parse_head(bytes(text), size - 8 - len(text), place)


def _fill(file: FileIO, view: memoryview, place: str) -> None:
    """Fill ``view`` from the file's current position."""
    done = 0
    while done < len(view):
        count = file.readinto(view[done:])
        if not count:
            raise ArtifactError("R306", "it is shorter than when it was opened", place=place, help="read it again")
        done += count


def _unreadable(place: str, error: Exception) -> ArtifactError:
    return ArtifactError("R306", f"it cannot be read: {error}", place=place, help="check the file and its permissions")
