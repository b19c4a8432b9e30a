"""Reads one array from an ``.npy`` or ``.npz`` file, checked before any of its values are read.

The header's shape and dtype (numpy's format, https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html)
are first compared with the size of the file and with the free memory, so neither a header that declares terabytes nor a
compressed bomb gets further. Object arrays are rejected; nothing here can reach pickle.
An ``.npy`` is mapped read-only (do not rewrite it in place during a run); an ``.npz`` member is loaded.
"""

from __future__ import annotations

import io
import lzma
import os
import re
import zipfile
import zlib
from dataclasses import dataclass
from math import prod
from typing import IO, Any, Final, Literal, NoReturn, cast

import numpy as np
from numpy.typing import NDArray

from dslc.base.errors import DataError
from dslc.base.words import reason
from dslc.runtime.artifact.dtypes import MOST_ELEMENTS, elements_of_axes
from dslc.runtime.data.file import Accept, open_file, read_exactly
from dslc.runtime.data.format import ArrayFormat, has_suffix, register
from dslc.runtime.data.kinds import refuse_other_kind
from dslc.runtime.data.source import Source
from dslc.runtime.nearest import nearest
from dslc.runtime.session.host_memory import ensure_free

_MAX_MEMBERS: Final = 10_000
_MAX_DIRECTORY: Final = 2 << 20  # bytes of an .npz file's directory; zipfile creates one object per 46 bytes
_MAX_HEADER: Final = 10_000  # bytes
_MAGIC: Final = b"\x93NUMPY"
_ITEM = re.compile(
    r"'(?:(descr)': *'([^']*)'|(fortran_order)': *(True|False)"
    r"|(shape)': *\(((?:[0-9]{1,19}(?:, *|(?=\)))){0,32})\))(?:, *|\Z)"
)
_NUMERIC: Final = "save it as integers, bool, float32 or float64"
#: Kinds of values that are no numbers -> what to save instead.
_HELD: Final = {
    "US": "number them: values, numbers = numpy.unique(x, return_inverse=True), and save numbers",
    "Mm": 'save numbers, such as days: x.astype("M8[D]").astype("i4")',
    "c": "save real and imaginary parts: numpy.stack([x.real, x.imag], 1)",
    "O": "save arrays of one shape: numpy.stack(list(x)), or x.astype(numpy.float32)",
}
_RECORDS = re.compile(r"\A\{'descr': *\[")
_NUMBERS = re.compile(r"[<>|=]?(?:b1|[iu][1248]|f[248])\Z")


@dataclass(frozen=True)
class _Header:
    shape: tuple[int, ...]
    fortran: bool
    dtype: np.dtype[Any]
    length: int  # of the header, in bytes

    @property
    def bytes(self) -> int:
        return prod(self.shape) * self.dtype.itemsize


def read_array(source: Source, accept: Accept | None = None) -> NDArray[Any]:
    """The array, read-only, in the dtype and byte order of the file.

    ``accept`` is called with the array's shape before its values are read, and raises to reject it.
    Raises DataError R101 if the file is missing, damaged or not an array file, R102 for a non-numeric dtype,
    OutOfMemory R401 if an .npz member is larger than the free memory.
    """
    with open_file(source.path) as file:
        try:
            return _from_npy(file, source, accept) if source.key is None else _from_npz(file, source, accept)
        except (
            zipfile.BadZipFile,
            zlib.error,
            lzma.LZMAError,
            ValueError,
            EOFError,
            OSError,
            NotImplementedError,
            RuntimeError,
        ) as error:
            # raised by zipfile and numpy for damaged or encrypted files
            _damaged(source, reason(error))


def array_of_bytes(data: bytes, source: Source, accept: Accept) -> NDArray[Any]:
    """The array of an ``.npy`` file in memory, as ``read_array`` gives it."""
    file = io.BytesIO(data)
    header = _header(file, len(data), source)
    accept(header.shape)
    order: Literal["F", "C"] = "F" if header.fortran else "C"
    return np.ndarray(header.shape, header.dtype, data, header.length, order=order)


