"""The name that a user probably meant."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The known name that is meant, when one is close (similarity of at least two thirds)."""
    found = difflib.get_close_matches(name[:64], list(known), n=1, cutoff=2 / 3)
    return found[0] if found else None
