"""The versions of all components that can change an artifact's bytes."""

from __future__ import annotations

import sys
from collections.abc import Collection
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from typing import Final

from dslc.base.version import VERSION

#: The packages that compile for GPUs: Numba and the compilers of CUDA C++ and PTX, and the linker.
_CUDA: Final = ("numba", "numba-cuda", "nvidia-cuda-nvrtc", "nvidia-nvvm", "nvidia-nvjitlink")


def toolchain(targets: Collection[str] = ("cpu",)) -> dict[str, str]:
    """Name -> version: dslc, Python's minor version, llvmlite (whose LLVM compiles for CPUs), and for GPU targets the
    packages that compile for these (``none`` if one is not installed)."""
    import llvmlite

    found = {
        "dslc": VERSION,
        "llvmlite": llvmlite.__version__,
        "python": f"{sys.version_info.major}.{sys.version_info.minor}",
    }
    if any(target != "cpu" for target in targets):
        found |= {name: _installed(name) for name in _CUDA}
    return found


@cache
def _installed(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "none"
