"""What was delivered to a sink, in a file of the run's folder, so that a resumed run goes on from there."""

from __future__ import annotations

import json
import os
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from dslc.base.opened import Opened
from dslc.base.publish import publish_bytes
from dslc.runtime.sinks.sink import KINDS, Point

FOLDER: Final = "sinks"
_LONGEST: Final = 4096  # bytes of the file


@dataclass(frozen=True)
class Delivered:
    """All points of steps before ``step``, and those of ``kinds`` of this step."""

    step: int = -1
    kinds: tuple[str, ...] = ()

    def has(self, point: Point) -> bool:
        return point.step < self.step or (point.step == self.step and point.kind in self.kinds)

    def after(self, point: Point) -> Delivered:
        kinds = self.kinds if point.step == self.step else ()
        return Delivered(point.step, (*kinds, point.kind))


def read_delivered(folder: Path, name: str) -> Delivered:
    """What an earlier part of a run delivered; nothing if the file is missing or damaged."""
    try:
        with Opened() as scope, scope as files:
            handle = files.open(_path(folder, name), os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
            if not stat.S_ISREG(os.fstat(handle).st_mode):
                return Delivered()
            found = json.loads(os.read(handle, _LONGEST))
        step, kinds = found["step"], found["kinds"]
        if type(step) is int and 0 <= step < 2**53 and isinstance(kinds, list) and set(kinds) <= set(KINDS):
            return Delivered(step, tuple(kinds))
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        pass
    return Delivered()


def write_delivered(folder: Path, name: str, delivered: Delivered) -> None:
    """Raises ResourceError R402."""
    text = json.dumps({"step": delivered.step, "kinds": list(delivered.kinds)}) + "\n"
    path = _path(folder, name)
    path.parent.mkdir(exist_ok=True)
    publish_bytes(path, text.encode("ascii"), point="sinks")


def _path(folder: Path, name: str) -> Path:
    return folder / FOLDER / f"{name}.json"
