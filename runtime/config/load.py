"""``dslc.yaml``: the configuration of ``dslc train`` from flags, ``DSLC_*`` variables, the file, and defaults, in this
order of precedence.

The file is data (``yaml.py``), its schema is closed (``fields.py``), and each value records its origin. Paths in the
file are relative to the file's folder, those of flags and variables to the working folder. Nothing is interpolated.
``args`` and ``build`` are passed to the compiler as plain data.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from dslc.base.errors import DataError
from dslc.runtime.config.config import Config, DataConfig, SaveConfig, SinkConfig, StartConfig, SweepConfig, TrainConfig
from dslc.runtime.config.maps import joined
from dslc.runtime.config.readers import refuse
from dslc.runtime.config.schedule import Schedule
from dslc.runtime.config.values import Entry, Values, from_file, from_outside
from dslc.runtime.config.yaml import Value, parse_yaml, read_bytes
from dslc.runtime.data.names import split
from dslc.runtime.data.source import Source

DEFAULT_FILE: Final = "dslc.yaml"
_MODEL = re.compile(r"(.+\.nn)(?::([A-Za-z_][A-Za-z0-9_]{0,63}))?\Z", re.DOTALL)


def load_config(
    path: Path | str | None = None,
    flags: Mapping[str, object] | None = None,
    env: Mapping[str, str] | None = None,
) -> Config:
    """Read the configuration.

    ``path`` None means ``./dslc.yaml`` if it exists. ``flags`` are keyed by dotted field name (``{"train.epochs": 3,
    "args.classes": "10"}``), as texts or plain data. ``env`` is searched for the variables (``DSLC_TRAIN_EPOCHS``).
    Raises DataError R101 (no file) or R104 (its contents, with place and help).
    """
    return config_source(path, flags, env).config()


@dataclass(frozen=True)
class ConfigSource:
    """The origins of a configuration: the file as it was read, flags and variables.

    A sweep makes the configurations of its trials from one of them: all see the same text, even if the file changes.
    """

    file: Path | None
    root: Path
    text: bytes
    in_file: Mapping[str, Value]
    given: Mapping[str, tuple[Value, str]]

    def config(self, changed: Mapping[str, Value] | None = None) -> Config:
        """The configuration; ``changed``: values by field name that replace those of the file.

        Raises DataError R104 at the place of the value that is wrong."""
        return _assemble(self.file, self.root, Values({**self.in_file, **(changed or {})}, self.given))


def config_source(
    path: Path | str | None = None,
    flags: Mapping[str, object] | None = None,
    env: Mapping[str, str] | None = None,
    text: bytes | None = None,
) -> ConfigSource:
    """Read the origins of a configuration, as ``load_config``; ``text``: of the file, if it was read before."""
    given = from_outside(flags or {}, env or {})
    if path is not None or Path(DEFAULT_FILE).exists():
        file = Path(path if path is not None else DEFAULT_FILE)
        text = read_bytes(file) if text is None else text
        return ConfigSource(file, file.parent, text, from_file(parse_yaml(text, str(file))), given)
    if "model" in given:
        return ConfigSource(None, Path(), b"", {}, given)
    raise DataError(
        "R101",
        "no configuration found here",
        place=DEFAULT_FILE,
        help="`dslc new NAME` makes a project; or name a file with --config",
    )


def _assemble(file: Path | None, root: Path, values: Values) -> Config:
    model, model_name = _model(values, root, file)
    args = {key: read for key, read, _ in values.many("args")}
    build = {key: read for key, read, _ in values.many("build")}
    data, train = _data(values, root), _train(values)  # fields are listed in the order in which they are read
    save = _save(values, root, model.stem if model_name is None else model_name.lower())
    start = StartConfig(
        _file(values, "start.weights", root),
        joined(values.one("start.map"), lambda name: values.path(name, "start.map", root)),
        tuple(values.one("start.replace")),
        values.one("start.partial"),
        values.one("start.least"),
    )
    sweep = SweepConfig(*(values.one(f"sweep.{name}") for name in ("method", "trials", "seed", "space")))
    return Config(file, model, model_name, args, build, data, train, save, start, sweep, tuple(values.entries))


def _data(values: Values, root: Path) -> DataConfig:
    return DataConfig(
        train=_sources(values, "data.train", root),
        eval=_sources(values, "data.eval", root),
        split=values.one("data.split"),
        columns=values.one("data.columns"),
        tokenizer=_file(values, "data.tokenizer", root),
        augment={key: read for key, read, _ in values.many("data.augment")},
        images=values.one("data.images"),
        mix=values.one("data.mix"),
        workers=values.one("data.workers"),
        on_bad=values.one("data.on_bad"),
        shuffle=values.one("data.shuffle"),
        check_finite=values.one("data.check_finite"),
    )


def _train(values: Values) -> TrainConfig:
    epochs, seed, base_lr, lr = (values.one(f"train.{name}") for name in ("epochs", "seed", "base_lr", "lr"))
    return TrainConfig(
        epochs=epochs,
        seed=seed,
        base_lr=_base_lr(values, base_lr, lr),
        lr=lr,
        freeze=values.one("train.freeze"),
        lr_scale=values.one("train.lr_scale"),
        schedules={key: read for key, read, _ in values.many("train.schedules")},
        on_nan=values.one("train.on_nan"),
        stop=values.one("train.stop"),
        log_every=values.one("train.log_every"),
        eval_every=values.one("train.eval_every"),
    )


def _save(values: Values, root: Path, stem: str) -> SaveConfig:
    """``stem``: the name of the folder in ``runs`` if none is given. DataError R104 if the file names a folder outside
    of the project."""
    folder = values.one("save.dir")
    inside = None if "save.dir" in values.given else root.absolute()
    if folder is None:
        save_dir = (root / "runs" / stem).absolute()
        values.entries[-1] = Entry("save.dir", str(save_dir), "default")
    else:
        save_dir = values.path(folder, "save.dir", root)
        if inside is not None and not Path(os.path.normpath(save_dir)).is_relative_to(os.path.normpath(inside)):
            refuse(
                values.file["save.dir"],
                f"`save.dir: {folder[:60]}` leads out of the project",
                "write a folder of the project, or name it on the command line: --set save.dir=FOLDER",
            )
    every, keep, best, plot = (values.one(f"save.{name}") for name in ("every", "keep", "best", "plot"))
    return SaveConfig(save_dir, every, keep, best, plot, _sinks(values), inside)


def _base_lr(values: Values, base_lr: float | None, lr: Schedule) -> float | None:
    """``base_lr``; None if `train.lr` names the base rate itself and was set nearer to the user, outside of the file.
    DataError R104 if both were set in the same way."""
    if base_lr is None or lr.base is None:
        return base_lr
    outside, lr_outside = ("train.base_lr" in values.given), ("train.lr" in values.given)
    if outside == lr_outside:
        found = values.find("train.lr")
        assert found is not None
        cause = f"`train.base_lr` is {base_lr:g} and `train.lr` sets the learning rate to {lr.base:g}"
        refuse(found[0], cause, "remove one of the two")
    return base_lr if outside else None


def _model(values: Values, root: Path, file: Path | None) -> tuple[Path, str | None]:
    text = values.one("model")
    if text is None:
        help = "add the line `model: NAME.nn`"
        raise DataError("R104", "the configuration names no model", place=str(file), help=help)
    found = _MODEL.match(text)
    if found is None:
        value = values.find("model")
        assert value is not None
        refuse(value[0], f"`{text[:60]}` is not a model", "write `FILE.nn` or `FILE.nn:Model`")
    return values.path(found[1], "model", root), found[2]


def _file(values: Values, name: str, root: Path) -> Path | None:
    text = values.one(name)
    return None if text is None else values.path(text, name, root)


def _sinks(values: Values) -> dict[str, SinkConfig]:
    """By name; ``save.tensorboard: true`` is short for one of them."""
    found = {"tensorboard": SinkConfig({}, "save.tensorboard")} if values.one("save.tensorboard") else {}
    for name, options, value in values.many("save.sinks"):
        if options is None:
            found.pop(name, None)
        else:
            found[name] = SinkConfig(options, str(value.mark))
    return found


def _sources(values: Values, name: str, root: Path) -> dict[str, Source]:
    found: dict[str, Source] = {}
    for key, text, _ in values.many(name):
        path, inner = split(text)
        found[key] = Source(values.path(path, f"{name}.{key}", root), inner, text)
    return found
