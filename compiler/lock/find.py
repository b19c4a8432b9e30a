"""Reads and writes lock files, and finds that of a project: ``dslc.lock`` in its folder."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from dslc.base.cache import Cache
from dslc.base.errors import BuildError
from dslc.base.opened import Opened
from dslc.base.publish import publish_bytes
from dslc.compiler.lock.model import Block, Lock
from dslc.compiler.lock.text import MAX_BYTES, format_lock, parse_lock

#: The name of a lock in the folder of ``dslc.yaml``, or of the model's file if there is none.
FILE: Final = "dslc.lock"
_PATIENCE: Final = 60.0  # seconds for another process that writes it


def find_lock(folder: Path) -> Path | None:
    """The lock of a project; None if it has none."""
    path = folder / FILE
    return path if os.path.lexists(path) else None


def read_lock(path: Path) -> Lock:
    """The lock in a file. Raises BuildError E0607 if it cannot be read or is no lock."""
    with Opened() as scope, scope as files:
        try:
            # O_NONBLOCK: opening a FIFO must not wait for a writer.
            handle = files.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY)
            regular = stat.S_ISREG(os.fstat(handle).st_mode)
            data = b"" if not regular else _bytes(handle)
        except (OSError, ValueError) as error:
            cause = error.strerror if isinstance(error, OSError) else str(error)
            raise _unreadable(path, cause or "it cannot be opened") from None
    if not regular:
        raise _unreadable(path, "it is not a regular file")
    return parse_lock(data, str(path))


def write_lock(path: Path, lock: Lock) -> None:
    """Replace a lock's file, durably. Raises ResourceError R402."""
    publish_bytes(path, format_lock(lock).encode())


def merge_into(path: Path, blocks: Iterable[Block], cache: Cache) -> tuple[Lock, Lock]:
    """Add blocks to a lock's file, which other processes may have changed since it was read, e.g. for another model of
    its folder. The locks before and after it; equal ones are not written. Raises what reading and writing raise."""
    claim = cache.claim("lock_file", (os.path.abspath(path),))
    with claim, claim:
        claim.take(_PATIENCE)
        before = read_lock(path) if os.path.lexists(path) else Lock()
        after = before.merged(blocks)
        if after != before:
            write_lock(path, after)
    return before, after


def _bytes(handle: int) -> bytes:
    """At most one byte more than a lock may have."""
    with open(handle, "rb", closefd=False) as file:
        return file.read(MAX_BYTES + 1)


def _unreadable(path: Path, cause: str) -> BuildError:
    if cause == os.strerror(errno.ENOENT):
        help = "check the path; `dslc tune` writes a lock"
        return BuildError("E0607", "there is no lock", place=str(path), help=help)
    return BuildError(
        "E0607",
        f"it cannot be read: {cause}",
        place=str(path),
        help="make it readable, or delete it and run `dslc tune`",
    )
