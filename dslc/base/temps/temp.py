"""A file with a temporary name next to its target, locked as long as its writer lives."""

from __future__ import annotations

import errno
import os
import re
import secrets
from contextlib import suppress
from typing import Final

from dslc.base import owner
from dslc.base.failpoint import fail
from dslc.base.filelock import leads_to, try_flock
from dslc.base.opened import Opened

TEMP: Final = re.compile(r"\.dslc-[0-9a-f]{16}(?:-([0-9]+-[0-9]+-[0-9a-f]{8}-[0-9a-f]{8}))?\.tmp")
_CHUNK: Final = 1 << 20  # bytes per write


class Temp:
    """A temp file in an open folder, locked if the file system has locks. ``files`` keeps it open.

    ``create`` it after the object is where ``discard`` finds it: an interrupt at any point then leaves no file.
    """

    def __init__(self, files: Opened, dir_fd: int, point: str, private: bool) -> None:
        self.files = files
        self.dir_fd = dir_fd
        self.point = point
        self.mode = 0o600 if private else 0o666
        self.name = ""
        self.fd: int | None = None

    def create(self) -> None:
        fail(f"{self.point}.create")
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
        locks: bool | None = True
        while True:
            whose = "" if locks is not None else "-" + owner.me().replace(" ", "-")
            self.fd, self.name = None, f".dslc-{secrets.token_hex(8)}{whose}.tmp"
            self.fd = self.files.open(self.name, flags, self.mode, dir_fd=self.dir_fd)
            if whose:
                return
            locks = try_flock(self.fd)
            # A sweeper may have removed the file between open and flock: then create another.
            if locks and leads_to(self.name, self.fd, self.dir_fd):
                return
            self.discard()

    def write(self, data: bytes | bytearray | memoryview, /) -> int:
        rest = memoryview(data).cast("B")
        total = len(rest)
        while rest:
            fail(f"{self.point}.write")
            assert self.fd is not None
            written = os.write(self.fd, rest[:_CHUNK])
            if written == 0:
                raise OSError(errno.EIO, "a write took no bytes")
            rest = rest[written:]
        return total

    def sync(self) -> None:
        fail(f"{self.point}.fsync")
        assert self.fd is not None
        os.fsync(self.fd)

    def rename(self, target: str) -> None:
        fail(f"{self.point}.rename")
        os.replace(self.name, target, src_dir_fd=self.dir_fd, dst_dir_fd=self.dir_fd)

    def close(self) -> None:
        """Release the lock."""
        assert self.fd is not None
        self.files.close(self.fd)

    def discard(self) -> None:
        """Remove the file if it still has its temp name, and release the lock; does nothing if it is closed. May be
        repeated."""
        if self.fd is not None and self.fd not in self.files:
            return
        for fd in self.files:  # also one that an interrupt kept us from recording
            temporary = leads_to(self.name, fd, self.dir_fd)
            if temporary:
                with suppress(FileNotFoundError):  # a sweeper that had the lock between open and flock
                    os.unlink(self.name, dir_fd=self.dir_fd)
            if temporary or fd == self.fd:
                self.files.close(fd)


class Temps(dict[str, Temp]):
    """The temps of one publication, by the names that they will get."""

    def close(self) -> None:
        """Remove those that have not got their names. May be repeated."""
        for temp in self.values():
            temp.discard()
