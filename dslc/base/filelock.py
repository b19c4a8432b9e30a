"""Mutual exclusion between processes: an flock on a small file that names its holder.

A dead process holds no lock, even if its file remains. The file is removed on release. A process that gets the lock
checks that the name still leads to the locked file, so the removal is safe.

If the file system has no locks, the lock is a symbolic link, ``NAME.owner``, whose target names its process: it is
created atomically with its content. A link of a dead process is removed. The holder of one kind of lock also checks the
other kind, so that exclusion holds even if the file system's locks come and go.
"""

from __future__ import annotations

import errno
import fcntl
import os
import secrets
import time
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Final

from dslc.base import owner
from dslc.base.errors import ResourceError
from dslc.base.opened import Opened

OWNER: Final = ".owner"  # suffix of the link's name
_POLL_FIRST: Final = 0.01  # seconds between attempts; doubles
_POLL_LAST: Final = 0.2
_BUSY: Final = (errno.EWOULDBLOCK, errno.EAGAIN, errno.EACCES)
_SAFE: Final = os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK


def leads_to(name: str, fd: int, dir_fd: int | None = None) -> bool:
    """True if ``name`` (still) refers to the file that is open as ``fd``."""
    try:
        found = os.stat(name, dir_fd=dir_fd, follow_symlinks=False)
    except FileNotFoundError:
        return False
    mine = os.fstat(fd)
    return (found.st_dev, found.st_ino) == (mine.st_dev, mine.st_ino)


def try_flock(fd: int) -> bool | None:
    """Take the exclusive flock of an open file without waiting; None if the file system has no locks."""
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in _BUSY:
            return False
        if error.errno in owner.NO_LOCKS:
            return None
        raise
    return True


def _number(fd: int) -> int | None:
    """The process that an open lock file names."""
    return owner.pid_of(os.pread(fd, 32, 0).decode("ascii", "replace"))


def _named(link: Path) -> str | None:
    """The process that a link names; None if there is no link."""
    try:
        return os.readlink(link)
    except OSError:
        return None


class FileLock:
    """``with FileLock(path, what="build", timeout=30): ...``, or ``with lock.scope() as scope, scope: ...`` if the
    process continues after an interrupt.

    ``what`` is the noun of the error message: ``build by pid 412 running``. Not re-entrant; two objects also exclude
    each other within one process. Durations are in seconds of the monotonic clock.
    """

    def __init__(self, path: str | os.PathLike[str], *, what: str, timeout: float = 0.0) -> None:
        self.path = Path(path)
        self.what = what
        self.timeout = timeout
        self.held = False
        self._files = Opened()
        self._owned = self.path.with_name(self.path.name + OWNER)
        self._text = ""  # the content of our link, if there are no locks

    def acquire(self, timeout: float | None = None) -> bool:
        """Try for ``timeout`` seconds; False if another holder remains. OSError if the file cannot be created."""
        if self.held:
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
        fd = self._files.open(self.path, os.O_RDWR | os.O_CREAT | _SAFE, 0o600)
        try:
            locked = try_flock(fd)
            if locked is None:
                self.held = self._own(fd)
            elif locked and leads_to(str(self.path), fd) and not self._owned_by_another():
                self._sign(fd)
                self.held = True
        finally:
            if not self.held:
                self._remove(fd)
                self._files.close(fd)
        return self.held

    def _remove(self, fd: int) -> None:
        """Remove the lock file that is open as ``fd``, if no other process has its lock."""
        if (self.held or try_flock(fd)) and leads_to(str(self.path), fd):
            os.unlink(self.path)

    @staticmethod
    def _sign(fd: int) -> None:
        os.ftruncate(fd, 0)
        os.pwrite(fd, b"%d\n" % os.getpid(), 0)

    def _own(self, fd: int) -> bool:
        """Take the lock on a file system without locks. A lock file held by flock names a live process."""
        named = _number(fd)
        if named is not None and named != os.getpid() and owner.runs(named):
            return False
        if self._owned_by_another():
            return False
        self._text = f"{owner.me()} {secrets.token_hex(8)}"
        try:
            os.symlink(self._text, self._owned)
        except FileExistsError:
            return False
        except OSError as error:
            if error.errno in (errno.EPERM, *owner.NO_LOCKS):
                raise OSError(errno.ENOLCK, "the file system has neither locks nor symbolic links") from error
            raise
        return True

    def _owned_by_another(self) -> bool:
        """True if another process holds the link. Removes the link of a dead process."""
        text = _named(self._owned)
        if text is None:
            return False
        if not owner.gone(text.rpartition(" ")[0]):
            return True
        # Of two processes that move it aside, only one gets it; if it then belongs to another process, it is moved
        # back.
        aside = self._owned.with_name(f"{self._owned.name}.{secrets.token_hex(4)}")
        with suppress(FileNotFoundError):
            os.rename(self._owned, aside)
            moved = _named(aside)
            if moved is not None and moved != text:
                with suppress(FileExistsError):
                    os.symlink(moved, self._owned)
            os.unlink(aside)
        return _named(self._owned) is not None

    def holder(self) -> int | None:
        """The process id that the lock file names; None if it names none."""
        named = _named(self._owned)
        if named is not None:
            return owner.pid_of(named)
        with Opened() as scope, scope as files:
            try:
                return _number(files.open(self.path, os.O_RDONLY | _SAFE))
            except OSError:
                return None  # released, or not readable for us: then the message names no holder

    def release(self) -> None:
        """Release the lock; does nothing if it is not held."""
        # A file that remains does no harm: the next holder locks and removes it.
        with suppress(OSError):
            if self._text and _named(self._owned) == self._text:
                os.unlink(self._owned)
            for fd in self._files:  # also one whose lock an interrupt kept us from recording
                self._remove(fd)
        self.held = False
        self._text = ""
        self._files.close_all()

    def scope(self) -> _Scope:
        """The outer of two scopes: it releases the lock if an interrupt kept the inner scope from it."""
        return _Scope(self)

    def __enter__(self) -> FileLock:
        """Acquire; raises ResourceError R404 (held by another) or R402 (the lock file cannot be created)."""
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
                else "check that the folder exists and is writable, or choose another one",
            ) from error
        if not taken:
            raise self._busy()
        return self

    def _busy(self) -> ResourceError:
        pid = self.holder()
        if pid is None:
            return ResourceError(
                "R404", f"another {self.what} is running", place=str(self.path.parent),
                help="wait until it is done, or give another output folder",
            )  # fmt: skip
        if owner.stopped(pid):
            return ResourceError(
                "R404", f"{self.what} by pid {pid} running, and stopped", place=str(self.path.parent),
                help=f"continue it (kill -CONT {pid}) or end it (kill -KILL {pid}), or give another output folder",
            )  # fmt: skip
        help = "wait until it is done, or give another output folder"
        if _named(self._owned) is not None and not owner.runs(pid):
            help += f"; if no such process runs on any machine, remove {self._owned}"
        return ResourceError("R404", f"{self.what} by pid {pid} running", place=str(self.path.parent), help=help)

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()


class _Scope:
    """Yields the lock, to be entered, and releases it at the end in any case."""

    def __init__(self, lock: FileLock) -> None:
        self._lock = lock

    def __enter__(self) -> FileLock:
        return self._lock

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._lock.release()
