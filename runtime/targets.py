"""Which of an artifact's targets a GPU runs: ``sm_90`` is code for compute capability 9.0."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

_TARGET: Final = re.compile(r"sm_(\d+)(\d)(a?)")


@dataclass(frozen=True, slots=True)
class Choice:
    """The target to load. ``through_ptx``: the GPU is newer than its cubins, the driver compiles its PTX."""

    target: str
    through_ptx: bool


def capability_of(target: str) -> tuple[int, int] | None:
    """(9, 0) for ``sm_90`` and ``sm_90a``; None for a target that is no NVIDIA GPU."""
    found = _TARGET.fullmatch(target)
    return None if found is None else (int(found[1]), int(found[2]))


def choose_target(targets: Iterable[str], capability: tuple[int, int]) -> Choice | None:
    """The best of ``targets`` for a GPU; None where it runs none.

    Cubins of sm_XY run on X.Z with Z >= Y, those of sm_XYa on X.Y alone; of several, the GPU's own, then the newest.
    PTX of an older architecture is compiled by the driver; never that of one with an ``a``, which other GPUs lack.
    """
    known = [(capability_of(t), t) for t in targets]
    ours = [(have, target) for have, target in known if have is not None and have <= capability]
    direct = [
        (have, target)
        for have, target in ours
        if have[0] == capability[0] and (not target.endswith("a") or have == capability)
    ]
    if direct:
        return Choice(max(direct)[1], False)
    older = [(have, target) for have, target in ours if not target.endswith("a")]
    return Choice(max(older)[1], True) if older else None
