"""Loads the objects of an artifact: puts an object's code into executable memory and finds the kernels' addresses.

An object is one section of code that refers to nothing else (``object_check``), so loading it is copying it. Nothing is
compiled. Code for AArch64 refers to its own parts by relocations, which ``relocation`` applies.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import platform
from collections.abc import Iterable, Mapping
from typing import Any, Final, NoReturn

from dslc.base.errors import ArtifactError, EnvironmentFault
from dslc.runtime.cpu.levels import machine_level
from dslc.runtime.cpu.object_check import AARCH64, X86_64, check_object
from dslc.runtime.cpu.relocation import relocated

DRIVER: Final = "dslc_run2"

_MACHINES: Final = {"x86_64": X86_64, "aarch64": AARCH64}


class Objects:
    """An object in executable memory; keep it while its kernels may run. ``driver``: the address of ``dslc_run2``.

    Raises ArtifactError R301 for an object that calls external code, is for another machine, or lacks one of
    ``symbols``; EnvironmentFault R209 if the system refuses executable memory.
    """

    def __init__(self, data: bytes | memoryview, symbols: Iterable[str]) -> None:
        code = check_object(data, "code")
        if code.machine != _MACHINES.get(platform.machine()):
            _refuse(f"the object is not for this machine, {platform.machine()}")
        names = sorted({DRIVER, *symbols})
        missing = [name for name in names if name not in code.symbols]
        if missing:
            _refuse(f"the object lacks the kernel `{missing[0]}`")
        self._memory = _Memory(max(1, len(code.text)))
        self._memory.fill(relocated(code, self._memory.address))
        self._addresses = {name: self._memory.address + code.symbols[name] for name in names}
        self.driver = self._addresses[DRIVER]

    def address(self, symbol: str) -> int:
        """The address of a kernel."""
        return self._addresses[symbol]


class _Memory:
    """Whole pages at ``address``: writable until ``fill``, then executable and no longer writable. They are returned to
    the system with this object."""

    def __init__(self, size: int) -> None:
        self._pages = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        self._view = (ctypes.c_char * size).from_buffer(self._pages)
        self.address = ctypes.addressof(self._view)

    def fill(self, code: bytes) -> None:
        """Writes the code and makes the pages executable. EnvironmentFault R209."""
        self._pages[: len(code)] = code
        if platform.machine() == "aarch64":
            _synchronize(self.address, len(code))
        libc: Any = ctypes.CDLL(None, use_errno=True)
        libc.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
        if libc.mprotect(self.address, len(self._pages), mmap.PROT_READ | mmap.PROT_EXEC) != 0:
            why = os.strerror(ctypes.get_errno()).lower()
            raise EnvironmentFault(
                "R209",
                f"the system refuses executable memory: {why}",
                help="allow it (SELinux: execmem), or build with --providers reference",
            )


def _synchronize(address: int, size: int) -> None:
    """Makes written code visible to instruction fetches; AArch64 does not do it by itself. EnvironmentFault R209."""
    try:
        clear: Any = ctypes.CDLL("libgcc_s.so.1").__clear_cache  # GCC's run-time library exports it for AArch64
    except (OSError, AttributeError) as error:
        cause = "kernels for AArch64 need libgcc_s.so.1, which is not here"
        raise EnvironmentFault("R209", cause, help="install libgcc (libgcc-s1)") from error
    clear.argtypes = [ctypes.c_void_p, ctypes.c_void_p]
    clear.restype = None
    clear(address, address + size)


def _refuse(cause: str) -> NoReturn:
    raise ArtifactError("R301", cause, place="code", help="build the artifact again")


def load_objects(blobs: Mapping[str, memoryview], symbols: Iterable[str]) -> Objects:
    """The object for this machine's level. ``blobs``: all objects of an artifact by their names, ``code.LEVEL``."""
    stem = "code."
    level = machine_level(name.removeprefix(stem) for name in blobs if name.startswith(stem))
    return Objects(blobs[stem + level], symbols)
