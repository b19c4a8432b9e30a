"""Single flight between processes: an flock on a small file that names its holder.

A dead process holds no lock, whatever it left behind. The file is removed on release; whoever takes the lock checks
that the name still leads to the file that was locked, so removing it is safe.
"""

from __future__ import annotations

import errno
import fcntl
import os
import time
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Final

from dslc.base.errors import ResourceError

_POLL_FIRST: Final = 0.01  # seconds between tries; doubles
_POLL_LAST: Final = 0.2
_BUSY: Final = (errno.EWOULDBLOCK, errno.EAGAIN, errno.EACCES)


def leads_to(name: str, fd: int, dir_fd: int | None = None) -> bool:
    """Whether ``name`` is (still) the file that ``fd`` is open on."""
    try:
        found = os.stat(name, dir_fd=dir_fd, follow_symlinks=False)
    except FileNotFoundError:
        return False
    mine = os.fstat(fd)
    return (found.st_dev, found.st_ino) == (mine.st_dev, mine.st_ino)


def try_flock(fd: int) -> bool:
    """Take the exclusive flock of an open file without waiting; OSError when the file system has no locks."""
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in _BUSY:
            return False
        raise
    return True


class FileLock:
    """``with FileLock(path, what="build", timeout=30): ...``

    ``what`` is the noun of the error message: ``build by pid 412 running``. Not re-entrant; two objects exclude each
    other within a process, too. Durations are in seconds of the monotonic clock.
    """

    def __init__(self, path: str | os.PathLike[str], *, what: str, timeout: float = 0.0) -> None:
        self.path = Path(path)
        self.what = what
        self.timeout = timeout
        self._fd: int | None = None

    @property
    def held(self) -> bool:
        return self._fd is not None

    def acquire(self, timeout: float | None = None) -> bool:
        """Try for ``timeout`` seconds; False when another still holds it. OSError when the file cannot be made."""
        if self._fd is not None:
            raise AssertionError(f"this lock is held already: {self.path}")
        deadline = time.monotonic() + (self.timeout if timeout is None else timeout)
        pause = _POLL_FIRST
        while not self._try():
            left = deadline - time.monotonic()
            if left <= 0:
                return False
            time.sleep(min(pause, left))
            pause = min(2 * pause, _POLL_LAST)
        return True

    def _try(self) -> bool:
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
        fd = os.open(self.path, flags, 0o600)
        kept = False
        try:
            if try_flock(fd) and leads_to(str(self.path), fd):
                os.ftruncate(fd, 0)
                os.pwrite(fd, b"%d\n" % os.getpid(), 0)
                self._fd, kept = fd, True
        finally:
            if not kept:
                os.close(fd)
        return kept

    def holder(self) -> int | None:
        """The process id that the lock file names; None when it names none."""
        try:
            fd = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
        except OSError:
            return None  # released, or not ours to read: then the message names nobody
        try:
            text = os.read(fd, 32)
        finally:
            os.close(fd)
        return int(text) if text.strip().isdigit() else None

    def release(self) -> None:
        """Give the lock back; nothing when it is not held."""
        if self._fd is None:
            return
        fd, self._fd = self._fd, None
        try:
            # A file that stays hinders nobody: the next holder locks that one, and removes it.
            with suppress(OSError):
                if leads_to(str(self.path), fd):
                    os.unlink(self.path)
        finally:
            os.close(fd)

    def __enter__(self) -> FileLock:
        """Acquire, or raise ResourceError R404 (another holds it) or R402 (the lock file cannot be made)."""
        try:
            taken = self.acquire()
        except OSError as error:
            full = error.errno in (errno.ENOSPC, errno.EDQUOT)
            raise ResourceError(
                "R402",
                f"no lock can be taken: {error.strerror}",
                place=str(self.path),
                help="free some space, or choose another folder"
                if full
                else "check that the folder exists, is writable and has locks, or choose another one",
            ) from error
        if not taken:
            pid = self.holder()
            raise ResourceError(
                "R404",
                f"{self.what} by pid {pid} running" if pid is not None else f"another {self.what} is running",
                place=str(self.path.parent),
                help="wait until it is done, or give another output folder",
            )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()
