"""The GPU's capability, and the versions of its driver and libraries on this machine."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Final

_HOST_DRIVER: Final = Path("/sys/module/nvidia/version")


def capability_of(target: str) -> tuple[int, int]:
    """(9, 0) of ``sm_90``."""
    return int(target[3:-1]), int(target[-1])


def driver_version(number: int) -> str:
    """The version of the kernel driver, ``580.159.03``; else the CUDA version that it supports, ``13.0``."""
    with suppress(OSError):
        return _HOST_DRIVER.read_text(encoding="ascii").strip()
    return f"{number // 1000}.{number % 1000 // 10}"


def library_versions() -> str:
    """The versions of the packages of NVIDIA's libraries here."""
    from importlib.metadata import PackageNotFoundError, version

    found = []
    for package in ("nvidia-cublas", "nvidia-cudnn-cu13", "nvidia-cudnn-frontend"):
        try:
            found.append(f"{package} {version(package)}")
        except PackageNotFoundError:
            found.append(f"{package} none")
    return ", ".join(found)
