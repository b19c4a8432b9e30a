"""Settings of a configuration that need another one, which is missing: a run goes on, but not as they ask."""

from __future__ import annotations

from collections.abc import Iterator

from dslc.runtime.config.config import Config

_NO_DATA = "there is no evaluation data: name it in `data.eval`, or write `split: 0.1` in `data`"
_NO_WEIGHTS = "there are no weights to start from: name a file in `start.weights`"


def idle_settings(config: Config) -> Iterator[str]:
    """A line for each of them, with its place, what it does instead, and what is missing."""
    given = {entry.name: entry.origin for entry in config.entries if entry.origin != "default"}
    missing: dict[str, tuple[str, str]] = {}
    if not config.data.eval and config.data.split is None:
        missing["save.best"] = ("compares means over epochs of training", _NO_DATA)
        missing["train.stop"] = missing["save.best"]
        missing["train.eval_every"] = ("has no effect", _NO_DATA)
    if config.start.weights is None:
        missing |= {f"start.{each}": ("has no effect", _NO_WEIGHTS) for each in ("map", "replace", "partial", "least")}
    idle = {"save.best": config.save.best is None, "train.stop": config.train.stop is None}
    for name, (instead, why) in missing.items():
        if name in given and not idle.get(name, False):
            yield f"warning: {given[name]}: `{name}` {instead}: {why}"
