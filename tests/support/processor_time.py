"""The processor time of each test, and those of the normal run that take too much of it.

They are listed at the end of the run, and fail nothing: a busy machine takes up to twice as long for the same work, and
the first test of a module pays for what its others share.
"""

from __future__ import annotations

import resource
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Final

import pytest

#: Seconds from which on a test should be faster, or slow by its marker.
LIMIT: Final = 5.0
NAME: Final = "processor seconds"


def spent() -> float:
    """Seconds of processor time of this process and of its children that have ended."""
    used = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(each.ru_utime + each.ru_stime for each in used)


@contextmanager
def measured(item: pytest.Item) -> Iterator[None]:
    """Adds the time that is spent inside to the properties of a test's report, unless it is slow by its marker."""
    before = spent()
    yield
    if item.get_closest_marker("slow") is None:
        item.user_properties.append((NAME, spent() - before))


def too_long(reports: Iterable[pytest.TestReport]) -> list[str]:
    """A line for each test above the limit, the longest first."""
    found: dict[str, float] = {}
    for report in reports:
        seconds = sum(float(str(value)) for name, value in report.user_properties if name == NAME)
        if seconds > LIMIT:
            found[report.nodeid] = seconds
    return [f"{found[name]:.1f} s  {name}" for name in sorted(found, key=lambda name: -found[name])]
