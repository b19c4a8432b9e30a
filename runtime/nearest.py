"""The name that a user probably meant."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from itertools import islice
from typing import Final

_LONGEST: Final = 64  # characters of the name that are looked at
_MOST: Final = 10_000  # names that it is compared with, the first: a file may have any number


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The known name that is meant, when one is close (similarity of at least two thirds)."""
    name = name[:_LONGEST]
    # One that is more than twice as long is not close.
    near = dict.fromkeys(islice((other for other in known if len(other) <= 2 * len(name)), _MOST))
    found = difflib.get_close_matches(name, list(near), n=1, cutoff=2 / 3)
    return found[0] if found else None