class _Bounded:
    """A file that allows no single read longer than the largest directory: zipfile reads a directory in one read."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self.seek, self.tell, self.seekable = file.seek, file.tell, file.seekable

    def read(self, count: int = -1, /) -> bytes:
        data = self._file.read(_MAX_DIRECTORY + 1 if count < 0 else min(count, _MAX_DIRECTORY + 1))
        if len(data) > _MAX_DIRECTORY:
            raise ValueError(f"its directory is longer than {_MAX_DIRECTORY} bytes")
        return data


def _from_npy(file: IO[bytes], source: Source, accept: Accept | None) -> NDArray[Any]:
    size = os.fstat(file.fileno()).st_size
    header = _header(file, size, source)
    if accept is not None:
        accept(header.shape)
    if header.bytes == 0:
        return np.empty(header.shape, header.dtype)  # mmap rejects an empty range
    order = "F" if header.fortran else "C"
    return np.memmap(file, header.dtype, "r", header.length, header.shape, order)  # type: ignore[call-overload,no-any-return]


def _from_npz(file: IO[bytes], source: Source, accept: Accept | None) -> NDArray[Any]:
    key = source.key
    assert key is not None
    with zipfile.ZipFile(cast("IO[bytes]", _Bounded(file))) as members:
        infos = members.infolist()
        if len(infos) > _MAX_MEMBERS:
            _damaged(source, f"it has {len(infos)} members, more than {_MAX_MEMBERS}")
        found = [info for info in infos if info.filename == key + ".npy"]
        if len(found) > 1:
            _damaged(source, f"it has {len(found)} arrays `{key[:60]}`")
        if not found:
            names = sorted(info.filename.removesuffix(".npy") for info in infos)
            close = nearest(key, names)
            help = f"did you mean `{close}`?" if close else f"it holds {', '.join(names[:8])[:200] or 'nothing'}"
            raise DataError("R101", f"there is no array `{key[:60]}` in it", place=str(source.path), help=help)
        with members.open(found[0]) as member:
            header = _header(member, found[0].file_size, source)
            if accept is not None:
                accept(header.shape)
            ensure_free(header.bytes, [(source.name, header.bytes)])
            data = read_exactly(member, header.bytes)
            # zipfile has compared the CRC, because the last byte of the member was read.
    array: NDArray[Any] = np.ndarray(header.shape, header.dtype, data, order="F" if header.fortran else "C")
    array.flags.writeable = False
    return array


def _header(file: IO[bytes], size: int, source: Source) -> _Header:
    """The header of a file or member of ``size`` bytes in total; rejects inconsistent sizes."""
    start = file.read(8)
    if not size:
        _damaged(source, "the file is empty")
    if len(start) < 8 or start[:6] != _MAGIC or start[6:] not in (b"\x01\x00", b"\x02\x00"):
        refuse_other_kind(source.path, str(source.path), _MAGIC, b"PK\x03\x04")
        _damaged(source, "it does not start as format 1.0 or 2.0")
    width = 2 if start[6] == 1 else 4
    count = file.read(width)
    length = int.from_bytes(count, "little")
    if len(count) < width or length > _MAX_HEADER:
        _damaged(source, f"its header would be {length} bytes long")
    found = _items(file.read(length).decode("latin-1"), source)
    shape = tuple(int(part) for part in found["shape"].split(",") if part.strip())
    if not _NUMBERS.match(found["descr"]):
        kind = found["descr"].lstrip("<>=|")[:1] or "no kind"
        raise DataError(
            "R102",
            f"its values are {found['descr'][:40]!a}, which no tensor can hold",
            place=_place(source),
            help=next((help for kinds, help in _HELD.items() if kind in kinds), _NUMERIC),
        )
    dtype = np.dtype(found["descr"])
    fortran = found["fortran_order"] == "True"
    header = _Header(shape, fortran, dtype, 8 + width + length)
    there = size - header.length
    if elements_of_axes(shape) > MOST_ELEMENTS:
        _damaged(source, f"the product of the axes of its shape {shape} is more than {MOST_ELEMENTS} elements")
    if header.bytes != there:
        _damaged(source, f"its shape {shape} of {dtype} needs {header.bytes} bytes, the file has {there}")
    return header


def _items(text: str, source: Source) -> dict[str, str]:
    """The three items of a header such as ``{'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }``."""
    body, found, at = text.strip(), dict[str, str](), 0
    whole = body[:1] == "{" and body[-1:] == "}"
    body = body[1:-1].strip()
    while whole and at < len(body):
        item = _ITEM.match(body, at)
        if item is None:
            break
        key, value = (part for part in item.groups() if part is not None)
        found[key] = value
        at = item.end()
    if _RECORDS.search(text):
        help = "save each field as an array of its own: numpy.savez(PATH, **{name: x[name] for name in x.dtype.names})"
        raise DataError("R102", "its values are records of several fields", place=_place(source), help=help)
    if not whole or at < len(body) or len(found) != 3:
        _damaged(source, "its header does not describe a plain array")
    return found


def _place(source: Source) -> str:
    return f"{source.path} ({source.name})"


def _damaged(source: Source, why: str) -> NoReturn:
    raise DataError(
        "R101",
        f"it is damaged, or not an array file: {why}",
        place=_place(source),
        help="write it again with numpy.savez or numpy.save",
    )


class Npy(ArrayFormat):
    """``images.npy``: one array."""

    usage = "`file.npy`"

    def matches(self, path: str) -> bool:
        return has_suffix(path, ".npy")

    def read(self, source: Source, accept: Accept | None = None) -> NDArray[Any]:
        return read_array(source, accept)


class Npz(ArrayFormat):
    """``digits.npz:train_x``: an array of an archive, by its name."""

    usage = "`file.npz:key`"
    keyed = True

    def matches(self, path: str) -> bool:
        return has_suffix(path, ".npz")

    def read(self, source: Source, accept: Accept | None = None) -> NDArray[Any]:
        return read_array(source, accept)


register(Npy())
register(Npz())
