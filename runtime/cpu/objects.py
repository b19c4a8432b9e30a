"""Loads the objects of an artifact: finds this machine's CPU level and the addresses of an object's kernels.

The only module of the runtime that uses llvmlite. It links and relocates; nothing is compiled.
"""

from __future__ import annotations

import platform
from collections.abc import Iterable, Mapping
from typing import Any, Final

from dslc.base.errors import ArtifactError, EnvironmentFault
from dslc.runtime.cpu.object_check import check_object

DRIVER: Final = "dslc_run2"

#: Level -> architecture and required LLVM features; of one architecture, the later level is better.
_LEVELS: Final[Mapping[str, tuple[str, tuple[str, ...]]]] = {
    "x86_64_v3": ("x86_64", ("avx2", "bmi", "bmi2", "f16c", "fma", "lzcnt", "movbe")),
    "x86_64_v4": ("x86_64", ("avx2", "fma", "avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl")),
    "armv8_2": ("aarch64", ("neon", "lse")),
}


def machine_level(offered: Iterable[str]) -> str:
    """The best of the offered levels that this machine supports. EnvironmentFault R202 if it supports none, R205
    without llvmlite."""
    llvm = _llvm()

    architecture, features = platform.machine(), llvm.get_host_cpu_features()
    listed = list(offered)
    fitting = [
        name
        for name, (wanted, needed) in _LEVELS.items()
        if name in listed and wanted == architecture and all(features.get(f, False) for f in needed)
    ]
    if not fitting:
        raise EnvironmentFault(
            "R202",
            f"the artifact holds code for {', '.join(listed) or 'no CPU'}, which this {architecture} cannot run",
            help="build it with --providers reference, or run it on a newer CPU",
        )
    return fitting[-1]


def _llvm() -> Any:
    try:
        import llvmlite.binding
    except ImportError as error:
        raise EnvironmentFault(
            "R205", "kernels of a CPU are loaded through llvmlite, which is not installed", help="pip install llvmlite"
        ) from error
    return llvmlite.binding


class Objects:
    """An object in executable memory; keep it while its kernels may run. ``driver``: the address of ``dslc_run2``.

    Raises ArtifactError R301 for an object that calls external code, cannot be linked, or lacks one of ``symbols``.
    """

    def __init__(self, data: bytes, symbols: Iterable[str]) -> None:
        check_object(data, "code")
        llvm = _llvm()
        llvm.initialize_native_target()
        llvm.initialize_native_asmprinter()
        # The linker would resolve names in this process; the check has ensured that no name is undefined.
        builder = llvm.JITLibraryBuilder().add_object_img(data)
        names = sorted({DRIVER, *symbols})
        for name in names:
            builder.export_symbol(name)
        self._jit: Any = llvm.create_lljit_compiler()
        try:
            self._library: Any = builder.link(self._jit, "kernels")
        except RuntimeError as error:
            raise ArtifactError(
                "R301", f"an object cannot be linked: {error}", place="code", help="build the artifact again"
            ) from error
        self._addresses = {name: int(self._library[name]) for name in names}
        self.driver = self._addresses[DRIVER]

    def address(self, symbol: str) -> int:
        """The address of a kernel."""
        return self._addresses[symbol]


def load_objects(blobs: Mapping[str, memoryview], symbols: Iterable[str]) -> Objects:
    """The object for this machine's level. ``blobs``: all objects of an artifact by their names, ``code.LEVEL``."""
    stem = "code."
    level = machine_level(name.removeprefix(stem) for name in blobs if name.startswith(stem))
    return Objects(bytes(blobs[stem + level]), symbols)
