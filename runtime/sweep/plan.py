"""The trials of a sweep before they run: their values, their configurations, and what identifies them.

All is checked before the first trial starts: each configuration by the reader of dslc.yaml, and for a method that
chooses later, each choice and both ends of each range.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from dslc.base.errors import DataError
from dslc.runtime.config.config import Config
from dslc.runtime.config.load import ConfigSource
from dslc.runtime.config.policies import Best
from dslc.runtime.config.readers import refuse
from dslc.runtime.config.space import Axis
from dslc.runtime.config.yaml import Plain, Value, plain
from dslc.runtime.sweep.draws import Values, drawn, grid

DEFAULT_TRIALS: Final = 20  # of a method that could go on forever
#: A field of the command line that would win over a key of the space.
_WINS: Final = {"train.lr": ("train.base_lr",)}


@dataclass(frozen=True)
class Trial:
    """The values of one trial as data, by key; ``key``: SHA-256 of all that determines its result, without the model's
    source."""

    values: Mapping[str, Plain]
    config: Config
    key: str


@dataclass(frozen=True)
class SweepPlan:
    """``trials``: all of them; those of ``optuna`` are chosen later, ``count`` in all. ``samples``: trials that contain
    each choice and each end of a range. ``rule``: which trial is best."""

    source: ConfigSource
    base: Config
    trials: tuple[Trial, ...]
    samples: tuple[Trial, ...]
    count: int
    rule: Best

    @property
    def method(self) -> str:
        return self.base.sweep.method

    def changed(self, values: Values) -> dict[str, Value]:
        """The fields of the configuration that a trial changes."""
        found: dict[str, Value] = {}
        for axis in self.base.sweep.space.axes:
            if axis.key in values:
                start = found.get(axis.field, self.source.in_file.get(axis.field))
                found[axis.field] = _put(start, axis.inner, values[axis.key])
        return found

    def trial(self, values: Values) -> Trial:
        """A trial; DataError R104 if its configuration is wrong."""
        config = self.source.config(self.changed(values))
        said = {key: plain(value) for key, value in values.items()}
        return Trial(said, config, _digest(_determining(config)))

    def described(self) -> dict[str, Any]:
        """What a resumed sweep must have in common with the interrupted one, as data: all but the number of trials."""
        sweep = self.base.sweep
        written = sweep.space.written
        names = {axis.field for axis in sweep.space.axes}
        base = {name: value for name, value in _determining(self.base).items() if name not in names}
        space = {} if written is None else plain(written)
        assert isinstance(space, dict)
        return {
            "sweep.method": sweep.method,
            "sweep.seed": sweep.seed,
            **{f"sweep.space.{name}": value for name, value in space.items()},
            **base,
        }


def plan_sweep(source: ConfigSource) -> SweepPlan:
    """The plan of a sweep. DataError R104 with the place of what is wrong."""
    base = source.config()
    sweep = base.sweep
    if not sweep.space.axes:
        raise DataError(
            "R104",
            "there is nothing to sweep: `sweep.space` is empty",
            place=str(base.path),
            help="write `sweep: {space: {train.lr: [0.1, 0.01]}}`, or give --space train.lr=[0.1,0.01]",
        )
    if not base.data.eval and base.data.split is None:
        raise DataError(
            "R104",
            "a sweep compares evaluations, and there is no evaluation data",
            place=str(base.path),
            help="set data.eval, or `split: 0.1` in data",
        )
    for axis in sweep.space.axes:
        _require_free(axis, source)
    count = sweep.trials or DEFAULT_TRIALS
    if sweep.method == "grid":
        found = grid(sweep.space)
        if sweep.trials is not None and sweep.trials != len(found):
            raise DataError(
                "R104",
                f"the grid has {len(found)} combinations, and `sweep.trials` is {sweep.trials}",
                place=_origin(base, "sweep.trials"),
                help="remove `trials`: a grid runs all of them; or write `method: random`",
            )
    else:
        found = drawn(sweep.space, sweep.seed, count) if sweep.method == "random" else []
    rule = base.save.best or Best("loss", highest=False)
    bare = SweepPlan(source, base, (), (), 0, rule)
    samples = tuple(map(bare.trial, _samples(sweep.space.axes)))
    trials = tuple(map(bare.trial, found))
    return replace(bare, trials=trials, samples=samples, count=len(trials) if sweep.method != "optuna" else count)


def _samples(axes: Sequence[Axis]) -> Iterator[Values]:
    """Trials from which the types and limits of all values can be judged: each choice and each end, once."""
    first = {axis.key: axis.ends[0] for axis in axes}
    yield first
    for axis in axes:
        for value in axis.ends[1:]:
            yield {**first, axis.key: value}


def _require_free(axis: Axis, source: ConfigSource) -> None:
    """DataError R104 if a flag or a variable sets the field of a key: it would win in every trial."""
    for field in (axis.field, *_WINS.get(axis.field, ())):
        if field in source.given:
            origin = source.given[field][1]
            refuse(
                axis.written,
                f"`{axis.key}` is in the space, and {'the command line' if origin == 'flag' else origin} sets {field}",
                "remove one of the two",
            )


def _put(start: Value | None, path: tuple[str, ...], leaf: Value) -> Value:
    """``start`` with another value at a path below it."""
    if not path:
        return leaf
    inner = dict(start.data) if start is not None and isinstance(start.data, dict) else {}
    inner[path[0]] = _put(inner.get(path[0]), path[1:], leaf)
    return Value(inner, leaf.mark)


def _determining(config: Config) -> dict[str, Plain]:
    """The values that determine the result of a run, by field name."""
    start = {e.name: e.value for e in config.entries if e.name.startswith("start.") and e.value not in ([], {})}
    return {**config.training_values(), **start, "save.best": str(config.save.best)}


def _digest(values: Mapping[str, Plain]) -> str:
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()


def _origin(config: Config, name: str) -> str:
    return next(entry.origin for entry in config.entries if entry.name == name)
