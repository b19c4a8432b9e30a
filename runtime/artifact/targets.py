"""Selects which of an artifact's targets a GPU runs: ``sm_90`` is code for compute capability 9.0."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

_TARGET: Final = re.compile(r"sm_(\d+)(\d)(a?)")


@dataclass(frozen=True, slots=True)
class Choice:
    """The target to load. ``through_ptx``: the GPU is newer than the cubins, so the driver compiles the PTX."""

    target: str
    through_ptx: bool


def capability_of(target: str) -> tuple[int, int] | None:
    """(9, 0) for ``sm_90`` and ``sm_90a``; None for a target that is not an NVIDIA GPU."""
    found = _TARGET.fullmatch(target)
    return None if found is None else (int(found[1]), int(found[2]))


def choose_target(targets: Iterable[str], capability: tuple[int, int]) -> Choice | None:
    """The best of ``targets`` for a GPU; None if the GPU runs none of them.

    Cubins of sm_XY run on X.Z with Z >= Y, those of sm_XYa only on X.Y. Among several, the GPU's own target wins, then
    the newest. The driver compiles PTX of an older architecture, but never of an ``a`` target, which other GPUs do not
    support.
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
