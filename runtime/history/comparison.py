"""Compares runs: the fields in which their configurations, models and data differ, and their curves in one picture."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from dslc.base.errors import DslcError
from dslc.runtime.history.folders import StoredRun
from dslc.runtime.history.publication import WEIGHTS_NAME
from dslc.runtime.history.score import Score, score_of
from dslc.runtime.train.checkpoint import CheckpointStore
from dslc.runtime.train.plot import Curves, Points, curves

LOG_NAME: Final = "log.jsonl"
_HIDDEN: Final = ("save.dir", "sweep.")  # the first differs between all runs; a sweep's section changes no run


def differing(runs: Sequence[StoredRun]) -> list[str]:
    """The fields of the configuration that do not have the same value in all runs; damaged runs are left out."""
    known = [run.config for run in runs if run.damaged is None]
    names = sorted({name for config in known for name in config if not name.startswith(_HIDDEN)})
    return [name for name in names if any(config.get(name) != known[0].get(name) for config in known)]


def facts(run: StoredRun) -> dict[str, str]:
    """What identifies the model, the artifact and the data of a run; empty texts if the record does not tell."""
    rows = run.number("rows")
    return {
        "model": run.text("name"),
        "artifact": run.text("artifact"),
        "interface": run.text("interface"),
        "evaluation data": run.text("weights", "data"),
        "rows": "" if rows is None else f"{rows:.0f}",
        "dslc": run.text("versions", "dslc"),
        "python": run.text("versions", "python"),
        "numpy": run.text("versions", "numpy"),
    }


def usable_weights(run: StoredRun) -> Path | None:
    """The weights of a run: its file of weights, or the run's folder if a checkpoint holds them; None without both."""
    if (run.folder / WEIGHTS_NAME).is_file():
        return run.folder / WEIGHTS_NAME
    try:
        return run.folder if CheckpointStore(run.folder, 0).steps() else None
    except OSError:
        return None


def published(runs: Sequence[StoredRun], target: Path | None) -> StoredRun | None:
    """The run whose weights are published as ``target``; None if no run's are, or if that is not known."""
    there = None if target is None else _score(target)
    for run in runs:
        if there is not None and there.run == run.name and _score(run.folder / WEIGHTS_NAME) in (None, there):
            return run
    return None


def _score(path: Path) -> Score | None:
    try:
        return score_of(path)
    except (DslcError, OSError):
        return None


def curves_of(runs: Sequence[StoredRun]) -> Curves:
    """The curves of several runs by metric and run: of the evaluations, or of the epochs' means without evaluations."""
    found: dict[str, dict[str, Points]] = {}
    for run in runs:
        for metric, of in curves(run.folder / LOG_NAME).items():
            found.setdefault(metric, {})[run.name] = of.get("eval") or of["train"]
    return found


def as_json(run: StoredRun, holds: bool) -> dict[str, Any]:
    """A run as data. ``holds``: its weights are the published ones."""
    best, weights = run.best, usable_weights(run)
    return {
        "name": run.name,
        "folder": str(run.folder),
        "state": run.state,
        "damaged": run.damaged,
        "step": run.number("step"),
        "steps": run.number("steps"),
        "best": None if best is None else dict(zip(("metric", "value", "step"), best)),
        "metrics": run.metrics,
        "started": run.started or None,
        "seconds": run.seconds,
        "error": run.text("error") or None,
        "published": holds,
        "weights": None if weights is None else str(weights),
        **{key.replace(" ", "_"): value or None for key, value in facts(run).items()},
        "config": run.config,
    }


def metric_of(run: StoredRun, name: str) -> float | None:
    """A metric of a run: that of its best weights, else that of its last evaluation."""
    best = run.best
    return best[1] if best is not None and best[0] == name else run.metrics.get(name)


def chosen(runs: Sequence[StoredRun], states: Sequence[str], where: Mapping[str, str]) -> list[StoredRun]:
    """The runs in one of these states, if any are named, whose configuration has these values, compared as text."""
    return [
        run
        for run in runs
        if (not states or run.state in states)
        and all(shown(run.config.get(name)) == value for name, value in where.items())
    ]


def shown(value: object) -> str:
    """A value of a configuration on one line, as YAML writes it."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {shown(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(shown, value)) + "]"
    return str(value)
