"""Gives files their final names: complete and durable, or not at all. No other code creates final names.

1. A temp file (``temps``) is created next to the target and locked with flock, so a sweeper can tell live writers from
   dead ones. If the file system has no locks, its name contains its process.
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
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, Protocol, TypeAlias

from dslc.base.errors import ResourceError
from dslc.base.failpoint import fail
from dslc.base.filelock import FileLock
from dslc.base.opened import Opened
from dslc.base.temps.sweep import sweep_folder
from dslc.base.temps.temp import TEMP, Temp, Temps
from dslc.base.turns import Always

LOCK_NAME: Final = ".dslc-lock"
_SLACK: Final = 1 << 16  # bytes in addition to the content: directory entries, rounding to blocks
_FULL: Final = (errno.ENOSPC, errno.EDQUOT)


class Sink(Protocol):
    """The destination to which a writer callback writes its bytes."""

    def write(self, data: bytes | bytearray | memoryview, /) -> int: ...


Content: TypeAlias = bytes | bytearray | memoryview | Callable[[Sink], object]


def publish_bytes(
    path: str | os.PathLike[str],
    content: Content,
    *,
    point: str = "publish",
    size_hint: int = 0,
    verify: Callable[[Path], object] | None = None,
    private: bool = False,
    tidy: bool = True,
    durable: bool = True,
) -> None:
    """Replace ``path`` atomically by ``content``; the folder must exist.

    ``content`` is bytes, or a callable that receives a Sink. ``size_hint``: bytes that a callable will write, for the
    check of free space. ``verify`` is called with the path of the finished temp; an exception stops the publication.
    ``private`` makes the file readable by its owner alone. ``tidy``: sweep the folder afterwards; for a folder of many
    files an occasional sweep is cheaper. ``durable=False`` does not wait for the disk, for a file whose reader detects
    what a loss of power leaves. Raises ResourceError R402 or R405.
    """
    target = Path(path)
    with Opened() as scope, scope as files, _uncommitted(target):
        dir_fd = _opened(files, target.parent)
        _check_name(target.name)
        _publish(
            files, dir_fd, target.parent, {target.name: content}, target.name, point, size_hint, verify, private, tidy,
            durable,
        )  # fmt: skip


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
        return sweep_folder(_opened(files, Path(folder)))


def _publish(
    opened: Opened, dir_fd: int, root: Path, files: Mapping[str, Content], commit: str, point: str, size_hint: int,
    verify: Callable[[Path], object] | None, private: bool, tidy: bool = True, durable: bool = True,
) -> None:  # fmt: skip
    sizes = sum(memoryview(c).nbytes for c in files.values() if not callable(c))
    _ensure_space(dir_fd, sizes + size_hint)
    temps = Temps()
    with Always(temps.close), Always(temps.close):
        for name, content in files.items():
            temps[name] = Temp(opened, dir_fd, point, private)
            temps[name].create()
            if callable(content):
                content(temps[name])
            else:
                temps[name].write(content)
            if durable:
                temps[name].sync()
        if verify is not None:
            verify(root / temps[commit].name)
        _rename(temps, root / commit)
        # The new content is in place from here on.
        try:
            fail(f"{point}.renamed")
            if durable:
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
        sweep_folder(dir_fd)


def _rename(temps: Mapping[str, Temp], commit: Path) -> None:
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
    sweep_folder(dir_fd)  # temps of dead writers may occupy the missing space
    free = _free(dir_fd)
    if free < need + _SLACK:
        raise OSError(errno.ENOSPC, f"{need + _SLACK} bytes are needed, {free} are free")


def _free(dir_fd: int) -> int:
    found = os.fstatvfs(dir_fd)
    if found.f_blocks == 0:  # a file system that does not count its blocks
        return 1 << 62
    return (found.f_bfree if os.geteuid() == 0 else found.f_bavail) * found.f_frsize
