"""Cases of which a run takes a part. ``thinned``: the normal run a part, the others have the marker ``slow``.
``taken``: each run another part, which the seed takes; the soak all. ``left_out``: of many slow cases of a test."""

from __future__ import annotations

import os
import random
from collections.abc import Iterable, Sequence
from typing import Any, Final, TypeVar

import pytest

SOAK: Final = os.environ.get("DSLC_SOAK") == "1"

_Case = TypeVar("_Case")


def thinned(cases: Iterable[Any], every: int) -> list[Any]:
    """Each ``every``-th case, from the first; the others are slow. For cases that differ in size rather than in what
    they prove. A tuple is one case: of several arguments, so with one name in ``parametrize`` give ``(case,)``."""
    values = [case if isinstance(case, tuple) else (case,) for case in cases]
    return [pytest.param(*v, marks=[pytest.mark.slow] if n % every else []) for n, v in enumerate(values)]


def taken(cases: Iterable[_Case], every: int) -> list[_Case]:
    """One of ``every`` cases, from the one that DSLC_SEED takes, but at least one; all of them with DSLC_SOAK=1."""
    values = list(cases)
    step = 1 if SOAK else min(every, len(values))
    return values[int(os.environ["DSLC_SEED"]) % step :: step] if values else []


#: From so many slow cases of a test on, a run takes one of so many.
_SHARES: Final = ((40, 8), (8, 4), (3, 2))


def left_out(items: Sequence[pytest.Item]) -> list[pytest.Item]:
    """The slow cases that this run leaves out: of a test with many it takes a part, which DSLC_SEED draws."""
    cases: dict[str, list[pytest.Item]] = {}
    for item in items:
        if item.get_closest_marker("slow"):
            cases.setdefault(item.nodeid.partition("[")[0], []).append(item)
    left: list[pytest.Item] = []
    for name, found in cases.items():
        share = next((share for most, share in _SHARES if len(found) >= most), 1)
        drawn = random.Random(f"{name} {os.environ['DSLC_SEED']}")
        left += drawn.sample(found, len(found) - -(-len(found) // share))
    return left
