"""Cases of which the normal run takes a part: those between have the marker ``slow``, so no case is lost."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest


def thinned(cases: Iterable[Any], every: int) -> list[Any]:
    """Each ``every``-th case, from the first; the others are slow. For cases that differ in size rather than in what
    they prove. A tuple is one case: of several arguments, so with one name in ``parametrize`` give ``(case,)``."""
    values = [case if isinstance(case, tuple) else (case,) for case in cases]
    return [pytest.param(*v, marks=[pytest.mark.slow] if n % every else []) for n, v in enumerate(values)]
