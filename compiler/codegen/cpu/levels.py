"""The CPU levels: the instruction sets for which an artifact may hold objects."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Level:
    """An instruction set for which objects are compiled. ``registers``: the vectors of 64 bytes that its registers
    hold, from which kernels choose tiles."""

    triple: str
    cpu: str
    registers: int
    features: str = ""


#: By the names of the blobs. The runtime takes the last level of its architecture whose features the machine has.
LEVELS: Final[Mapping[str, Level]] = {
    "x86_64_v3": Level("x86_64-unknown-linux-gnu", "x86-64-v3", 8),
    "x86_64_v4": Level("x86_64-unknown-linux-gnu", "x86-64-v4", 32),
    "armv8_2": Level("aarch64-unknown-linux-gnu", "generic", 8, "+v8.2a,+neon,+lse,+rdm"),
}
#: The build option for an artifact with an object for every level.
ALL: Final = "all"


def levels_of(cpu: str) -> tuple[str, ...]:
    """The levels of a build: every one for ``ALL``, else the one of that name."""
    return tuple(LEVELS) if cpu == ALL else (cpu,)
