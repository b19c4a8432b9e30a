"""The number of sets of buffers of a case on a GPU, the same on both sides."""

from __future__ import annotations

from typing import Final

_MOST: Final = 16
_TOGETHER: Final = 64 << 20  # bytes


def sets_for(moved: int) -> int:
    """A graph calls the op once on each set, so that no call finds its inputs in the cache, and short ops are long
    enough to be timed."""
    return max(1, min(_MOST, _TOGETHER // max(1, moved)))
