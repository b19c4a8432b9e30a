"""The step block at the head of the io region: scalars that every entry may have, then lr and the float arguments by
name, 8 bytes each."""

from __future__ import annotations

from typing import Final

from dslc.runtime.artifact.reserved import STEP_BLOCK

_FIXED_SCALARS: Final = {"step": 0, "seed": 8, "row": 16}
_FIRST_SLOT: Final = 24
_SLOT: Final = 8
#: most float arguments of a train section: lr takes the first slot
MOST_FLOATS: Final = (STEP_BLOCK - _FIRST_SLOT) // _SLOT - 1


def scalar_offsets(names: list[str]) -> dict[str, int]:
    """Offsets of the scalars of an entry in the step block; the check refuses too many."""
    others = sorted((n for n in names if n not in _FIXED_SCALARS), key=lambda n: (n != "lr", n))
    assert len(others) <= MOST_FLOATS + 1, f"{len(others)} numbers of a step"
    return {**_FIXED_SCALARS, **{name: _FIRST_SLOT + _SLOT * i for i, name in enumerate(others)}}
