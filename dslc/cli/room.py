"""Checks the free address space before a C library is loaded that would end the process or crash without it.

OpenBLAS calls exit, LLVM aborts, and the initialisation of either may crash. So if `ulimit -v` limits the process,
their needs are compared with the remaining address space before they are loaded.
"""

from __future__ import annotations

import resource
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Final

from dslc.base.errors import OutOfMemory

_MIB: Final = 1 << 20
#: Address space in bytes by package: numpy 2.4 with OpenBLAS took 81 MiB, llvmlite 0.50 with LLVM and numba 180 MiB
#: (x86-64, 2026-11). About a third is added for their first work.
_NEEDS: Final = {"numpy": 120 * _MIB, "llvmlite": 240 * _MIB}
#: For Python's own modules and ours: with less, the interpreter itself sometimes fails without an exception.
LEAST: Final = 24 * _MIB
_STATM: Final = Path("/proc/self/statm")


class Room:
    """An import hook that finds no module, but raises OutOfMemory R401 for a package that does not fit."""

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> None:
        if name in _NEEDS:
            require(_NEEDS[name], name)


def require(need: int, what: str) -> None:
    """Raise OutOfMemory R401 unless the process may allocate ``need`` more bytes of address space."""
    left = bytes_left()
    if left is not None and left < need:
        raise OutOfMemory(
            "R401",
            f"{what} needs {need // _MIB} MiB, and the process limit leaves {max(0, left) // _MIB} MiB more",
            help="raise its limit: `ulimit -v unlimited`",
        )


def watch() -> None:
    """Checks every later import if a limit is set. Raises OutOfMemory R401 if the limit is already too low."""
    if bytes_left() is not None:
        require(LEAST, "dslc")
        if not any(isinstance(finder, Room) for finder in sys.meta_path):
            sys.meta_path.insert(0, Room())


def bytes_left() -> int | None:
    """Bytes of address space that the process may still allocate; None without a limit."""
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    return None if limit == resource.RLIM_INFINITY else limit - _taken()


def _taken() -> int:
    """Bytes of address space that the process uses; 0 if the system does not report it."""
    try:
        return int(_STATM.read_text("ascii").split()[0]) * resource.getpagesize()
    except OSError:
        return 0
