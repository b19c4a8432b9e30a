"""``dslc.yaml``: what ``dslc train`` does, from flags, ``DSLC_*`` variables, the file, and defaults, in this order.

The file is data (``yaml.py``), its schema is closed (``fields.py``), and each value remembers where it came from.
Paths in the file are relative to the file's folder, those of flags and variables to the working folder. Nothing
is interpolated. ``args`` and ``build`` are handed on as plain data to the compiler.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from dslc.base.errors import DataError
from dslc.runtime.data.augment import Step
from dslc.runtime.data.source import Source, split
from dslc.runtime.nearest import nearest
from dslc.runtime.train.fields import FIELDS, BadPolicy, Best, EarlyStop, NanPolicy
from dslc.runtime.train.readers import Field, identifier, mapping, refuse, unknown
from dslc.runtime.train.schedule import Duration, Schedule
from dslc.runtime.train.yaml import Mark, Plain, Value, parse_yaml, plain, read_yaml

DEFAULT_FILE: Final = "dslc.yaml"
_MODEL = re.compile(r"(.+\.nn)(?::([A-Za-z_][A-Za-z0-9_]{0,63}))?\Z", re.DOTALL)
_BY_NAME: Final = {field.name: field for field in FIELDS}
_SECTIONS: Final = frozenset(field.name.rpartition(".")[0] for field in FIELDS) - {""}
# A variable that starts like one of ours and is none is a slip, not a stranger's.
_OURS: Final = ("DSLC_TRAIN_", "DSLC_DATA_", "DSLC_SAVE_", "DSLC_START_")


@dataclass(frozen=True)
class Entry:
    """One value as ``dslc config`` prints it. ``origin``: ``FILE:LINE:COLUMN``, ``flag``, a variable, ``default``."""

    name: str
    value: Plain
    origin: str


@dataclass(frozen=True)
class DataConfig:
    train: Mapping[str, Source]
    eval: Mapping[str, Source]
    split: float | None
    augment: Mapping[str, tuple[Step, ...]]
    workers: int
    on_bad: BadPolicy
    shuffle: bool
    check_finite: bool


@dataclass(frozen=True)
class TrainConfig:
    epochs: int
    seed: int
    base_lr: float | None
    lr: Schedule
    schedules: Mapping[str, Schedule]
    on_nan: NanPolicy
    stop: EarlyStop | None
    log_every: Duration
    eval_every: Duration


@dataclass(frozen=True)
class SaveConfig:
    dir: Path
    every: Duration
    keep: int
    best: Best | None
    plot: bool
    tensorboard: bool


@dataclass(frozen=True)
class StartConfig:
    """What the weights start from. ``map``: names in the file -> names here, or what they begin with."""

    weights: Path | None
    map: Mapping[str, str]
    partial: bool


@dataclass(frozen=True)
class Config:
    """A whole configuration. ``model`` is the source file, ``model_name`` the model in it (None: its only one)."""

    path: Path | None
    model: Path
    model_name: str | None
    args: Mapping[str, Any]
    build: Mapping[str, Any]
    data: DataConfig
    train: TrainConfig
    save: SaveConfig
    start: StartConfig
    entries: tuple[Entry, ...]

    def training_values(self) -> dict[str, Plain]:
        """What decides the numbers of a run, by field name: kept in checkpoints and compared on resume."""
        return {
            entry.name: entry.value
            for entry in self.entries
            if entry.name.startswith(("args", "train.", "data."))
            and entry.name not in ("train.log_every", "data.check_finite", "data.workers")
        }


def load_config(
    path: Path | str | None = None,
    flags: Mapping[str, object] | None = None,
    env: Mapping[str, str] | None = None,
) -> Config:
    """Read the configuration.

    ``path`` None means ``./dslc.yaml`` if it exists. ``flags`` are by dotted field name (``{"train.epochs": 3,
    "args.classes": "10"}``), texts or plain data. ``env`` is searched for the variables (``DSLC_TRAIN_EPOCHS``).
    Raises DataError R101 (no file) or R104 (its contents, with place and help).
    """
    given = _given(flags or {}, env or {})
    file: Path | None = None
    if path is not None or Path(DEFAULT_FILE).exists():
        file = Path(path if path is not None else DEFAULT_FILE)
        root = file.parent
        from_file = _from_file(read_yaml(file))
    elif "model" in given:
        root, from_file = Path(), {}
    else:
        raise DataError(
            "R101",
            "there is no configuration here",
            place=DEFAULT_FILE,
            help="`dslc new NAME` makes a project; or name a file with --config",
        )
    return _assemble(file, root, _Values(from_file, given))


def _from_file(tree: Value) -> dict[str, Value]:
    """Values by field name, ``NAME.KEY`` for open fields; refuses every key that the schema lacks."""
    found: dict[str, Value] = {}

    def section(value: Value, prefix: str) -> None:
        known = {name[len(prefix) :].split(".")[0] for name in _BY_NAME if name.startswith(prefix)}
        for key, item in mapping(value, prefix.rstrip(".")).items():
            name = prefix + key
            if key not in known:
                unknown(item, key, known, f"`{prefix.rstrip('.')}`" if prefix else "the configuration")
            if item.data is None and (name in _SECTIONS or _BY_NAME[name].open):
                continue  # `data:` with nothing below it
            if name in _SECTIONS:
                section(item, name + ".")
            elif _BY_NAME[name].open:
                for inner, entry in mapping(item, name).items():
                    found[_open_name(name, inner, entry)] = entry
            else:
                found[name] = item

    section(tree, "")
    return found


def _open_name(field: str, key: str, value: Value) -> str:
    if not identifier(key):
        refuse(value, f"`{key[:40]}` cannot be a name in `{field}`", "names are letters, digits and `_`, at most 64")
    return f"{field}.{key}"


def _given(flags: Mapping[str, object], env: Mapping[str, str]) -> dict[str, tuple[Value, str]]:
    """Values and origins of flags and variables; flags win."""
    found: dict[str, tuple[Value, str]] = {}
    by_variable = {field.variable: field for field in FIELDS if not field.open}
    for variable, content in sorted(env.items()):
        if variable in by_variable:
            field = by_variable[variable]
            found[field.name] = (_outside(field, content, variable), variable)
        elif variable.startswith(_OURS):
            close = nearest(variable, by_variable)
            help = f"did you mean {close}?" if close else f"known: {', '.join(sorted(by_variable))}"
            raise DataError("R104", f"unknown variable {variable[:60]}", place="the environment", help=help)
    for name, value in flags.items():
        if value is None:
            continue  # a flag that was not given
        field_name = _field_of(name)
        if field_name is None:
            raise AssertionError(f"no such field: {name}")
        found[name] = (_outside(_BY_NAME[field_name], value, f"flag {name}"), "flag")
    return found


def _field_of(name: str) -> str | None:
    """The field that a dotted name belongs to: itself, or the open field above it."""
    if name in _BY_NAME:
        return None if _BY_NAME[name].open else name
    above, _, key = name.rpartition(".")
    return above if above in _BY_NAME and _BY_NAME[above].open and identifier(key) else None


def _outside(field: Field, value: object, origin: str) -> Value:
    """A value of a flag or variable, with its origin as its place."""
    if isinstance(value, str) and not field.text:
        inner = parse_yaml(f"value: {value}".encode(errors="surrogatepass"), origin).data
        assert isinstance(inner, dict)
        if list(inner) != ["value"]:
            raise DataError("R104", f"`{value[:40]}` is more than one value", place=origin, help="give one value")
        return _moved(inner["value"], origin)
    return _moved(_wrapped(value, origin), origin)


def _wrapped(value: object, origin: str) -> Value:
    mark = Mark(origin, 0, 0)
    if isinstance(value, Mapping):
        return Value({str(key): _wrapped(item, origin) for key, item in value.items()}, mark)
    if isinstance(value, list | tuple):
        return Value([_wrapped(item, origin) for item in value], mark)
    if value is None or isinstance(value, bool | int | float | str):
        return Value(value, mark)
    raise AssertionError(f"a flag of type {type(value).__name__}")


def _moved(value: Value, origin: str) -> Value:
    """The value with the origin as every place: line and column of a flag's text say nothing."""
    mark = Mark(origin, 0, 0)
    if isinstance(value.data, list):
        return Value([_moved(item, origin) for item in value.data], mark)
    if isinstance(value.data, dict):
        return Value({key: _moved(item, origin) for key, item in value.data.items()}, mark)
    return Value(value.data, mark)


