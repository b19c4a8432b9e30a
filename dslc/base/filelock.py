"""Single flight between processes: an flock on a small file that names its holder.

A dead process holds no lock, whatever it left behind. The file is removed on release; whoever takes the lock checks
that the name still leads to the file that was locked, so removing it is safe.

Where the file system has no locks, the lock is a symbolic link, ``NAME.owner``, to the name of its process: it is made
with its content in one step, or not at all. One whose process is gone is taken away. Who has the one kind of lock looks
at the other, too, so that a file system whose locks come and go is none the worse.
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

OWNER: Final = ".owner"  # ends the name of the link
_POLL_FIRST: Final = 0.01  # seconds between tries; doubles
_POLL_LAST: Final = 0.2
_BUSY: Final = (errno.EWOULDBLOCK, errno.EAGAIN, errno.EACCES)
_SAFE: Final = os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK


def leads_to(name: str, fd: int, dir_fd: int | None = None) -> bool:
    """Whether ``name`` is (still) the file that ``fd`` is open on."""
    try:
        found = os.stat(name, dir_fd=dir_fd, follow_symlinks=False)
    except FileNotFoundError:
        return False
    mine = os.fstat(fd)
    return (found.st_dev, found.st_ino) == (mine.st_dev, mine.st_ino)


def try_flock(fd: int) -> bool | None:
    """Take the exclusive flock of an open file without waiting; None where the file system has no locks."""
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
    """The process that a link names; None where there is none."""
    try:
        return os.readlink(link)
    except OSError:
        return None


class FileLock:
    """``with FileLock(path, what="build", timeout=30): ...``, or ``with lock.scope() as scope, scope: ...`` where the
    process goes on after an interrupt.

    ``what`` is the noun of the error message: ``build by pid 412 running``. Not re-entrant; two objects exclude each
    other within a process, too. Durations are in seconds of the monotonic clock.
    """

    def __init__(self, path: str | os.PathLike[str], *, what: str, timeout: float = 0.0) -> None:
        self.path = Path(path)
        self.what = what
        self.timeout = timeout
        self.held = False
        self._files = Opened()
        self._owned = self.path.with_name(self.path.name + OWNER)
        self._text = ""  # of our own file, where there are no locks

    def acquire(self, timeout: float | None = None) -> bool:
        """Try for ``timeout`` seconds; False when another still holds it. OSError when the file cannot be made."""
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
                self._files.close(fd)
        return self.held

    @staticmethod
    def _sign(fd: int) -> None:
        os.ftruncate(fd, 0)
        os.pwrite(fd, b"%d\n" % os.getpid(), 0)

    def _own(self, fd: int) -> bool:
        """The lock of a file system without locks. One that is held by flock names a living process."""
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
        """Whether a process has the lock without flock. What one that is gone has left is taken away."""
        text = _named(self._owned)
        if text is None:
            return False
        if not owner.gone(text.rpartition(" ")[0]):
            return True
        # Of two that take it away only one gets it; should it be another's by now, it goes back.
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
        """The process id that the lock file names; None when it names none."""
        named = _named(self._owned)
        if named is not None:
            return owner.pid_of(named)
        with Opened() as scope, scope as files:
            try:
                return _number(files.open(self.path, os.O_RDONLY | _SAFE))
            except OSError:
                return None  # released, or not ours to read: then the message names nobody

    def release(self) -> None:
        """Give the lock back; nothing when it is not held."""
        # A file that stays hinders nobody: the next holder locks that one, and removes it.
        with suppress(OSError):
            if self._text and _named(self._owned) == self._text:
                os.unlink(self._owned)
            if self.held and leads_to(str(self.path), self._files.last):
                os.unlink(self.path)
        self.held = False
        self._text = ""
        self._files.close_all()

    def scope(self) -> _Scope:
        """The outer of two scopes: it releases what an interrupt kept the inner one from releasing."""
        return _Scope(self)

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
                help=f"let it go on (kill -CONT {pid}) or end it (kill -KILL {pid}), or give another output folder",
            )  # fmt: skip
        help = "wait until it is done, or give another output folder"
        if _named(self._owned) is not None and not owner.runs(pid):
            help += f"; if nothing of the kind runs on any machine, remove {self._owned}"
        return ResourceError("R404", f"{self.what} by pid {pid} running", place=str(self.path.parent), help=help)

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()


class _Scope:
    """Gives the lock, to be entered, and releases it at the end whatever has become of it."""

    def __init__(self, lock: FileLock) -> None:
        self._lock = lock

    def __enter__(self) -> FileLock:
        return self._lock

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._lock.release()
