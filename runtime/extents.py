"""How many bytes a launch of a kernel touches of each buffer at most: rows of the header, and plans compared with them.

Code, grid and the arguments by value settle what a kernel can touch, so one row serves all launches that are equal in
these.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from operator import gt
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from dslc.runtime.artifact.dtypes import ITEMSIZE

if TYPE_CHECKING:
    from dslc.runtime.artifact.instructions import Kernel
    from dslc.runtime.artifact.plan import Plan

#: Symbol, grid, block, shared bytes, a letter for each argument, and the arguments by value.
Key: TypeAlias = tuple[str, tuple[int, ...], tuple[int, ...], int, str, tuple[tuple[str, int | float], ...]]
#: The bytes of each launch's pointers, in the order of the arguments.
Extents: TypeAlias = Mapping[Key, Sequence[int]]
LETTERS: Final = {"in": "r", "out": "w", "inout": "b", "scalar": "s", "i32": "v", "i64": "v", "f32": "v", "f64": "v"}
_POINTERS: Final = ("in", "out", "inout", "scalar")


def rows_of(plans: Iterable[Plan]) -> list[list[Any]]:
    """The header's rows for all launches of the plans, in the order of their keys.

    Launches of one key may have buffers of several sizes, since a kernel need not touch all of one: the least counts.
    """
    from dslc.runtime.artifact.instructions import Kernel  # who reads a header does without

    found: dict[Key, list[int]] = {}
    for plan in plans:
        sizes = [b.bytes for b in plan.buffers]
        for kernel in plan.instructions:
            if isinstance(kernel, Kernel):
                key, given = launch_key(kernel), given_bytes(kernel, plan, sizes)
                found[key] = list(map(min, found.get(key, given), given))
    return [[*map(_listed, key), touched] for key, touched in sorted(found.items())]


def extents_of(header: Mapping[str, Any]) -> Extents | None:
    """Those that a checked header holds; None for an artifact of a format that has none."""
    rows = header.get("kernels")
    return None if rows is None else {key_of(row): row[-1] for row in rows}


def key_of(row: Sequence[Any]) -> Key:
    """That of a header's row."""
    symbol, grid, block, shared_bytes, letters, values, _ = row
    return symbol, tuple(grid), tuple(block), shared_bytes, letters, tuple(map(tuple, values))


def launch_key(kernel: Kernel) -> Key:
    """What settles the bytes that a launch touches."""
    letters = "".join([LETTERS[kind] for kind, _ in kernel.args])
    values = tuple([arg for arg in kernel.args if arg[0] not in _POINTERS]) if "v" in letters else ()
    return kernel.symbol, kernel.grid, kernel.block, kernel.shared_bytes, letters, values


def given_bytes(kernel: Kernel, plan: Plan, sizes: Sequence[int]) -> list[int]:
    """Bytes of what each pointer of a launch points to. ``sizes``: those of the plan's buffers."""
    return [
        sizes[int(value)] if kind != "scalar" else ITEMSIZE[plan.scalars[int(value)].dtype]
        for kind, value in kernel.args
        if kind in _POINTERS
    ]


def extent_fault(kernel: Kernel, plan: Plan, sizes: Sequence[int], extents: Extents) -> tuple[str, str] | None:
    """The field of a launch whose buffers are fewer, other or smaller than its kernel needs, and the rule; or None."""
    needed = extents.get(launch_key(kernel))
    if needed is None:
        return "", f"the header's kernels contain no such launch of {kernel.symbol}: grid, block, memory, arguments"
    given = given_bytes(kernel, plan, sizes)
    if not any(map(gt, needed, given)):
        return None
    number = next(n for n, (one, other) in enumerate(zip(needed, given, strict=True)) if one > other)
    index, (kind, value) = [(i, a) for i, a in enumerate(kernel.args) if a[0] in _POINTERS][number]
    what = f"scalar {value}" if kind == "scalar" else str(plan.buffers[int(value)])
    who = f"{kernel.symbol} ({plan.names[kernel.where]})"
    return f".args[{index}]", f"{who} touches {needed[number]} bytes of {what}, which has {given[number]}"


def _listed(part: object) -> object:
    return [_listed(p) for p in part] if isinstance(part, tuple) else part
