"""One GPU serves the tests of several processes: a test that takes or counts all of its memory runs alone."""

from __future__ import annotations

import fcntl
from collections.abc import Iterator

import pytest
from places import ROOT


@pytest.fixture
def gpu_alone() -> None:
    """For a test that takes most of the GPU's memory, or counts what is free: no other of this folder runs then."""


@pytest.fixture(autouse=True)
def turn(request: pytest.FixtureRequest) -> Iterator[None]:
    """Waits while a test of another process has the GPU alone."""
    (ROOT / ".gpu").mkdir(exist_ok=True)
    with open(ROOT / ".gpu" / "memory.lock", "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX if "gpu_alone" in request.fixturenames else fcntl.LOCK_SH)
        yield
