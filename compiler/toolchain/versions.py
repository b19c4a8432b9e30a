"""The versions of all components that can change an artifact's bytes."""

from __future__ import annotations

import sys
from collections.abc import Collection
from functools import cache
from importlib.metadata import PackageNotFoundError, version

from dslc.base.version import VERSION
from dslc.compiler.codegen.targets import DEFAULT, TARGETS


def toolchain(targets: Collection[str] = (DEFAULT,)) -> dict[str, str]:
    """Name -> version: dslc, Python's minor version, and the packages that compile for the targets (``none`` if one is
    not installed)."""
    packages = dict.fromkeys(package for target in targets for package in TARGETS[target].packages)
    return {
        "dslc": VERSION,
        "python": f"{sys.version_info.major}.{sys.version_info.minor}",
        **{package: _installed(package) for package in packages},
    }


@cache
def _installed(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "none"
