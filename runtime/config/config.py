"""The values of a complete configuration. ``load.py`` reads them from ``dslc.yaml``, flags and variables."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dslc.runtime.config.augmentation import Augmentation
from dslc.runtime.config.policies import BadPolicy, Best, EarlyStop, NanPolicy
from dslc.runtime.config.schedule import Duration, Schedule
from dslc.runtime.config.space import Space
from dslc.runtime.config.values import Entry
from dslc.runtime.config.yaml import Plain
from dslc.runtime.data.augment.mix import Mix
from dslc.runtime.data.pictures import PictureOptions
from dslc.runtime.data.source import Source
from dslc.runtime.weights.names.name_map import NameMap
from dslc.runtime.weights.names.pattern import Pattern


@dataclass(frozen=True)
class DataConfig:
    """``columns``: the kind and the options of each column of a table that the configuration describes."""

    train: Mapping[str, Source]
    eval: Mapping[str, Source]
    split: float | None
    columns: Mapping[str, tuple[str, Mapping[str, Any]]]
    tokenizer: Path | None
    augment: Mapping[str, Augmentation]
    images: PictureOptions
    mix: Mix | None
    workers: int
    on_bad: BadPolicy
    shuffle: bool
    check_finite: bool


@dataclass(frozen=True)
class TrainConfig:
    epochs: int
    seed: int
    base_lr: float | None
    freeze: tuple[str, ...]
    lr_scale: Mapping[str, float]
    lr: Schedule
    schedules: Mapping[str, Schedule]
    on_nan: NanPolicy
    stop: EarlyStop | None
    log_every: Duration
    eval_every: Duration


@dataclass(frozen=True)
class SinkConfig:
    """The options of a sink, and where the configuration names it."""

    options: Mapping[str, Any]
    place: str


@dataclass(frozen=True)
class SaveConfig:
    """``root``: the folder that ``dir`` and its contents may not lead out of; None if a flag or variable set ``dir``,
    because then the user chose it."""

    dir: Path
    every: Duration
    keep: int
    best: Best | None
    plot: bool
    sinks: Mapping[str, SinkConfig]
    root: Path | None


@dataclass(frozen=True)
class StartConfig:
    """The origin of the initial weights. ``map``: from names in the file to names here. ``replace``: the tensors that
    keep their initial values. ``least``: the fraction of the weights' bytes that must come from the file."""

    weights: Path | None
    map: NameMap
    replace: tuple[Pattern, ...]
    partial: bool
    least: float


@dataclass(frozen=True)
class SweepConfig:
    """The trials of ``dslc sweep``. ``trials`` None: as many as the method takes by default."""

    method: str
    trials: int | None
    seed: int
    space: Space


@dataclass(frozen=True)
class Config:
    """A complete configuration. ``model`` is the source file, ``model_name`` the model in it (None: its only model)."""

    path: Path | None
    model: Path
    model_name: str | None
    args: Mapping[str, Any]
    build: Mapping[str, Any]
    data: DataConfig
    train: TrainConfig
    save: SaveConfig
    start: StartConfig
    sweep: SweepConfig
    entries: tuple[Entry, ...]

    def training_values(self) -> dict[str, Plain]:
        """The values that determine a run's results, by field name: stored in checkpoints and compared on resume."""
        return {
            entry.name: entry.value
            for entry in self.entries
            if determines_results(entry.name) and entry.value not in ([], {})
        }  # [] and {}: as if not set, as in checkpoints from before a field existed


def determines_results(field: str) -> bool:
    """Whether the result of a run, from the weights that it starts from, depends on a field."""
    exempt = ("build.name", "build.locked", "train.log_every", "data.check_finite", "data.workers")
    return field.startswith(("model", "args", "build.", "train.", "data.")) and field not in exempt
