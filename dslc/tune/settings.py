"""The settings of a tuning."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

MODES: Final = ("off", "limited", "fastest")
#: In a block's rejected ways, after a number.
UNTRIED: Final = "were not tried: this problem's part of the budget was used up"


@dataclass(frozen=True, slots=True)
class Settings:
    """``mode``: ``off`` measures the defaults alone; ``limited`` also ways with at most ``workspace_limit`` bytes of
    workspace; ``fastest`` all. ``deterministic``: only ways that give the same bits each time. ``budget``: seconds.
    ``again``: measure what was measured before, too. ``gpu``: its index."""

    mode: str = "limited"
    workspace_limit: int = 32 << 20
    deterministic: bool = True
    budget: float = 120.0
    again: bool = False
    gpu: int = 0

    @property
    def limit(self) -> int | None:
        """The most bytes of workspace; None: any."""
        return None if self.mode == "fastest" else self.workspace_limit
