"""The tables that dslc ships: measured problems of its examples and benchmarks, for builds without a lock of their own.

They hold own kernels alone, so they depend on no version of a library. A build that may call libraries takes from them
what no library computes: reductions, norms, attention.
``benchmarks/shipped_table.py`` makes them of locks.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Final

from dslc.compiler.ir.choice import OWN
from dslc.compiler.ir.op import PRODUCT_KINDS
from dslc.compiler.lock.find import read_lock
from dslc.compiler.lock.model import Block, Lock
from dslc.compiler.ops.compound.contraction import contraction
from dslc.compiler.ops.registry import ops

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
    """The measurements that a build may obey without a lock. ``vendor``: it may call libraries. These are not in the
    tables, so the table's own kernel of a contraction could be slower than a library's, and does not count."""
    if not vendor:
        return shipped()
    return Lock(tuple(block for block in shipped().blocks if not _of_libraries(block.key.partition(" ")[0])))


def worth_shipping(blocks: Iterable[Block]) -> Lock:
    """The blocks in which another own kernel won against the default one: what a build without a table would miss."""
    return Lock.of(
        block
        for block in blocks
        if block.default is not None
        and block.ways[0].choice != block.default.choice
        and {way.choice.provider for way in (*block.ways, block.default)} == {OWN}
    )


def _of_libraries(name: str) -> bool:
    """Whether a library may compute an op, or a part of it."""
    return name == contraction.name or ops()[name].kernel_kind in PRODUCT_KINDS
