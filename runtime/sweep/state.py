"""``sweep.json``: what a sweep tries, and what became of each trial. It is replaced atomically at every change.

The file may be damaged or hostile: its size, depth and fields are checked, and a folder's name is a number, so it leads
nowhere else.
"""

from __future__ import annotations

import json
import math
import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from dslc.base.errors import ArtifactError
from dslc.base.json_size import too_large
from dslc.base.opened import Opened
from dslc.base.publish import publish_bytes
from dslc.base.schema import Enum, Float, Int, Json, ListOf, MapOf, Mismatch, Nullable, Record, Text, checker
from dslc.base.words import reason
from dslc.runtime.config.sections.sweep import MOST_TRIALS
from dslc.runtime.train.rundir import SWEEP_NAME

WAITING, RUNNING, STOPPED, FINISHED, FAILED = "waiting", "running", "stopped", "finished", "failed"
FORMAT: Final = 1
_LONGEST: Final = 64 << 20  # bytes
_VALUES: Final = 2_000_000
_DEPTH: Final = 64
_HEX: Final = Text(64, "[0-9a-f]{64}", "a SHA-256")
_NAME: Final = Text(64, "[A-Za-z_][A-Za-z0-9_]*", "a name")
_RESULT: Final = Record(
    {
        "metric": _NAME,
        "value": Nullable(Float()),
        "step": Int(),
        "data": _HEX,
        "metrics": MapOf(_NAME, Nullable(Float())),
    }
)
_TRIAL: Final = Record(
    {
        "folder": Text(5, "[0-9]{3,5}", "the number of a folder"),
        "key": _HEX,
        "values": MapOf(Text(200, called="the path of a field"), Json()),
        "state": Enum((WAITING, RUNNING, STOPPED, FINISHED, FAILED)),
        "error": Nullable(Text(1000)),
        "result": Nullable(_RESULT),
    }
)
_CHECK: Final = checker(
    Record(
        {
            "format": Int(FORMAT, FORMAT),
            "of": MapOf(Text(300, called="the name of a field"), Json(), most=100_000),
            "next": Int(1, 99_999),
            "trials": ListOf(_TRIAL, MOST_TRIALS),
        }
    )
)


@dataclass(frozen=True)
class Result:
    """The score of a trial's weights: ``value`` of ``metric`` after ``step`` steps, NaN if it is not a number.
    ``data``: the digest of the evaluation data."""

    metric: str
    value: float
    step: int
    data: str
    metrics: Mapping[str, float]

    def as_json(self) -> dict[str, Any]:
        metrics = {name: _number(value) for name, value in self.metrics.items()}
        return {
            "metric": self.metric, "value": _number(self.value), "step": self.step, "data": self.data,
            "metrics": metrics,
        }  # fmt: skip

    @classmethod
    def of_json(cls, data: Mapping[str, Any]) -> Result:
        """A checked object of ``as_json``."""
        metrics = {name: _float(value) for name, value in data["metrics"].items()}
        return cls(data["metric"], _float(data["value"]), data["step"], data["data"], metrics)


@dataclass
class Entry:
    """One trial. ``folder``: the name of its run's folder in that of the sweep; ``error``: why it failed."""

    folder: str
    key: str
    values: Mapping[str, Any]
    state: str = WAITING
    error: str | None = None
    result: Result | None = None

    @property
    def done(self) -> bool:
        return self.state in (FINISHED, FAILED)

    def as_json(self) -> dict[str, Any]:
        return {
            "folder": self.folder, "key": self.key, "values": dict(self.values), "state": self.state,
            "error": self.error, "result": None if self.result is None else self.result.as_json(),
        }  # fmt: skip


@dataclass
class State:
    """``of``: what the sweep tries, as ``SweepPlan.described``; ``next``: the number of the next new folder."""

    of: Mapping[str, Any]
    entries: list[Entry] = field(default_factory=list)
    next: int = 1

    def add(self, key: str, values: Mapping[str, Any]) -> Entry:
        """A new trial with a folder of its own."""
        entry = Entry(f"{self.next:03}", key, values)
        self.next += 1
        self.entries.append(entry)
        return entry

    def write(self, folder: Path) -> None:
        """Publish the state. ResourceError R402."""
        data = {
            "format": FORMAT, "of": self.of, "next": self.next, "trials": [entry.as_json() for entry in self.entries],
        }  # fmt: skip
        text = json.dumps(data, indent=1, ensure_ascii=True, allow_nan=False) + "\n"
        publish_bytes(folder / SWEEP_NAME, text.encode("ascii"), point="sweep")


def read_state(folder: Path) -> State | None:
    """The state of the sweep in a folder; None if there is none. ArtifactError R307 if it is damaged."""
    path = folder / SWEEP_NAME
    try:
        raw = _contents(path)
        if raw is None:
            return None
        if why := too_large(raw, values=_VALUES, depth=_DEPTH):
            raise ValueError(why)
        data = json.loads(raw.decode("utf-8"), parse_constant=_refused)
        _CHECK(data)
        entries = [
            Entry(**{**each, "result": None if each["result"] is None else Result.of_json(each["result"])})
            for each in data["trials"]
        ]
        _require_whole(entries, data["next"])
        return State(data["of"], entries, data["next"])
    except (ValueError, Mismatch, RecursionError) as error:
        cause = str(error) if isinstance(error, Mismatch) else reason(error)
        raise _damaged(path, cause) from error
    except OSError as error:
        raise _damaged(path, str(error.strerror)) from error


def _require_whole(entries: list[Entry], upcoming: int) -> None:
    """ValueError if the trials contradict each other."""
    numbers = [int(entry.folder) for entry in entries]
    if len(set(numbers)) < len(numbers) or any(not 0 < number < upcoming for number in numbers):
        raise ValueError("two trials have one folder, or a number is out of range")
    for entry in entries:
        if (entry.state == FINISHED) != (entry.result is not None) or (entry.state == FAILED) != (
            entry.error is not None
        ):
            raise ValueError(f"trial {entry.folder} is {entry.state} and its result does not say so")


def _contents(path: Path) -> bytes | None:
    with Opened() as scope, scope as opened:
        try:
            handle = opened.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        except FileNotFoundError:
            return None
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise ValueError("it is not a regular file")
        data = bytearray()
        while len(data) <= _LONGEST and (part := os.read(handle, 1 << 20)):
            data += part
    if len(data) > _LONGEST:
        raise ValueError("it is too long")
    return bytes(data)


def _damaged(path: Path, cause: str) -> ArtifactError:
    return ArtifactError(
        "R307",
        f"the state of the sweep is damaged: {cause[:200]}",
        place=str(path),
        help="`dslc sweep --fresh` starts another one; the runs of the trials are in this folder",
    )


def _refused(text: str) -> None:
    raise ValueError(f"{text} is not a number of JSON")


def _number(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None


def _float(value: float | None) -> float:
    return math.nan if value is None else value
