"""Finds the runs of a project and reads their records. A record may be damaged or hostile: that is told, not raised."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from dslc.base.errors import ArtifactError
from dslc.base.filelock import FileLock
from dslc.base.opened import Opened
from dslc.base.words import reason
from dslc.runtime.nearest import nearest
from dslc.runtime.train.checkpoint import FOLDER as CHECKPOINTS
from dslc.runtime.train.rundir import LOCK_NAME, label

RECORD_NAME: Final = "run.json"
CONFIG_NAME: Final = "config.json"
FORMAT: Final = 1
_LONGEST: Final = 1 << 20  # bytes of a record
_MOST: Final = 10_000  # folders
_STATES: Final = ("running", "finished", "stopped", "failed", "nan")


@dataclass(frozen=True)
class StoredRun:
    """A run's folder. ``damaged``: why its record cannot be used, None if it can. ``values``: the record; ``config``:
    the configuration's values by field name. Values of a wrong type are left out."""

    name: str
    folder: Path
    damaged: str | None = None
    values: Mapping[str, Any] = field(default_factory=dict)
    config: Mapping[str, Any] = field(default_factory=dict)

    @property
    def state(self) -> str:
        """The recorded state; ``damaged``, or ``killed`` if the process of a running one is gone."""
        if self.damaged is not None:
            return "damaged"
        state = self.values["state"]
        return "killed" if state == "running" and not _locked(self.folder) else str(state)

    @property
    def metrics(self) -> dict[str, float]:
        return _numbers(self.values.get("metrics"))

    def number(self, name: str) -> float | None:
        """A number of the record."""
        return _numbers(self.values).get(name)

    @property
    def best(self) -> tuple[str, float, int] | None:
        """Metric, value and step of the best weights."""
        for key in ("best", "weights"):
            found = self.values.get(key)
            if isinstance(found, Mapping) and isinstance(found.get("metric"), str):
                numbers = _numbers(found)
                if {"value", "step"} <= set(numbers):
                    return found["metric"], numbers["value"], int(numbers["step"])
        return None

    @property
    def started(self) -> str:
        times = self.values.get("times")
        found = times.get("started") if isinstance(times, Mapping) else None
        return found[:40] if isinstance(found, str) else ""


def _numbers(values: object) -> dict[str, float]:
    if not isinstance(values, Mapping):
        return {}
    return {
        name: value for name, value in values.items() if isinstance(value, int | float) and not isinstance(value, bool)
    }


def all_runs(root: Path) -> list[StoredRun]:
    """The runs in a folder and in its sweeps, by name."""
    return [run_in(folder) for folder in sorted(_folders(root))]


def _folders(root: Path) -> Iterator[Path]:
    count = 0
    for level in ("*", "*/*"):
        for folder in root.glob(level):
            if not folder.is_symlink() and ((folder / RECORD_NAME).is_file() or (folder / CHECKPOINTS).is_dir()):
                count += 1
                if count > _MOST:
                    return
                yield folder


def find_run(root: Path, name: str) -> StoredRun:
    """The run with a name as ``dslc runs`` lists it, or a run's folder. ArtifactError R307 if there is none."""
    for folder in (root / name, Path(name)):
        if (folder / RECORD_NAME).is_file() or (folder / CHECKPOINTS).is_dir():
            return run_in(folder)
    known = [run.name for run in all_runs(root)]
    close = nearest(name, known)
    raise ArtifactError(
        "R307",
        f"there is no run `{name[:80]}`",
        place=str(root),
        help=f"did you mean `{close}`?" if close else f"there are: {', '.join(known[:8]) or 'none'}",
    )


def run_in(folder: Path) -> StoredRun:
    """The run of a folder."""
    name = label(folder)
    try:
        values = _read(folder / RECORD_NAME)
        if values.get("format") != FORMAT or values.get("state") not in _STATES:
            raise ValueError(f"format {str(values.get('format'))[:20]}, state {str(values.get('state'))[:20]}")
        stored = _read(folder / CONFIG_NAME).get("values") if (folder / CONFIG_NAME).exists() else {}
        if not isinstance(stored, dict):
            raise ValueError(f"{CONFIG_NAME} has no values")
        config = {key: entry.get("value") for key, entry in stored.items() if isinstance(entry, dict)}
    except FileNotFoundError:
        return StoredRun(name, folder, "it has no record: an earlier version of dslc wrote it")
    except OSError as error:
        return StoredRun(name, folder, f"its record cannot be read: {error.strerror}")
    except (ValueError, RecursionError) as error:
        return StoredRun(name, folder, f"its record is damaged: {reason(error)}")
    return StoredRun(name, folder, None, values, config)


def _read(path: Path) -> dict[str, Any]:
    """The object in a small regular file. OSError; ValueError for other contents."""
    with Opened() as scope, scope as opened:
        handle = opened.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise ValueError("it is not a regular file")
        data = bytearray()
        while len(data) <= _LONGEST and (part := os.read(handle, _LONGEST)):
            data += part
    if len(data) > _LONGEST:
        raise ValueError("it is too long")
    found = json.loads(data.decode("utf-8"))
    if not isinstance(found, dict):
        raise ValueError("it is not an object")
    return found


def _locked(folder: Path) -> bool:
    """True if a process holds the run's lock."""
    path = folder / LOCK_NAME
    if not path.exists():
        return False
    lock = FileLock(path, what="training")
    try:
        taken = lock.acquire()
    except OSError:
        return False  # not writable for us; whoever could train here is not known
    if taken:
        lock.release()
    return not taken
