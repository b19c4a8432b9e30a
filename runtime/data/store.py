"""Files that dslc makes from a user's data: the tokens of a text, the rows of a Python dataset, the text of a
compressed table.

They stand in the folder ``data`` of the private cache. A file's name contains the SHA-256 of everything that determines
its content, so it is never stale. It gets its name when it is complete, so a kill leaves no part of one. When the
folder exceeds the limit of the cache, those that no process uses are removed, least recently used first; the newest
file may have any size.
"""

from __future__ import annotations

import fcntl
import os
import re
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from dslc.base.cache import Cache
from dslc.base.errors import ResourceError
from dslc.base.filelock import leads_to
from dslc.base.opened import Opened
from dslc.base.publish import Sink, publish_bytes, sweep

_FOLDER: Final = "data"
_NAME = re.compile(r"[a-z]{1,16}-[0-9a-f]{64}\.(?:bin|npy|rows|txt)\Z")
ROWS: Final = re.compile(r"entry-[0-9a-f]{64}\.rows\Z")  # names of stored rows of a Python dataset
_USED: Final[dict[Path, Opened]] = {}  # the files that this process uses, each locked


@dataclass(frozen=True)
class Made:
    """A file of the store."""

    path: Path
    bytes: int
    used: int  # ns


class Store:
    """The store of this user's cache."""

    def __init__(self, folder: Path | None, limit: int) -> None:
        self.folder = folder
        self.limit = limit

    @classmethod
    def open(cls, cache: Cache | None = None) -> Store:
        cache = Cache.open() if cache is None else cache
        return cls(None if cache.folder is None else cache.folder / _FOLDER, cache.limit)

    def find(self, name: str) -> Path | None:
        """A file by name, which is not removed while this process runs; None if it is missing."""
        if self.folder is None:
            return None
        path = self.folder / name
        if path in _USED:
            return path
        files = Opened()
        try:
            fd = files.open(path, os.O_RDONLY | os.O_NOFOLLOW)
            fcntl.flock(fd, fcntl.LOCK_SH)
            if leads_to(str(path), fd):  # else it was removed between the two calls
                with suppress(OSError):  # a read-only file system
                    os.utime(path)
                _USED[path] = files
        except FileNotFoundError:
            return None
        except OSError as error:
            raise self._unusable(str(error)) from error
        finally:
            if path not in _USED:
                files.close_all()
        return path if path in _USED else None

    def make(
        self,
        name: str,
        write: Callable[[Sink], object],
        size_hint: int = 0,
        verify: Callable[[Path], object] | None = None,
    ) -> Path:
        """The file ``name``; ``write`` makes its content if it is missing. ``verify`` reads it back before it gets its
        name. ResourceError R402 if there is no cache, or it cannot be written."""
        assert _NAME.match(name), name
        found = self.find(name)
        if found is not None:
            return found
        if self.folder is None:
            raise self._unusable("there is no cache")
        try:
            self.folder.mkdir(mode=0o700, exist_ok=True)
            sweep(self.folder)
        except OSError as error:
            raise self._unusable(str(error)) from error
        publish_bytes(
            self.folder / name, write, point="data", size_hint=size_hint, verify=verify, private=True, tidy=False
        )
        found = self.find(name)
        if found is None:
            raise self._unusable("another process removed the file")
        self._make_room()
        return found

    def entries(self) -> list[Made]:
        """Every file, least recently used first."""
        found = []
        if self.folder is not None and self.folder.is_dir():
            for name in os.listdir(self.folder):
                with suppress(FileNotFoundError):  # removed by another process
                    if _NAME.match(name):
                        status = os.lstat(self.folder / name)
                        found.append(Made(self.folder / name, status.st_size, status.st_mtime_ns))
        return sorted(found, key=lambda made: (made.used, made.path.name))

    def clear(self) -> tuple[int, int]:
        """Remove every file that no process uses, and the files of dead processes: (files, their bytes)."""
        listed = self.entries()
        if self.folder is not None and self.folder.is_dir():
            sweep(self.folder)
        gone = [made for made in listed if _removed(made.path)]
        return len(gone), sum(made.bytes for made in gone)

    def _make_room(self) -> None:
        listed = self.entries()
        total = sum(made.bytes for made in listed)
        for made in listed:
            if total <= self.limit:
                break
            if _removed(made.path):
                total -= made.bytes

    def _unusable(self, why: str) -> ResourceError:
        help = "check the folder's permissions, or name another with DSLC_CACHE_DIR"
        place = "DSLC_CACHE_DIR" if self.folder is None else str(self.folder)
        return ResourceError("R402", f"what is made from the data cannot be stored: {why}", place=place, help=help)


def _removed(path: Path) -> bool:
    """Remove a file unless a process uses it; True if it is gone."""
    with Opened() as scope, scope as files:
        try:
            fd = files.open(path, os.O_RDONLY | os.O_NOFOLLOW)
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.unlink(path)
        except FileNotFoundError:
            return True
        except OSError:
            return False
    return True
