"""What a tuning has measured, and what it could not."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from dslc.compiler.lock.model import Block


@dataclass
class Outcome:
    """``blocks``: of the problems that are measured by now. ``left``: the keys that the budget did not reach, or an
    interrupt; ``refused``: why a problem cannot be measured, by key. ``calls``: how often a build that obeys the blocks
    computes each; 0 if it only compares its time with others, or poses it no longer. ``unlisted``: for each library
    that could not list its ways, its name with the reason, and the number of problems."""

    gpu: str
    target: str
    blocks: list[Block] = field(default_factory=list)
    left: list[str] = field(default_factory=list)
    refused: dict[str, str] = field(default_factory=dict)
    calls: Mapping[str, int] = field(default_factory=dict)
    unlisted: dict[str, int] = field(default_factory=dict)
    tuned: int = 0
    found: int = 0
    restarts: int = 0
    seconds: float = 0.0
    interrupted: bool = False

    @property
    def gain(self) -> tuple[float, float]:
        """Seconds of all calls of the measured problems, by default and by the winners."""
        pairs = [(self.calls[b.key], b) for b in self.blocks if b.default is not None]
        return (
            sum(count * block.default.seconds for count, block in pairs if block.default is not None),
            sum(count * block.ways[0].seconds for count, block in pairs),
        )
