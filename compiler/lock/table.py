"""The tables that dslc ships: locks with measured problems of common models, for builds without a lock of their own."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Final

from dslc.compiler.lock.find import read_lock
from dslc.compiler.lock.model import Lock

_TABLES: Final = Path(__file__).with_name("tables")


def tables() -> tuple[Path, ...]:
    """The files, sorted by name."""
    return tuple(sorted(_TABLES.glob("*.lock")))


@cache
def shipped() -> Lock:
    """All tables together."""
    return Lock.of(block for path in tables() for block in read_lock(path).blocks)
