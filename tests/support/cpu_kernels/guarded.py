"""Memory between pages that nobody may touch, and kernels that run on it in a process of their own."""

from __future__ import annotations

import ctypes
import faulthandler
import mmap
import os
from collections.abc import Callable

import numpy as np

_PAGE = mmap.PAGESIZE
_NONE = 0  # of mprotect: neither read nor written
_LIBC = ctypes.CDLL(None, use_errno=True)


class Guarded:
    """``size`` bytes, shared with child processes. ``at_end``: the guard page follows at once, after at most
    ``align`` - 1 bytes; else the page before them ends where they begin. ``bytes``: as an array."""

    def __init__(self, size: int, *, at_end: bool, align: int = 1) -> None:
        inside = max(_PAGE, size + -size % _PAGE)
        self._map = mmap.mmap(-1, inside + 2 * _PAGE)
        whole = np.frombuffer(self._map, np.uint8)
        first = whole.ctypes.data
        for page in (first, first + _PAGE + inside):
            assert _LIBC.mprotect(ctypes.c_void_p(page), _PAGE, _NONE) == 0, os.strerror(ctypes.get_errno())
        start = inside - size - (inside - size) % align if at_end else 0
        self.bytes = whole[_PAGE + start : _PAGE + start + size]
        self.address = first + _PAGE + start


def signal_of(call: Callable[[], object]) -> int:
    """Runs a call in a child process: 0, or the signal that ended it."""
    child = os.fork()
    if not child:
        faulthandler.disable()  # whoever asks expects the signal
        try:
            call()
        finally:
            os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) * -1
