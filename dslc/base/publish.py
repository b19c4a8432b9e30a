"""Gives files their final names: complete and durable, or not at all. No other code creates final names.

1. A temp file is created next to the target and locked with flock, so a sweeper can tell live writers from dead ones.
If the
   file system has no locks, its name contains its process.
2. Each file is written in full and fsynced, the commit file last. On any error the temps are removed and the targets
   stay unchanged.
3. The caller's ``verify`` may read a temp back.
4. os.replace, the commit file last; 5. the folder is fsynced; 6. temps of dead writers are removed.

An error before the commit file has its name is R402: the old content remains. A later error is R405: the new content
is in place, but a power cut might undo it. Failpoints are named ``POINT.create, .write, .fsync, .rename, .renamed,
.dirsync, .sweep``; the caller chooses POINT (default ``publish``).
"""

from __future__ import annotations

import errno
import os
import re
import secrets
import stat
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, Protocol, TypeAlias

from dslc.base import owner
from dslc.base.errors import ResourceError
from dslc.base.failpoint import fail
from dslc.base.filelock import FileLock, leads_to, try_flock
from dslc.base.opened import Opened
from dslc.base.turns import Always

LOCK_NAME: Final = ".dslc-lock"
TEMP: Final = re.compile(r"\.dslc-[0-9a-f]{16}(?:-([0-9]+-[0-9]+-[0-9a-f]{8}-[0-9a-f]{8}))?\.tmp")
_CHUNK: Final = 1 << 20  # bytes per write
_SLACK: Final = 1 << 16  # bytes in addition to the content: directory entries, rounding to blocks
_FULL: Final = (errno.ENOSPC, errno.EDQUOT)
_LONG: Final = 86400.0  # age in seconds at which an unlocked temp of another machine counts as abandoned


class Sink(Protocol):
    """The destination to which a writer callback writes its bytes."""

    def write(self, data: bytes | bytearray | memoryview, /) -> int: ...


Content: TypeAlias = bytes | bytearray | memoryview | Callable[[Sink], object]


class _Temp:
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
                os.unlink(self.name, dir_fd=self.dir_fd)
            if temporary or fd == self.fd:
                self.files.close(fd)


class _Temps(dict[str, _Temp]):
    """The temps of one publication, by the names that they will get."""

    def close(self) -> None:
        """Remove those that have not got their names. May be repeated."""
        for temp in self.values():
            temp.discard()


def publish_bytes(
    path: str | os.PathLike[str],
    content: Content,
    *,
    point: str = "publish",
    size_hint: int = 0,
    verify: Callable[[Path], object] | None = None,
    private: bool = False,
    tidy: bool = True,
) -> None:
    """Replace ``path`` atomically by ``content``; the folder must exist.

    ``content`` is bytes, or a callable that receives a Sink. ``size_hint``: bytes that a callable will write, for the
    check of free space. ``verify`` is called with the path of the finished temp; an exception stops the publication.
    ``private`` makes the file readable by its owner alone. ``tidy``: sweep the folder afterwards; for a folder of many
    files an occasional sweep is cheaper. Raises ResourceError R402 or R405.
    """
    target = Path(path)
    with Opened() as scope, scope as files, _uncommitted(target):
        dir_fd = _opened(files, target.parent)
        _check_name(target.name)
        _publish(
            files, dir_fd, target.parent, {target.name: content}, target.name, point, size_hint, verify, private, tidy
        )


def publish_files(
    folder: str | os.PathLike[str],
    files: Mapping[str, Content],
    commit: str,
    *,
    point: str = "publish",
    size_hint: int = 0,
    verify: Callable[[Path], object] | None = None,
    lock: FileLock | None = None,
    timeout: float = 30.0,
) -> None:
    """Publish each file of ``files`` (name -> content) in an existing folder, ``commit`` last.

    Other files of the folder stay unchanged. Writers of one folder take turns, so the result is never a mix. A caller
    that holds ``folder_lock(folder)`` passes it as ``lock``; else it is acquired here within ``timeout`` seconds.
    ``verify`` is called with the temp of the commit file. Raises ResourceError R402, R404 or R405.
    """
    if commit not in files:
        raise AssertionError(f"the commit file {commit!r} is not among {sorted(files)}")
    root = Path(folder)
    if lock is None:
        with folder_lock(root, timeout=timeout).scope() as outer, outer as taken:
            publish_files(
                root, files, commit, point=point, size_hint=size_hint, verify=verify, lock=taken
            )  # fmt: skip
        return
    if not lock.held or lock.path != root / LOCK_NAME:
        raise AssertionError(f"not the held lock of {root}: {lock.path}")
    with Opened() as scope, scope as opened, _uncommitted(root / commit):
        dir_fd = _opened(opened, root)
        for name in files:
            _check_name(name)
        ordered = {name: files[name] for name in [*sorted(set(files) - {commit}), commit]}
        _publish(opened, dir_fd, root, ordered, commit, point, size_hint, verify, private=False)


def folder_lock(folder: str | os.PathLike[str], *, what: str = "build", timeout: float = 0.0) -> FileLock:
    """The lock that publish_files acquires; a build that must fail early holds it for its whole duration."""
    return FileLock(Path(folder) / LOCK_NAME, what=what, timeout=timeout)


