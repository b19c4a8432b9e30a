"""Cases of which a run takes a part. ``thinned``: the normal run a part, the others have the marker ``slow``.
``taken``: each run another part, which the seed takes; the soak all. ``left_out``: of slow cases, likewise."""

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
_SHARES: Final = ((40, 12), (8, 6), (3, 3))
_FEW: Final = 2  # of the other slow tests of a file, a run takes one of so many


def left_out(items: Sequence[pytest.Item]) -> list[pytest.Item]:
    """The slow cases that this run leaves out: of a test with many, and of the tests of a file with few, it takes a
    part, which DSLC_SEED draws."""
    tests: dict[str, list[pytest.Item]] = {}
    for item in items:
        if item.get_closest_marker("slow"):
            tests.setdefault(item.nodeid.partition("[")[0], []).append(item)
    left: list[pytest.Item] = []
    files: dict[str, list[str]] = {}
    for name, cases in tests.items():
        share = next((share for most, share in _SHARES if len(cases) >= most), 1)
        left += _drawn(name, cases, share)
        if share == 1:
            files.setdefault(name.partition("::")[0], []).append(name)
    for file, names in files.items():
        left += [item for name in _drawn(file, names, _FEW) for item in tests[name]]
    return left


def _drawn(name: str, those: list[_Case], share: int) -> list[_Case]:
    """All of those but one of ``share``."""
    drawn = random.Random(f"{name} {os.environ['DSLC_SEED']}")
    return drawn.sample(those, len(those) - -(-len(those) // share))
