"""Suggests the name that a user probably meant."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from itertools import islice
from typing import Final

_LONGEST: Final = 64  # characters of the name that are compared
_MOST: Final = 10_000  # the name is compared with so many known names; a file may have any number


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The most similar known name, if its similarity is at least two thirds."""
    name = name[:_LONGEST]
    # A name more than twice as long is not similar.
    near = dict.fromkeys(islice((other for other in known if len(other) <= 2 * len(name)), _MOST))
    found = difflib.get_close_matches(name, list(near), n=1, cutoff=2 / 3)
    return found[0] if found else None
