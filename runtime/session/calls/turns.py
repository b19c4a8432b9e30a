"""The programs of a step with several updates, each of which has programs of its own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dslc.runtime.artifact.interface import Train
    from dslc.runtime.session.context import Loaded


def in_turn(train: Train, first: Loaded, programs: Sequence[Loaded]) -> list[Loaded]:
    """``first``, the program of the first update or of all, and those of the later updates in their order."""
    alike = {program.turn: program for program in programs if program.sizes == first.sizes}
    return [first, *(alike[name] for name in train.turns[1:])]


def of_turn(whole: Loaded, programs: Sequence[Loaded]) -> Loaded:
    """The program of another entry for the same update and sizes."""
    return next(p for p in programs if p.sizes == whole.sizes and p.turn == whole.turn)
