"""Finds the level of the instruction set that this machine's CPU supports."""

from __future__ import annotations

import platform
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from dslc.base.errors import EnvironmentFault

#: Level -> architecture and required features, by Linux's names; of one architecture, the later level is better.
#: Linux lists a feature only if it also saves the feature's registers.
LEVELS: Final[Mapping[str, tuple[str, tuple[str, ...]]]] = {
    "x86_64_v3": ("x86_64", ("avx2", "bmi1", "bmi2", "f16c", "fma", "abm", "movbe")),
    "x86_64_v4": ("x86_64", ("avx2", "fma", "avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl")),
    "armv8_2": ("aarch64", ("asimd", "atomics")),
}
_CPUINFO: Final = Path("/proc/cpuinfo")


def machine_level(offered: Iterable[str]) -> str:
    """The best of the offered levels that this machine supports. EnvironmentFault R202 if it supports none."""
    architecture, features, listed = platform.machine(), cpu_features(), list(offered)
    runs = [n for n, (wanted, needed) in LEVELS.items() if wanted == architecture and features.issuperset(needed)]
    fitting = [name for name in runs if name in listed]
    if not fitting:
        raise EnvironmentFault(
            "R202",
            f"the artifact holds code for {', '.join(listed) or 'no CPU'}, which this {architecture} cannot run",
            help="build it for all CPUs: dslc build (`dslc train` compiles for its own machine only)"
            if runs
            else "build it with --providers reference, or run it on a newer CPU",
        )
    return fitting[-1]


def cpu_features() -> frozenset[str]:
    """The features of the first processor, by Linux's names. EnvironmentFault R202 if the system does not say them."""
    try:
        lines = _CPUINFO.read_text("ascii", errors="replace").splitlines()
    except OSError as error:
        cause = f"the features of the CPU are unknown: {error.strerror}"
        raise EnvironmentFault("R202", cause, place=str(_CPUINFO), help="mount /proc") from error
    for line in lines:
        name, _, value = line.partition(":")
        if name.strip() in ("flags", "Features"):
            return frozenset(value.split())
    return frozenset()
