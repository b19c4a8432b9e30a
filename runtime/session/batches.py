"""Splits the rows of a call into the built batch sizes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Cut:
    """Rows ``start`` to ``start + rows`` of the call, run in a program built for ``size`` >= rows rows."""

    start: int
    rows: int
    size: int


def cut(total: int, sizes: Sequence[int], *, pad: bool) -> tuple[Cut, ...] | None:
    """The pieces of ``total`` rows.

    With ``pad``: as many pieces of the largest size as fit, then the rest in the smallest size that holds it. Without:
    as many pieces of each size as fit, largest size first; None if rows remain.
    """
    largest = max(sizes)
    pieces: list[Cut] = []
    start = 0
    for size in [largest] if pad else sorted(set(sizes), reverse=True):
        while total - start >= size:
            pieces.append(Cut(start, size, size))
            start += size
    rest = total - start
    if rest and not pad:
        return None
    if rest:
        pieces.append(Cut(start, rest, min(s for s in sizes if s >= rest)))
    return tuple(pieces)
