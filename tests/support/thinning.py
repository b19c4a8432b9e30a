"""Cases of which a run takes a part. ``thinned``: the normal run a part, the others have the marker ``slow``.
``taken``: each revision another part; the soak all. ``left_out``: of slow cases, likewise.

The revision draws the part, and the seed of the random tests: all runs of a revision take the same cases, so what
passes here passes there, and each revision tries others. Set DSLC_PART or DSLC_SEED to draw others."""

from __future__ import annotations

import os
import random
import subprocess
from collections.abc import Iterable, Sequence
from pathlib import Path
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
    """One of ``every`` cases, but at least one, drawn by DSLC_PART; all of them with DSLC_SOAK=1."""
    values = list(cases)
    step = 1 if SOAK else min(every, len(values))
    return values[turn(step) :: step] if values else []


def turn(of: int) -> int:
    """Which of so many parts of something a run takes, from 0: drawn by DSLC_PART."""
    return random.Random(os.environ.get("DSLC_PART", "")).randrange(of)


def revision(folder: Path) -> str:
    """The digest, in hex, of the files of a folder's revision; random digits where git keeps none."""
    command = ("git", "rev-parse", "HEAD^{tree}")
    try:
        return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return os.urandom(20).hex()


def draw(drawn_by: str) -> None:
    """Sets DSLC_PART and DSLC_SEED of this run and of its workers, unless they are set: a revision's own. The soak,
    which looks for new failures, takes a fresh seed each time."""
    os.environ.setdefault("DSLC_PART", drawn_by)
    os.environ.setdefault("DSLC_SEED", str(int.from_bytes(os.urandom(4), "big") if SOAK else int(drawn_by[:8], 16)))


_CASES: Final = 32  # of so many slow cases of a test, a run takes one; of fewer, one too
_TESTS: Final = 2  # of so many slow tests of a file, a run takes one


def left_out(items: Sequence[pytest.Item]) -> list[pytest.Item]:
    """The slow cases that this run leaves out: DSLC_PART draws a part of the slow tests of each file, and a part of
    the cases of each."""
    files: dict[str, dict[str, list[pytest.Item]]] = {}
    for item in items:
        if item.get_closest_marker("slow"):
            test = item.nodeid.partition("[")[0]
            files.setdefault(test.partition("::")[0], {}).setdefault(test, []).append(item)
    left: list[pytest.Item] = []
    for file, tests in files.items():
        passed = _drawn(file, list(tests), _TESTS)
        for test, cases in tests.items():
            left += cases if test in passed else _drawn(test, cases, _CASES)
    return left


def _drawn(name: str, those: list[_Case], share: int) -> list[_Case]:
    """All of those but one of ``share``."""
    drawn = random.Random(f"{name} {os.environ['DSLC_PART']}")
    return drawn.sample(those, len(those) - -(-len(those) // share))
