"""Finds the runs of a project and reads their records. A damaged or hostile record is reported, not raised."""

from __future__ import annotations

import json
import math
import os
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from dslc.base.errors import ArtifactError, DataError
from dslc.base.filelock import FileLock
from dslc.base.opened import Opened
from dslc.base.words import reason
from dslc.runtime.nearest import nearest
from dslc.runtime.train.checkpoint import FOLDER as CHECKPOINTS
from dslc.runtime.train.rundir import LOCK_NAME, RECORD_NAME, label

CONFIG_NAME: Final = "config.json"
FORMAT: Final = 1
_LONGEST: Final = 1 << 20  # bytes of a record
_DEEPEST: Final = 32  # levels of a record; a configuration has at most as many
_LARGEST: Final = 1 << 63  # of integers
_LONGEST_TEXT: Final = 1000  # characters of a text that is shown
_STATES: Final = ("running", "finished", "stopped", "failed", "nan")


@dataclass(frozen=True)
class StoredRun:
    """A run's folder. ``damaged``: why its record cannot be used, None if it can. ``values``: the record; ``config``:
    the configuration's values by field name, ``origins`` where they came from. Values of a wrong type are left out."""

    name: str
    folder: Path
    damaged: str | None = None
    values: Mapping[str, Any] = field(default_factory=dict)
    config: Mapping[str, Any] = field(default_factory=dict)
    origins: Mapping[str, str] = field(default_factory=dict)

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

    def text(self, *names: str) -> str:
        """A text of the record, such as ``text("times", "started")``; empty if there is none."""
        found: object = self.values
        for name in names:
            found = found.get(name) if isinstance(found, Mapping) else None
        return found[:_LONGEST_TEXT] if isinstance(found, str) else ""

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
        return self.text("times", "started")

    @property
    def seconds(self) -> float | None:
        """Seconds from the start to the end of the run, or to the last change of its record."""
        try:
            begun = datetime.fromisoformat(self.started)
            if self.text("times", "ended") and self.state != "running":
                return (datetime.fromisoformat(self.text("times", "ended")) - begun).total_seconds()
            return max(0.0, (self.folder / RECORD_NAME).lstat().st_mtime - begun.timestamp())
        except (ValueError, TypeError, OverflowError, OSError):
            return None


def _numbers(values: object) -> dict[str, float]:
    """The finite numbers of a mapping; integers of at most 64 bits."""
    if not isinstance(values, Mapping):
        return {}
    return {
        name: value
        for name, value in values.items()
        if isinstance(value, int | float)
        and not isinstance(value, bool)
        and (math.isfinite(value) if isinstance(value, float) else -_LARGEST <= value < _LARGEST)
    }


def all_runs(root: Path) -> list[StoredRun]:
    """The runs in a folder and in its sweeps, by name; none if there is no such folder. DataError R101 if it cannot be
    read."""
    try:
        os.scandir(root).close()
    except FileNotFoundError:
        return []
    except OSError as error:
        cause = f"the folder of the runs cannot be read: {error.strerror}"
        raise DataError("R101", cause, place=str(root), help="check the path and its permissions") from error
    return [run_in(folder) for folder in sorted(_folders(root))]


def _folders(root: Path) -> Iterator[Path]:
    for level in ("*", "*/*"):
        for folder in root.glob(level):
            if not folder.is_symlink() and _is_run(folder):
                yield folder


def _is_run(folder: Path) -> bool:
    """True if a folder has a record of any kind, or checkpoints. A record that cannot be read is a damaged run."""
    return os.path.lexists(folder / RECORD_NAME) or os.path.isdir(folder / CHECKPOINTS)


def find_run(root: Path, name: str) -> StoredRun:
    """The run with a name as ``dslc runs`` lists it, or a run's folder. ArtifactError R307 if there is none."""
    for folder in (root / name, Path(name)) if name and "\0" not in name else ():
        if _is_run(folder):
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
        stored = _read(folder / CONFIG_NAME).get("values") if os.path.lexists(folder / CONFIG_NAME) else {}
        if not isinstance(stored, dict):
            raise ValueError(f"{CONFIG_NAME} has no values")
        if not isinstance(values.get("name"), str):
            raise ValueError("it does not name its model")
        entries = {key: entry for key, entry in stored.items() if isinstance(entry, dict)}
        config = {key: entry.get("value") for key, entry in entries.items()}
        origins = {key: str(entry.get("origin")) for key, entry in entries.items()}
    except FileNotFoundError:
        return StoredRun(name, folder, "it has no record: an earlier version of dslc wrote it")
    except OSError as error:
        return StoredRun(name, folder, f"its record cannot be read: {error.strerror}")
    except (ValueError, RecursionError) as error:
        return StoredRun(name, folder, f"its record is damaged: {reason(error)}")
    return StoredRun(name, folder, None, values, config, origins)


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
    found = json.loads(data.decode("utf-8"), parse_constant=_no_constant)
    if not isinstance(found, dict):
        raise ValueError("it is not an object")
    level: list[Any] = [found]
    for _ in range(_DEEPEST + 4):  # a configuration's values are some levels below the top
        level = [item for value in level for item in (value.values() if isinstance(value, dict) else value)]
        level = [item for item in level if isinstance(item, dict | list)]
    if level:
        raise ValueError("it is nested too deeply")
    return found


def _no_constant(text: str) -> None:
    raise ValueError(f"{text} is not JSON")


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
