"""Finds files that are no pictures by their size, their first and their last bytes, before a decoder meets them.

Whatever is refused here is refused by the decoder, too, in the same words. A file that lacks its end is doubtful: some
decode all the same. A file that passes may still be damaged inside.
"""

from __future__ import annotations

import hashlib
import os
import stat
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

from dslc.base.errors import ResourceError
from dslc.base.opened import Opened
from dslc.base.words import reason
from dslc.runtime.data.pictures import EMPTY, LARGEST_FILE, MOST_PIXELS, no_picture
from dslc.runtime.data.store import Store

HEAD: Final = 32  # bytes
_TAIL: Final = 12  # bytes
_PNG: Final = b"\x89PNG\r\n\x1a\n"
_JPEG: Final = b"\xff\xd8\xff"
_FEW: Final = 2_000  # files that are checked in a moment: nothing is stored about them
_AT_ONCE: Final = 256  # files that a thread takes
_THREADS: Final = 16  # they wait for the disk or the network
_EVERY: Final = 5.0  # seconds between two lines of progress


def fault(head: bytes, size: int) -> str | None:
    """Why a file of ``size`` bytes that begins with ``head`` is refused; None if a decoder must look at it."""
    if not size:
        return EMPTY
    if size > LARGEST_FILE:
        return f"it has {size} bytes, more than {LARGEST_FILE}"
    if head.startswith(_PNG):
        width, height = int.from_bytes(head[16:20], "big"), int.from_bytes(head[20:24], "big")
        known = head[12:16] == b"IHDR" and len(head) == HEAD
        return f"{width} x {height} pixels, more than {MOST_PIXELS}" if known and width * height > MOST_PIXELS else None
    if head.startswith((_JPEG, b"BM")) or (head[:4] == b"RIFF" and head[8:12] == b"WEBP"):
        return None
    return no_picture(head)


def ends(head: bytes, tail: bytes, size: int) -> bool:
    """Whether a picture that begins with ``head`` ends with ``tail`` as its format says: a file of which the rest is
    missing does not."""
    if head.startswith(_PNG):
        return tail.endswith(b"IEND\xaeB`\x82")
    if head.startswith(_JPEG):
        return tail.rstrip(b"\0").endswith(b"\xff\xd9")
    declared = (
        int.from_bytes(head[2:6], "little") if head.startswith(b"BM") else int.from_bytes(head[4:8], "little") + 8
    )
    return declared <= size


def faults(files: Sequence[Path], notice: Callable[[str], None], what: str) -> dict[int, str | None]:
    """Why the file at an index is no picture, None for a doubtful one. ``notice`` gets a line every few seconds about
    ``what`` is checked. That many files have no fault is stored in the cache, by their sizes and times."""
    if len(files) < _FEW:
        return _part(files)
    store, name = Store.open(), f"pictures-{_state(files)}.bin"
    if store.folder is not None and store.find(name) is not None:
        return {}
    found: dict[int, str | None] = {}
    begun = told = time.monotonic()
    with ThreadPoolExecutor(_THREADS, "dslc-pictures") as pool:
        for start, part in zip(range(0, len(files), _AT_ONCE), pool.map(_part, _parts(files))):
            found |= {start + at: why for at, why in part.items()}
            if time.monotonic() - told > _EVERY:
                told = time.monotonic()
                notice(f"{what}: looked at {start:,} of {len(files):,} pictures in {told - begun:.0f} s")
    if not found and store.folder is not None:
        try:
            store.make(name, lambda sink: sink.write(f"{len(files)} pictures\n".encode()))
        except ResourceError as error:
            notice(f"warning: {what}: {error.message}: the next run looks at every picture again")
    return found


def _parts(files: Sequence[Path]) -> Iterator[Sequence[Path]]:
    for start in range(0, len(files), _AT_ONCE):
        yield files[start : start + _AT_ONCE]


def _part(files: Sequence[Path]) -> dict[int, str | None]:
    looked = ((at, *_look_at(path)) for at, path in enumerate(files))
    return {at: why for at, why, whole in looked if why is not None or not whole}


def _look_at(path: Path) -> tuple[str | None, bool]:
    """Why the file is no picture, and whether it has its end."""
    try:
        with Opened() as scope, scope as opened:
            handle = opened.open(path, os.O_RDONLY | os.O_NONBLOCK)
            status = os.fstat(handle)
            if not stat.S_ISREG(status.st_mode):
                return "this is not a regular file", True
            head, size = os.pread(handle, HEAD, 0), status.st_size
            return fault(head, size), ends(head, os.pread(handle, _TAIL, max(0, size - _TAIL)), size)
    except OSError as error:
        return reason(error), True


def _state(files: Sequence[Path]) -> str:
    """A digest of the names, sizes and times of files, those that cannot be looked at included."""
    digest = hashlib.sha256(f"{HEAD} {LARGEST_FILE} {MOST_PIXELS}".encode())
    for path in files:
        try:
            status = os.stat(path)
            facts = f"{status.st_size} {status.st_mtime_ns} {status.st_ctime_ns} {status.st_ino}"
        except OSError as error:
            facts = reason(error)
        digest.update(f"\0{path}\0{facts}".encode(errors="surrogateescape"))
    return digest.hexdigest()
