"""Plans -> the header's rows of how many bytes each launch of a kernel touches of its buffers."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from dslc.runtime.extents import Key, given_bytes, launch_key
from dslc.runtime.instructions import Kernel
from dslc.runtime.plan import Plan


def rows_of(plans: Iterable[Plan]) -> list[list[Any]]:
    """The header's rows for all launches of the plans, in the order of their keys.

    Launches of one key may have buffers of several sizes, since a kernel need not touch all of one: the least counts.
    """
    found: dict[Key, list[int]] = {}
    for plan in plans:
        sizes = [b.bytes for b in plan.buffers]
        for kernel in plan.instructions:
            if isinstance(kernel, Kernel):
                key, given = launch_key(kernel), given_bytes(kernel, plan, sizes)
                found[key] = list(map(min, found.get(key, given), given))
    return [[*map(_listed, key), touched] for key, touched in sorted(found.items())]


def _listed(part: object) -> object:
    return [_listed(p) for p in part] if isinstance(part, tuple) else part
