"""Reads the points of a run's log while it grows.

The log is the queue between the training and its sinks: it holds points for as long as a sink takes, in no memory, and
after a kill too.
"""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path
from typing import Any, Final

from dslc.base.opened import Opened
from dslc.runtime.sinks.sink import KINDS, Point

_PART: Final = 1 << 20  # bytes that are read at once; a longer line is passed over
_NO_NUMBERS: Final = frozenset(("kind", "step", "epoch", "rows"))


class Tail:
    """``read()`` gives the points since the last call, at most those of a MiB."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = 0

    def read(self) -> list[Point]:
        """Complete lines only. A missing log has no points; one that became shorter is read from its begin."""
        try:
            with Opened() as scope, scope as files:
                handle = files.open(self._path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
                status = os.fstat(handle)
                if not stat.S_ISREG(status.st_mode):
                    return []
                if status.st_size < self._offset:
                    self._offset = 0
                part = os.pread(handle, _PART, self._offset)
        except OSError:
            return []
        end = part.rfind(b"\n") + 1
        if end == 0 and len(part) == _PART:
            end = _PART
        self._offset += end
        return [point for line in part[:end].splitlines() if (point := _point(line)) is not None]


def _point(line: bytes) -> Point | None:
    """None for a line that is torn or tells something else."""
    try:
        found = json.loads(line.decode("ascii", "replace"))
    except (ValueError, RecursionError):
        return None
    if not isinstance(found, dict) or found.get("kind") not in KINDS:
        return None
    step, epoch = found.get("step"), found.get("epoch")
    if type(step) is not int or type(epoch) is not int:
        return None
    values = {name: number for name, value in found.items() if (number := _number(name, value)) is not None}
    return Point(found["kind"], step, epoch, values)


def _number(name: str, value: Any) -> float | None:
    """The log writes NaN and infinities as texts."""
    if name in _NO_NUMBERS or isinstance(value, bool):
        return None
    if isinstance(value, int | float):
        return value
    return float(value) if value in ("nan", "inf", "-inf") else None