class _Values:
    """Picks each field's value and keeps the list of entries."""

    def __init__(self, file: Mapping[str, Value], given: Mapping[str, tuple[Value, str]]) -> None:
        self.file = file
        self.given = given
        self.entries: list[Entry] = []

    def find(self, name: str) -> tuple[Value, str] | None:
        if name in self.given:
            return self.given[name]
        if name in self.file:
            return self.file[name], str(self.file[name].mark)
        return None

    def one(self, name: str) -> Any:
        field = _BY_NAME[name]
        found = self.find(name)
        if found is None:
            self.entries.append(Entry(name, _as_plain(field.default), "default"))
            return field.default
        value, origin = found
        read = field.read(value, name)
        self.entries.append(Entry(name, plain(value), origin))
        return read

    def many(self, name: str) -> Iterator[tuple[str, Any, Value]]:
        """The entries of an open field: key, what was read, and the value with its place."""
        field = _BY_NAME[name]
        names = [n for n in (*self.file, *self.given) if n.rpartition(".")[0] == name]
        for full in dict.fromkeys(names):
            found = self.find(full)
            assert found is not None
            value, origin = found
            read = field.read(value, full)
            self.entries.append(Entry(full, plain(value), origin))
            yield full.rpartition(".")[2], read, value

    def path(self, text: str, name: str, root: Path) -> Path:
        """Resolve a path: the file's values against its folder, all others against the working folder."""
        base = root if name in self.file and name not in self.given else Path()
        try:
            return (base / text).absolute()
        except ValueError as error:
            raise DataError("R104", f"`{name}` is no path: {error}", place=name, help="write a plain path") from error


