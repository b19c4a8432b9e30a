"""Named points in the code at which a test can make this process fail.

``fail("ckpt.rename")`` marks a place at which a fault would do harm. It does nothing unless the environment variable
was set when the process started:

    DSLC_FAILPOINT=NAME:N:ACTION[,NAME:N:ACTION...]      act at the N-th passage of NAME (from 1)
    DSLC_FAILPOINT=trace                                  log every point that is passed, and continue

ACTION is ``kill`` (SIGKILL to this process), ``hang`` (sleep until killed), or an errno in lower case (``enospc``,
``eio``, ``edquot``, ``erofs``, ``eacces``, ``emfile``), raised as an OSError. Before the action, one line
``NAME N ACTION`` is written to the file named by DSLC_FAILPOINT_LOG, else to stderr, so a test can prove that the fault
occurred. If the variable is not set, ``fail`` is an empty function.
"""

from __future__ import annotations

import errno
import os
import signal
import threading
import time
from collections import Counter
from typing import Final, NoReturn

VARIABLE: Final = "DSLC_FAILPOINT"
LOG_VARIABLE: Final = "DSLC_FAILPOINT_LOG"
ERRNOS: Final[dict[str, int]] = {
    name.lower(): getattr(errno, name) for name in ("ENOSPC", "EIO", "EDQUOT", "EROFS", "EACCES", "EMFILE")
}
ACTIONS: Final = ("kill", "hang", *ERRNOS)

_passed: Counter[str] = Counter()
_guard = threading.Lock()


def _parse(text: str) -> dict[tuple[str, int], str]:
    """``a.b:2:kill,c:1:eio`` -> {("a.b", 2): "kill", ("c", 1): "eio"}; ValueError if malformed."""
    wanted: dict[tuple[str, int], str] = {}
    for part in text.split(","):
        name, _, rest = part.partition(":")
        number, _, action = rest.partition(":")
        if not name or not number.isascii() or not number.isdigit() or int(number) < 1 or action not in ACTIONS:
            raise ValueError(f"{VARIABLE}={text!r}: expected NAME:N:ACTION, ACTION one of {', '.join(ACTIONS)}")
        wanted[name, int(number)] = action
    return wanted


def _note(line: str) -> None:
    data = (line + "\n").encode()
    path = os.environ.get(LOG_VARIABLE)
    if path is None:
        os.write(2, data)
        return
    log = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        os.write(log, data)
    finally:
        os.close(log)


def _act(name: str, action: str) -> NoReturn:
    if action in ERRNOS:
        raise OSError(ERRNOS[action], os.strerror(ERRNOS[action]), f"failpoint {name}")
    if action == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    while True:  # `hang`, or the time until SIGKILL arrives
        time.sleep(3600)


def _count(name: str) -> int:
    with _guard:
        _passed[name] += 1
        return _passed[name]


def _off(name: str) -> None:
    """Pass a point: do nothing."""


def _trace(name: str) -> None:
    """Pass a point: log it."""
    _note(f"{name} {_count(name)} trace")


def _armed(name: str) -> None:
    """Pass a point: log it and act if the environment demands it."""
    number = _count(name)
    action = _wanted.get((name, number))
    if action is not None:
        _note(f"{name} {number} {action}")
        _act(name, action)


_setting = os.environ.get(VARIABLE, "")
_wanted = _parse(_setting) if _setting not in ("", "trace") else {}
fail = _trace if _setting == "trace" else _armed if _wanted else _off
