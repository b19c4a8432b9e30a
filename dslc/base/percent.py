"""Fractions that were written as percentages."""

from __future__ import annotations


def of_percentage(value: float, *, below: bool = False) -> str | None:
    """The help for a number out of 0..1 that looks like a percentage, as 30 for 0.3; None for another one. ``below``:
    1 is out of range, too."""
    if not 2 <= value <= 100 or (below and value == 100):
        return None
    return f"it is a fraction, no percentage: write {value / 100:g}"