def _as_plain(default: Any) -> Plain:
    if default is None or isinstance(default, bool | int | float | str):
        return default
    if isinstance(default, Schedule):
        return default.kind
    return {} if default == {} else str(default)


def _assemble(file: Path | None, root: Path, values: _Values) -> Config:
    model, model_name = _model(values, root, file)
    args = {key: read for key, read, _ in values.many("args")}
    build = {key: read for key, read, _ in values.many("build")}
    data = DataConfig(
        train=_sources(values, "data.train", root),
        eval=_sources(values, "data.eval", root),
        split=values.one("data.split"),
        augment={key: read for key, read, _ in values.many("data.augment")},
        workers=values.one("data.workers"),
        on_bad=values.one("data.on_bad"),
        shuffle=values.one("data.shuffle"),
        check_finite=values.one("data.check_finite"),
    )
    train = TrainConfig(
        epochs=values.one("train.epochs"),
        seed=values.one("train.seed"),
        base_lr=values.one("train.base_lr"),
        lr=values.one("train.lr"),
        schedules={key: read for key, read, _ in values.many("train.schedules")},
        on_nan=values.one("train.on_nan"),
        stop=values.one("train.stop"),
        log_every=values.one("train.log_every"),
        eval_every=values.one("train.eval_every"),
    )
    folder = values.one("save.dir")
    if folder is None:
        stem = model.stem if model_name is None else model_name.lower()
        save_dir = (root / "runs" / stem).absolute()
        values.entries[-1] = Entry("save.dir", str(save_dir), "default")
    else:
        save_dir = values.path(folder, "save.dir", root)
    save = SaveConfig(
        save_dir,
        values.one("save.every"),
        values.one("save.keep"),
        values.one("save.best"),
        values.one("save.plot"),
        values.one("save.tensorboard"),
    )
    weights = values.one("start.weights")
    start = StartConfig(
        None if weights is None else values.path(weights, "start.weights", root),
        values.one("start.map"),
        values.one("start.partial"),
    )
    return Config(file, model, model_name, args, build, data, train, save, start, tuple(values.entries))


def _model(values: _Values, root: Path, file: Path | None) -> tuple[Path, str | None]:
    text = values.one("model")
    if text is None:
        help = "add the line `model: NAME.nn`"
        raise DataError("R104", "the configuration names no model", place=str(file), help=help)
    found = _MODEL.match(text)
    if found is None:
        value = values.find("model")
        assert value is not None
        refuse(value[0], f"`{text[:60]}` is no model", "write `FILE.nn` or `FILE.nn:Model`")
    return values.path(found[1], "model", root), found[2]


def _sources(values: _Values, name: str, root: Path) -> dict[str, Source]:
    found: dict[str, Source] = {}
    for key, text, _ in values.many(name):
        path, inner = split(text)
        found[key] = Source(values.path(path, f"{name}.{key}", root), inner, text)
    return found
