"""The folder of the cache: where it is, who may write it, what lies in it."""

from __future__ import annotations

import errno
import os
import stat
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from dslc.base.cache_entry import LOCK, NAME
from dslc.base.failpoint import fail
from dslc.base.filelock import OWNER, FileLock
from dslc.base.opened import Opened
from dslc.base.publish import sweep

SECOND: Final = 10**9
MOST_RUNS: Final = 10**9  # a larger modification time comes from a clock


@dataclass(frozen=True)
class Stored:
    """An entry on disk: ``run`` is the number of the run that used it last, 0 if unknown."""

    name: str
    kind: str
    bytes: int
    run: int


def stored_in(folder: Path) -> list[Stored]:
    """Every entry, least recently used first."""
    found = []
    for name in os.listdir(folder):
        match = NAME.fullmatch(name)
        if match:
            with suppress(FileNotFoundError):  # evicted concurrently
                status = os.lstat(folder / name)
                if stat.S_ISREG(status.st_mode):
                    run = status.st_mtime_ns // SECOND
                    found.append(Stored(name, match[1], status.st_size, run if run < MOST_RUNS else 0))
    return sorted(found, key=lambda e: (e.run, e.name))


def default_folder() -> Path:
    """The folder of this user's cache if the environment names none."""
    base = Path(os.environ.get("XDG_CACHE_HOME", ""))
    return (base if base.is_absolute() else Path(os.path.expanduser("~")) / ".cache") / "dslc"


def check_folder(folder: Path) -> None:
    """Create the folder if it is missing; OSError unless it is a real folder that only its owner, this user, can
    write."""
    fail("cache.open")
    folder.parent.mkdir(parents=True, exist_ok=True)
    with suppress(FileExistsError):
        os.mkdir(folder, 0o700)
    with Opened() as scope, scope as files:
        if not private(os.fstat(files.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW))):
            raise OSError(errno.EPERM, "it belongs to someone else, or others may write to it")


def private(status: os.stat_result) -> bool:
    """True if it is this user's, and nobody else may write it."""
    return status.st_uid == os.geteuid() and not status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)


def tidy(folder: Path) -> None:
    """Remove temps and locks of dead processes."""
    sweep(folder)
    for name in os.listdir(folder):
        lock_name = name.removesuffix(OWNER)
        if LOCK.fullmatch(lock_name):
            lock = FileLock(folder / lock_name, what="compilation")
            with lock.scope(), lock.scope():
                lock.acquire()


def read_all(fd: int, size: int) -> bytes:
    """At most ``size`` bytes of a file."""
    parts, left = [], size
    while left:
        part = os.read(fd, left)
        if not part:
            break
        parts.append(part)
        left -= len(part)
    return b"".join(parts)


def mark(file: int | Path, run: int) -> None:
    """Record the number of the run that used a file last."""
    os.utime(file, ns=(run * SECOND, run * SECOND))
