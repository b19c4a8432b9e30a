"""The idx format of MNIST, plain or gzip-compressed.

Format (http://yann.lecun.com/exdb/mnist): two zero bytes, the code of the dtype, the number of axes, a big-endian
u32 for the size of each axis, then the elements, big-endian and row-major. A plain file is mapped read-only; a
compressed file is read into memory, and no further than its header declares.
"""

from __future__ import annotations

import gzip
import os
import re
import zlib
from math import prod
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from dslc.base.errors import DataError
from dslc.base.words import reason
from dslc.runtime.artifact.dtypes import MOST_ELEMENTS, elements_of_axes
from dslc.runtime.data.file import Accept, Readable, open_file, read_exactly
from dslc.runtime.data.format import ArrayFormat, register
from dslc.runtime.data.source import Source
from dslc.runtime.session.host_memory import ensure_free

_DTYPES: Final = {0x08: "u1", 0x09: "i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}
_MOST_AXES: Final = 8
_NAME = re.compile(r"(?:.*[-.])?(?:idx|idx[0-9]-ubyte)(?:\.gz)?\Z", re.DOTALL)


def read_idx(source: Source, accept: Accept | None = None) -> NDArray[Any]:
    """The array, read-only. ``accept`` is called with its shape before its values are read.

    Raises DataError R101 for a damaged file, OutOfMemory R401 for one that is too large."""
    with open_file(source.path) as file:
        try:
            if not source.path.name.endswith(".gz"):
                dtype, shape, start = _header(file)
                _compare(prod(shape) * dtype.itemsize, os.fstat(file.fileno()).st_size - start, shape)
                if accept is not None:
                    accept(shape)
                if prod(shape) == 0:
                    return np.empty(shape, dtype)
                return np.memmap(file, dtype, "r", start, shape)
            with gzip.GzipFile(fileobj=file, mode="rb") as unpacked:
                return _packed(unpacked, source, accept)
        except (ValueError, EOFError, OSError, zlib.error) as error:
            raise DataError(
                "R101",
                f"it is damaged, or not an idx file: {reason(error)}",
                place=f"{source.path} ({source.name})",
                help="fetch the file again",
            ) from error


def _packed(file: Readable, source: Source, accept: Accept | None) -> NDArray[Any]:
    dtype, shape, _ = _header(file)
    if accept is not None:
        accept(shape)
    need = prod(shape) * dtype.itemsize
    ensure_free(need, [(source.name, need)])
    data = read_exactly(file, need)
    if file.read(1):
        raise ValueError(f"it has more than the {need} bytes that its shape {list(shape)} needs")
    array: NDArray[Any] = data.view(dtype).reshape(shape)
    array.flags.writeable = False
    return array


def _header(file: Readable) -> tuple[np.dtype[Any], tuple[int, ...], int]:
    """The dtype, the shape and the offset of the first element."""
    start = file.read(4)
    if len(start) < 4 or start[:2] != b"\0\0":
        raise ValueError("it does not start with two zero bytes")
    if start[2] not in _DTYPES:
        raise ValueError(f"there is no dtype with the code {start[2]:#04x}")
    if not 1 <= start[3] <= _MOST_AXES:
        raise ValueError(f"it has {start[3]} axes")
    sizes = file.read(4 * start[3])
    if len(sizes) < 4 * start[3]:
        raise ValueError("it ends inside its header")
    shape = tuple(int.from_bytes(sizes[at : at + 4], "big") for at in range(0, len(sizes), 4))
    if elements_of_axes(shape) > MOST_ELEMENTS:
        raise ValueError(f"the axes of its shape {list(shape)} multiply to more than {MOST_ELEMENTS} elements")
    return np.dtype(_DTYPES[start[2]]), shape, 4 + len(sizes)


def _compare(need: int, there: int, shape: tuple[int, ...]) -> None:
    if need != there:
        raise ValueError(f"its shape {list(shape)} needs {need} bytes, the file has {there}")


class Idx(ArrayFormat):
    """``train-images-idx3-ubyte.gz``, ``x.idx``."""

    usage = "an idx file (`train-images-idx3-ubyte.gz`, `file.idx`)"

    def matches(self, path: str) -> bool:
        return _NAME.match(path.rpartition("/")[2]) is not None

    def read(self, source: Source, accept: Accept | None = None) -> NDArray[Any]:
        return read_idx(source, accept)

    def same_rows(self, shape: tuple[int, ...], wanted: tuple[int, ...]) -> bool:
        """Rows may lack axes of size 1: an idx file of images has no channels."""
        return shape == wanted or [size for size in shape if size != 1] == [size for size in wanted if size != 1]


register(Idx())
