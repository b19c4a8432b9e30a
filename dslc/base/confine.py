"""Limits for a process that runs a library on untrusted bytes: its memory, its files, its environment.

Such a library may crash, loop or take all memory. In a process of its own it can do no harm: the parent is told how the
process ended, and refuses the file.
"""

from __future__ import annotations

import os
import resource
from typing import Final

#: What Python, its packages and the dynamic loader need; anything else, such as a token for a service, stays here.
_PASSED: Final = ("HOME", "PATH", "VIRTUAL_ENV", "CONDA_PREFIX", "LANG", "TMPDIR")
_PASSED_HEADS: Final = ("LC_", "LD_", "PYTHON")


def confine(memory: int) -> None:
    """Limit this process: ``memory`` bytes of address space beyond what it has now; it writes no file and no core."""
    with open("/proc/self/statm", encoding="ascii") as file:
        pages = int(file.read().split()[0])
    for kind, limit in (
        (resource.RLIMIT_AS, pages * os.sysconf("SC_PAGE_SIZE") + memory),
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_FSIZE, 0),
    ):
        _, hard = resource.getrlimit(kind)
        lowest = limit if hard == resource.RLIM_INFINITY else min(limit, hard)
        resource.setrlimit(kind, (lowest, lowest))


def bare_environment(**more: str) -> dict[str, str]:
    """The variables of this process's environment that a Python program needs, and ``more``."""
    passed = {n: v for n, v in os.environ.items() if n in _PASSED or n.startswith(_PASSED_HEADS)}
    return {**passed, **more}
