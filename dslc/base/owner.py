"""Identifies a process as text, and tells whether it still exists: for file systems without locks.

``PID START BOOT NODE``: the process's number and its start time, in ticks since the machine's start; the machine's
start; the machine's name. So a reused number is distinguished from its first process, and a restarted machine from one
that kept running.
"""

from __future__ import annotations

import errno
import os
import re
from functools import cache
from pathlib import Path
from typing import Final

#: Errors of a system call on a file system without locks: NFS without its daemon, FUSE, 9p.
NO_LOCKS: Final = (errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOTSUP, errno.ENOSYS, errno.EINVAL)
TEXT: Final = re.compile(r"([1-9][0-9]{0,9}) ([0-9]{1,20}) ([0-9a-f]{8}) ([0-9a-f]{8})")
_PROC: Final = Path("/proc")


def me() -> str:
    """The text of this process."""
    return f"{os.getpid()} {_began(os.getpid())} {_boot()} {_node()}"


def gone(text: str) -> bool:
    """True if the process of a text has certainly ended; False for another machine's process or a malformed text."""
    found = TEXT.fullmatch(text)
    if found is None or found[4] != _node():
        return False
    return found[3] != _boot() or _began(int(found[1])) != int(found[2])


def pid_of(text: str) -> int | None:
    """The number of a text's process; None if it has none."""
    first = text.split(" ")[0].strip()
    return int(first) if first.isascii() and first.isdigit() and len(first) <= 10 else None


def stopped(pid: int) -> bool:
    """True if a process of this machine is stopped, by Ctrl-Z or SIGSTOP, so that it does nothing until it is
    continued."""
    return _stat(pid)[:1] in (["T"], ["t"])


def runs(pid: int) -> bool:
    """True if this machine has a process with this number."""
    return bool(_stat(pid))


def _stat(pid: int) -> list[str]:
    """The fields from the third on; empty if the process does not exist."""
    try:
        text = (_PROC / str(pid) / "stat").read_text("ascii", "replace")
    except OSError:
        return []
    return text.rpartition(")")[2].split()  # the name before them may contain any character


def _began(pid: int) -> int:
    fields = _stat(pid)
    return int(fields[19]) if len(fields) > 19 else 0


@cache
def _boot() -> str:
    try:
        return (_PROC / "sys/kernel/random/boot_id").read_text("ascii")[:8]
    except OSError:
        return "0" * 8


def _node() -> str:
    from hashlib import sha256

    return sha256(os.uname().nodename.encode()).hexdigest()[:8]
