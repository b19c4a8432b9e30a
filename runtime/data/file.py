"""Opens a data file, and reads bytes of it in parts."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Final, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dslc.base.errors import DataError
from dslc.base.opened import Opened
from dslc.base.words import meant_path

_PART: Final = 1 << 20  # bytes per read

#: Called with an array's shape before its values are read; raises to reject it.
Accept: TypeAlias = Callable[[tuple[int, ...]], object]


class Readable(Protocol):
    """A stream of bytes."""

    def read(self, count: int, /) -> bytes: ...


@contextmanager
def open_file(path: Path) -> Iterator[IO[bytes]]:
    """A regular file, opened for reading, without waiting for a FIFO's writer. DataError R101 for anything else."""
    help = "check the path; those in dslc.yaml are relative to its folder"
    with Opened() as scope, scope as files:
        try:
            handle = files.open(path, os.O_RDONLY | os.O_NONBLOCK)
        except (OSError, ValueError) as error:
            cause = "there is no such file" if isinstance(error, FileNotFoundError) else f"it cannot be read: {error}"
            help = meant_path(path, help) if isinstance(error, FileNotFoundError) else help
            raise DataError("R101", cause, place=str(path), help=help) from error
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            folder = stat.S_ISDIR(os.fstat(handle).st_mode)
            help = f"name the files in it: `{path.name}/*{path.suffix}`" if folder else help
            cause = "this is a folder, not a file" if folder else "this is not a regular file"
            raise DataError("R101", cause, place=str(path), help=help)
        with open(handle, "rb", closefd=False) as file:
            yield file


def read_exactly(file: Readable, count: int) -> NDArray[np.uint8]:
    """``count`` bytes as u8[count], read in parts. EOFError if the file ends sooner."""
    data = np.empty(count, dtype=np.uint8)
    view, done = data.data, 0
    while done < count:
        part = file.read(min(_PART, count - done))
        if not part:
            raise EOFError(f"it ended after {done} of {count} bytes")
        view[done : done + len(part)] = part
        done += len(part)
    return data
