"""The versions of everything that can change an artifact's bytes."""

from __future__ import annotations

import sys

from dslc.base.version import VERSION


def toolchain() -> dict[str, str]:
    """Name -> version: dslc, Python's minor version, and llvmlite, which brings the LLVM that makes code for CPUs."""
    import llvmlite

    return {
        "dslc": VERSION,
        "llvmlite": llvmlite.__version__,
        "python": f"{sys.version_info.major}.{sys.version_info.minor}",
    }
