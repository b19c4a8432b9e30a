"""Removes the temp files whose writers have ended."""

from __future__ import annotations

import os
import stat
from typing import Final

from dslc.base import owner
from dslc.base.filelock import leads_to, try_flock
from dslc.base.opened import Opened
from dslc.base.temps.temp import TEMP

_LONG: Final = 86400.0  # age in seconds at which an unlocked temp of another machine counts as abandoned


def sweep_folder(dir_fd: int) -> tuple[int, int]:
    """Removes them from an open folder: (removed, left because alive or not removable)."""
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
