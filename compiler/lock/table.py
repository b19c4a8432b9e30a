"""The tables that dslc ships: measured problems of its examples and benchmarks, for builds without a lock of their own.

They hold own kernels alone, so they depend on no version of a library, and count for builds with own kernels alone.
``benchmarks/shipped_table.py`` makes them of locks.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Final

from dslc.compiler.ir.choice import OWN
from dslc.compiler.lock.find import read_lock
from dslc.compiler.lock.model import Block, Lock

#: The folder of the tables, one for each GPU.
FOLDER: Final = Path(__file__).with_name("tables")


def tables() -> tuple[Path, ...]:
    """The files, sorted by name."""
    return tuple(sorted(FOLDER.glob("*.lock")))


@cache
def shipped() -> Lock:
    """All tables together."""
    return Lock.of(block for path in tables() for block in read_lock(path).blocks)


def table_for(*, vendor: bool) -> Lock:
    """The measurements that a build may obey without a lock. ``vendor``: it may call libraries; these are not in the
    tables, so a table could make it take an own kernel that is slower than a library's."""
    return Lock() if vendor else shipped()


def worth_shipping(blocks: Iterable[Block]) -> Lock:
    """The blocks in which another own kernel won against the default one: what a build without a table would miss."""
    return Lock.of(
        block
        for block in blocks
        if block.default is not None
        and block.ways[0].choice != block.default.choice
        and {way.choice.provider for way in (*block.ways, block.default)} == {OWN}
    )
