"""Cases of which a run takes a part. ``thinned``: the normal run a part, the others have the marker ``slow``.
``taken``: each run another part, which the seed takes; the soak all."""

from __future__ import annotations

import os
from collections.abc import Iterable
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
