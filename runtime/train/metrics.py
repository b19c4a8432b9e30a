"""Running means, and the log: one JSON object per line.

Each line has ``kind`` (``step``, ``epoch``, ``eval``, ``nonfinite``), ``step`` (how many steps were done) and
``epoch``. A number that JSON cannot represent (NaN, Inf) is written as a text. A resumed run first drops the lines
after its checkpoint, so the log is that of an uninterrupted run.
"""

from __future__ import annotations

import errno
import json
import math
import os
import stat
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from dslc.base.failpoint import fail
from dslc.base.opened import Opened
from dslc.base.publish import Sink, publish_bytes

if TYPE_CHECKING:
    from dslc.runtime.session.results import EvalResult, StepResult

_LONGEST_LINE: Final = 1 << 20  # bytes of a log's line
_MOST_DAMAGED: Final = 1000  # lines that are no entries; each crash may leave one

#: A log is a file in its run's folder, never the target of a link.
_APPEND: Final = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK


class RunningMeans:
    """Sums (f64) and counts by name. ``latest``: names of values that are combined already: the newest one stands."""

    def __init__(self, latest: Collection[str] = ()) -> None:
        self._latest = frozenset(latest)
        self._sums: dict[str, float] = {}
        self._counts: dict[str, int] = {}

    def add(self, values: Mapping[str, float]) -> None:
        """The means come in the order of the newest values, also after ``restore``, which does not know it."""
        if list(self._sums) != list(values):
            self._sums = {**{name: self._sums.get(name, 0.0) for name in values}, **self._sums}
        for name, value in values.items():
            if name in self._latest:
                self._sums[name], self._counts[name] = value, 1
                continue
            self._sums[name] = self._sums.get(name, 0.0) + value
            self._counts[name] = self._counts.get(name, 0) + 1

    def means(self) -> dict[str, float]:
        return {name: total / self._counts[name] for name, total in self._sums.items()}

    def clear(self) -> None:
        self._sums.clear()
        self._counts.clear()

    def state(self) -> dict[str, list[Any]]:
        """Plain data from which ``restore`` recovers the means bit for bit."""
        return {name: [total.hex(), self._counts[name]] for name, total in self._sums.items()}

    def restore(self, state: Mapping[str, list[Any]]) -> None:
        self._sums = {name: float.fromhex(total) for name, (total, _) in state.items()}
        self._counts = {name: count for name, (_, count) in state.items()}


class Log:
    """Appends lines to a file. The first failed write is reported to ``warn``; training continues without the line."""

    def __init__(self, path: Path, warn: Callable[[str], None], *, after_step: int | None = None) -> None:
        """``after_step`` None starts an empty log; else lines of later steps are dropped. ResourceError R402."""
        self._path = path
        self._warn = warn
        self._warned = False
        self._torn = False  # the last line is incomplete
        if after_step is None or not path.exists():
            publish_bytes(path, b"", point="log")
        else:
            publish_bytes(path, lambda sink: _copy(path, after_step, sink), point="log")

    def write(self, kind: str, step: int, epoch: int, values: Mapping[str, object]) -> None:
        entry = {"kind": kind, "step": step, "epoch": epoch, **{name: _json(value) for name, value in values.items()}}
        data = ("\n" if self._torn else "").encode() + json.dumps(entry).encode("ascii") + b"\n"
        try:
            # Opened for each line: lines are rare, and a folder that returns after a fault is found again.
            with Opened() as scope, scope as files:
                handle = files.open(self._path, _APPEND, 0o666)
                fail("log.write")
                self._torn = os.write(handle, data) != len(data)
        except OSError as error:
            if not self._warned:
                self._warn(f"the log {self._path} cannot be written: {error.strerror}")
            self._warned = True


def read_log(path: Path) -> Iterator[dict[str, Any]]:
    """The complete lines of a log, without a line cut off by a crash; stops at a line that is too long, and where a
    file with more damaged lines than runs have crashes is no log."""
    with Opened() as scope, scope as files:
        handle = files.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise OSError(errno.EINVAL, "this is not a regular file", str(path))
        file = open(handle, "rb", closefd=False)  # noqa: SIM115 - it has nothing to close
        damaged = 0
        while damaged <= _MOST_DAMAGED and (line := file.readline(_LONGEST_LINE)).endswith(b"\n"):
            try:
                entry = json.loads(line.decode("ascii", "replace"))
            except (ValueError, RecursionError):
                entry = None
            if isinstance(entry, dict) and type(entry.get("step")) is int:
                yield entry
            else:
                damaged += 1


def _copy(path: Path, after_step: int, sink: Sink) -> None:
    for entry in read_log(path):
        if entry["step"] <= after_step:
            sink.write((json.dumps(entry) + "\n").encode("ascii"))


def _json(value: object) -> object:
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, Mapping):
        return {key: _json(item) for key, item in value.items()}
    return value


def metrics_of(found: EvalResult) -> dict[str, float]:
    """The loss, if the model has one, and the metrics."""
    return {**({} if found.loss is None else {"loss": found.loss}), **found.metrics}


def scaling_of(result: StepResult) -> dict[str, float]:
    """The loss scale of a step and the number of skipped steps, for a model with a loss scale."""
    return {} if result.loss_scale is None else {"loss_scale": int(result.loss_scale), "skipped": result.skipped_steps}
