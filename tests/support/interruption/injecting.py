"""Faults where they are asked for: an error at the n-th system call, and failpoints of a process that may be killed."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest

Call = tuple[Any, str]  # a module and the name of its function


class Injector:
    """Raises ``error`` at the n-th of the system calls; ``fired`` proves it."""

    def __init__(self, patch: pytest.MonkeyPatch, calls: Iterable[Call], number: int, error: int) -> None:
        self.left, self.error, self.fired = number, error, ""
        for owner, name in calls:
            patch.setattr(owner, name, self.wrapped(name, getattr(owner, name)))

    def wrapped(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def inject(*args: Any, **options: Any) -> Any:
            self.left -= 1
            if self.left == 0:
                self.fired = name
                raise OSError(self.error, os.strerror(self.error))
            return call(*args, **options)

        return inject


def child(script: Path, args: Sequence[str | Path], log: Path, failpoint: str) -> int:
    """The exit code of a script in a process of its own, which a failpoint may kill; ``log`` says what it passed."""
    log.unlink(missing_ok=True)
    env = dict(os.environ, DSLC_FAILPOINT=failpoint, DSLC_FAILPOINT_LOG=str(log))
    command = [sys.executable, str(script), *map(str, args)]
    return subprocess.run(command, env=env, check=False, capture_output=True).returncode


def passed(log: Path) -> list[str]:
    """Every point that a traced process passed, as NAME:N."""
    return [":".join(line.split()[:2]) for line in log.read_text().splitlines()]


def kill(script: Path, args: Sequence[str | Path], log: Path, point: str) -> None:
    """Kills the script at a point, and proves that it was there."""
    code = child(script, args, log, f"{point}:kill")
    assert code == -9 and log.read_text().split() == [*point.split(":"), "kill"], point
