"""How two locks differ: blocks of only one, other choices, other times."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, Literal

from dslc.compiler.ir.choice import Measured
from dslc.compiler.lock.model import Block, Lock
from dslc.compiler.lock.text import format_way

Kind = Literal["only in A", "only in B", "another choice", "another time", "other notes"]

#: The kinds in the order of a listing.
KINDS: Final[tuple[Kind, ...]] = ("only in A", "only in B", "another choice", "another time", "other notes")


@dataclass(frozen=True, slots=True)
class Difference:
    """A block that differs. ``before``, ``after``: the winners in A and B; None if only the other one has the block.
    ``other notes``: the winners are equal, and other ways, spread, error or versions differ."""

    kind: Kind
    key: str
    gpu: str
    before: Measured | None
    after: Measured | None

    @property
    def change(self) -> float | None:
        """The winner's time in B compared with A, as a fraction: 0.1 is 10 % more. None if one of them has none."""
        if self.before is None or self.after is None:
            return None
        return self.after.seconds / self.before.seconds - 1

    def as_json(self) -> dict[str, Any]:
        before, after = (None if way is None else format_way(way) for way in (self.before, self.after))
        return {"kind": self.kind, "key": self.key, "gpu": self.gpu, "a": before, "b": after, "change": self.change}


def difference(a: Lock, b: Lock) -> list[Difference]:
    """What differs, by kind, then by key and GPU."""
    found = [
        each for place in {*a.by_place, *b.by_place}
        if (each := _compared(place, a.by_place.get(place), b.by_place.get(place))) is not None
    ]  # fmt: skip
    return sorted(found, key=lambda each: (KINDS.index(each.kind), each.key, each.gpu))


def _compared(place: tuple[str, str], a: Block | None, b: Block | None) -> Difference | None:
    before, after = (None if block is None else block.ways[0] for block in (a, b))
    kind: Kind
    if before is None or after is None:
        kind = "only in A" if after is None else "only in B"
    elif before.choice != after.choice:
        kind = "another choice"
    elif before != after:
        kind = "another time"
    elif a != b:
        kind = "other notes"
    else:
        return None
    return Difference(kind, *place, before, after)
