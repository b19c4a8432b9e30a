"""``run.json`` and ``config.json`` of a run's folder: what was run, with what, how it went.

The record is replaced atomically at the start, at the end of each epoch and at the end of the run. All but ``times`` is
equal when the same run is repeated. A process that is killed leaves the state ``running``; readers see from the lock
whether it still runs.
"""

from __future__ import annotations

import json
import math
import os
import platform
import re
import secrets
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import numpy as np

from dslc.base.errors import DslcError, NumericError
from dslc.base.publish import publish_bytes
from dslc.base.version import VERSION
from dslc.runtime.config.config import Config
from dslc.runtime.config.values import Entry
from dslc.runtime.history.folders import CONFIG_NAME, FORMAT, run_in
from dslc.runtime.history.score import Score
from dslc.runtime.sinks.known import TENSORBOARD
from dslc.runtime.sinks.sink import About
from dslc.runtime.train.rundir import RECORD_NAME, label
from dslc.runtime.train.setup import Plan
from dslc.runtime.train.trainable import Trainable

_PAST: Final = ("epoch", "step", "best", "metrics", "weights")
_ID: Final = re.compile(r"[0-9a-f]{16}")
#: Values that are paths; those of flags and variables are relative to the working folder.
_PATHS: Final = ("model", "data.train.", "data.eval.", "data.tokenizer", "start.weights")


class Record:
    """The record of a running training. The first failed write is reported; training continues."""

    def __init__(
        self, folder: Path, config: Config, session: Trainable, plan: Plan, warn: Callable[[str], None]
    ) -> None:
        self._folder, self._warn, self._config = folder, warn, config
        self._warned = False
        self.values: dict[str, Any] = {
            "format": FORMAT,
            "name": session.name,
            "state": "running",
            "epochs": config.train.epochs,
            "epoch": 0,
            "step": 0,
            "steps": plan.total,
            "seed": config.train.seed,
            "lr": plan.base_lr,
            "batch": plan.batch,
            "rows": plan.train.rows,
            "artifact": session.artifact.id,
            "interface": session.artifact.header["interface_sha256"],
            "versions": {"dslc": VERSION, "python": platform.python_version(), "numpy": np.__version__},
            "best": None,
            "metrics": {},
            "weights": None,
            "error": None,
            "times": {"started": _now(), "ended": None},
        }

    def begin(self, resume: bool) -> None:
        """Write both files. A resumed run keeps what its record says of the past."""
        former = run_in(self._folder).values if resume else {}
        self.values.update({name: former[name] for name in _PAST if name in former})
        tracking = former.get("tracking")
        known = tracking.get("id") if isinstance(tracking, Mapping) else None
        if set(self._config.save.sinks) - {TENSORBOARD} or known is not None:
            fits = isinstance(known, str) and _ID.fullmatch(known)
            self.values["tracking"] = {"id": known if fits else secrets.token_hex(8)}
        times = former.get("times")
        if isinstance(times, Mapping) and isinstance(times.get("started"), str):
            self.values["times"]["started"] = times["started"]
        recorded, entries = recorded_values(self._config), self._config.entries
        values = {entry.name: {"value": recorded[entry.name], "origin": entry.origin} for entry in entries}
        self._publish(CONFIG_NAME, {"format": FORMAT, "values": values})
        self.write()

    def about(self) -> About:
        """What sinks get to know of the run."""
        values = {entry.name: entry.value for entry in self._config.entries if entry.value not in (None, [], {})}
        tracking = self.values.get("tracking", {})
        name, artifact = self.values["name"], self.values["artifact"]
        return About(tracking.get("id", ""), label(self._folder), name, artifact, self._folder, values)

    def write(self, **values: Any) -> None:
        """Change some values and write the record."""
        self.values.update(values)
        self._publish(RECORD_NAME, self.values)

    def progress(self, step: int, epoch: int, metrics: Mapping[str, float], best: Mapping[str, Any] | None) -> None:
        """``metrics``: those of the last evaluation, or the epoch's means without evaluation data."""
        self.write(step=step, epoch=epoch, metrics=dict(metrics), best=best)

    def kept(self, score: Score) -> None:
        """Record that the run's weights are in its folder."""
        self.write(weights=score.as_json())

    def end(self, state: str, error: str | None = None) -> None:
        """``state``: finished, stopped, failed or nan."""
        self.values["times"]["ended"] = _now()
        self.write(state=state, error=error)

    def failed(self, error: BaseException) -> None:
        """Record the end by an exception."""
        state = "nan" if isinstance(error, NumericError) else "failed"
        if isinstance(error, KeyboardInterrupt):
            state = "stopped"
        text = f"{error.code}: {error.message}" if isinstance(error, DslcError) else type(error).__name__
        self.end(state, text[:1000])

    def _publish(self, name: str, values: Mapping[str, Any]) -> None:
        text = json.dumps(_finite(values), indent=1, ensure_ascii=True, allow_nan=False) + "\n"
        try:
            publish_bytes(self._folder / name, text.encode("ascii"), point="record")
        except DslcError as error:
            if not self._warned:
                self._warn(f"{name} cannot be written: {error.message}")
            self._warned = True


def recorded_values(config: Config) -> dict[str, Any]:
    """The configuration's values by field name, as a run's folder has them."""
    return {entry.name: _finite(_relocated(entry, config)) for entry in config.entries}


def _relocated(entry: Entry, config: Config) -> Any:
    """The value; a relative path of a flag or variable becomes relative to the configuration's folder."""
    value = entry.value
    if not isinstance(value, str) or not entry.name.startswith(_PATHS) or ":" in entry.origin:
        return value
    root = config.path.parent if config.path is not None else Path()
    return value if os.path.isabs(value) else os.path.relpath(value, root)


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def _finite(data: Any) -> Any:
    """The data with NaN and infinities as texts, because JSON lacks them."""
    if isinstance(data, float) and not math.isfinite(data):
        return str(data)
    if isinstance(data, Mapping):
        return {str(key): _finite(value) for key, value in data.items()}
    if isinstance(data, list | tuple):
        return [_finite(value) for value in data]
    return data