def sweep(folder: str | os.PathLike[str]) -> tuple[int, int]:
    """Remove the temps of dead writers from a folder: (removed, left because alive or not removable)."""
    with Opened() as scope, scope as files:
        return _sweep(_opened(files, Path(folder)))


def _publish(
    opened: Opened, dir_fd: int, root: Path, files: Mapping[str, Content], commit: str, point: str, size_hint: int,
    verify: Callable[[Path], object] | None, private: bool, tidy: bool = True,
) -> None:  # fmt: skip
    sizes = sum(memoryview(c).nbytes for c in files.values() if not callable(c))
    _ensure_space(dir_fd, sizes + size_hint)
    temps = _Temps()
    with Always(temps.close), Always(temps.close):
        for name, content in files.items():
            temps[name] = _Temp(opened, dir_fd, point, private)
            temps[name].create()
            if callable(content):
                content(temps[name])
            else:
                temps[name].write(content)
            temps[name].sync()
        if verify is not None:
            verify(root / temps[commit].name)
        _rename(temps, root / commit)
        # The new content is in place from here on.
        try:
            fail(f"{point}.renamed")
            fail(f"{point}.dirsync")
            os.fsync(dir_fd)
            for temp in temps.values():
                temp.close()
        except OSError as error:
            raise ResourceError(
                "R405",
                f"written, but perhaps not durable: {error.strerror}",
                place=str(root / commit),
                help="the file is complete; check the disk, and run the command again to be sure",
            ) from error
    if not tidy:
        return
    with suppress(OSError):  # the content is safe; the next sweep removes the rest
        fail(f"{point}.sweep")
        _sweep(dir_fd)


def _rename(temps: Mapping[str, _Temp], commit: Path) -> None:
    done: list[str] = []
    for name, temp in temps.items():
        try:
            temp.rename(name)
        except OSError as error:
            if not done:
                raise
            raise ResourceError(
                "R402",
                f"not committed: {error.strerror}; {', '.join(done)} next to it are new, {name} is as it was",
                place=str(commit),
                help="run it again after you have fixed the cause",
            ) from error
        done.append(name)


def _opened(files: Opened, folder: Path) -> int:
    """An open descriptor of the folder. ResourceError R402."""
    try:
        return files.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    except OSError as error:
        raise _not_committed(error, folder) from error


@contextmanager
def _uncommitted(target: Path) -> Iterator[None]:
    """Converts an OSError before the commit to R402; an R405 passes unchanged."""
    try:
        yield
    except OSError as error:
        raise _not_committed(error, target) from error


def _not_committed(error: OSError, target: Path) -> ResourceError:
    if error.errno in _FULL:
        help = "free some space, or give another output folder"
    elif error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        help = "make the folder writable, or give another output folder"
    elif error.errno in (errno.ENOENT, errno.ENOTDIR):
        help = "make the folder first, or give another output folder"
    else:
        help = "check the disk, or give another output folder"
    what = error.strerror or str(error)
    return ResourceError("R402", f"not written: {what}; the existing files are unchanged", place=str(target), help=help)


def _check_name(name: str) -> None:
    if name in ("", ".", "..") or "/" in name or "\0" in name or TEMP.fullmatch(name) or name == LOCK_NAME:
        raise OSError(errno.EINVAL, f"{name!r} cannot be a file name here")


def _ensure_space(dir_fd: int, need: int) -> None:
    if _free(dir_fd) >= need + _SLACK:
        return
    _sweep(dir_fd)  # temps of dead writers may occupy the missing space
    free = _free(dir_fd)
    if free < need + _SLACK:
        raise OSError(errno.ENOSPC, f"{need + _SLACK} bytes are needed, {free} are free")


def _free(dir_fd: int) -> int:
    found = os.fstatvfs(dir_fd)
    if found.f_blocks == 0:  # a file system that does not count its blocks
        return 1 << 62
    return (found.f_bfree if os.geteuid() == 0 else found.f_bavail) * found.f_frsize


def _sweep(dir_fd: int) -> tuple[int, int]:
    names = sorted(filter(TEMP.fullmatch, os.listdir(dir_fd)))
    removed = left = 0
    for name in names:
        try:
            dead = _remove_if_dead(dir_fd, name)
        except FileNotFoundError:
            continue  # its writer or another sweeper removed it first
        except OSError:
            dead = False  # owned by another user, or not a file: counted, but never a reason to fail
        removed, left = removed + dead, left + (not dead)
    return removed, left


def _remove_if_dead(dir_fd: int, name: str) -> bool:
    match = TEMP.fullmatch(name)
    whose = match[1] if match is not None else None
    with Opened() as scope, scope as files:
        fd = files.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=dir_fd)
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            return False
        # A temp that names its process has no lock. A temp without a process was made with locks; if there are none
        # now, its state is unknown.
        dead = _is_left(dir_fd, fd, whose) if whose is not None else try_flock(fd)
        if not dead or not leads_to(name, fd, dir_fd):
            return False
        os.unlink(name, dir_fd=dir_fd)
        return True


def _is_left(dir_fd: int, fd: int, whose: str) -> bool:
    """True if a temp's process has ended. For a process of another machine, decides by the temp's age relative to the
    folder, which has just changed, by the clock of the file system."""
    age = os.fstat(dir_fd).st_mtime - os.fstat(fd).st_mtime
    return owner.gone(whose.replace("-", " ")) or age > _LONG
