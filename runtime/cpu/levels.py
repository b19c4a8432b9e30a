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
_VECTORS: Final = ("avx", "amx", "fma", "f16c", "sse", "ssse", "asimd", "sve", "sme", "bf16", "i8mm")
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
    facts = _cpuinfo()
    return frozenset(next((facts[name].split() for name in ("flags", "Features") if name in facts), []))


def cpu_kind() -> tuple[str, str]:
    """The CPU's maker and family, and its instructions for vectors. Code that is chosen by these, as in numpy and its
    BLAS, computes the same bits on two CPUs of one kind. EnvironmentFault R202 if the system does not say them."""
    facts = _cpuinfo()
    names = ("vendor_id", "cpu family", "CPU implementer", "CPU architecture")
    vectors = sorted(name for name in cpu_features() if name.startswith(_VECTORS))
    return " ".join(facts[name] for name in names if name in facts), " ".join(vectors)


def _cpuinfo() -> dict[str, str]:
    """What Linux says of the first processor."""
    try:
        lines = _CPUINFO.read_text("ascii", errors="replace").splitlines()
    except OSError as error:
        cause = f"the features of the CPU are unknown: {error.strerror}"
        raise EnvironmentFault("R202", cause, place=str(_CPUINFO), help="mount /proc") from error
    found: dict[str, str] = {}
    for line in lines:
        name, _, value = line.partition(":")
        found.setdefault(name.strip(), value.strip())
    return found
