"""Which process something belongs to, as text, and whether that is still there: for file systems without locks.

``PID START BOOT NODE``: a process's number and when it began, in ticks since the machine started; the start of the
machine; the machine's name. So a number that is given again is told from its first process, and a machine that was
started again from one that runs on.
"""

from __future__ import annotations

import errno
import os
import re
from functools import cache
from pathlib import Path
from typing import Final

#: What a system call says where the file system has no locks: NFS without its daemon, FUSE, 9p.
NO_LOCKS: Final = (errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOTSUP, errno.ENOSYS, errno.EINVAL)
TEXT: Final = re.compile(r"([1-9][0-9]{0,9}) ([0-9]{1,20}) ([0-9a-f]{8}) ([0-9a-f]{8})")
_PROC: Final = Path("/proc")


def me() -> str:
    """This process."""
    return f"{os.getpid()} {_began(os.getpid())} {_boot()} {_node()}"


def gone(text: str) -> bool:
    """Whether the process of a text is known to be no more. That of another machine, or of no sense, is not known."""
    found = TEXT.fullmatch(text)
    if found is None or found[4] != _node():
        return False
    return found[3] != _boot() or _began(int(found[1])) != int(found[2])


def pid_of(text: str) -> int | None:
    """The number of a text's process; None where it has none."""
    first = text.split(" ")[0].strip()
    return int(first) if first.isascii() and first.isdigit() and len(first) <= 10 else None


def stopped(pid: int) -> bool:
    """Whether a process of this machine was stopped, by Ctrl-Z or SIGSTOP, so that it does nothing until it goes on."""
    return _stat(pid)[:1] in (["T"], ["t"])


def runs(pid: int) -> bool:
    """Whether this machine has a process of this number."""
    return bool(_stat(pid))


def _stat(pid: int) -> list[str]:
    """The fields from the third on; none for no such process."""
    try:
        text = (_PROC / str(pid) / "stat").read_text("ascii", "replace")
    except OSError:
        return []
    return text.rpartition(")")[2].split()  # the name before may hold anything


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
