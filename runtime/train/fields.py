"""The closed schema of ``dslc.yaml`` as data: every field with its kind, default and meaning.

A kind reads one value with its place and raises DataError R104 there; nothing is cast that the file does not say.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final, NoReturn, TypeAlias

from dslc.base.errors import DataError
from dslc.runtime.train.schedule import Duration, Schedule, parse_duration
from dslc.runtime.train.yaml import Value, plain

Reader: TypeAlias = "Callable[[Value, str], Any]"  # (value, the field's name) -> what the field holds

_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}\Z")
_NAN_SKIP = re.compile(r"skip ([0-9]{1,9})\Z")
_BEST = re.compile(r"(?:(highest|lowest) +)?([A-Za-z_][A-Za-z0-9_]{0,63})\Z")


@dataclass(frozen=True)
class Field:
    """One field: its dotted name, how its value is read, its default, and one line for ``dslc config``.

    ``text`` fields take a flag or a variable as it stands; others read it as YAML. An ``open`` field is a mapping
    with keys of the user's, each read by ``read`` and each with an origin of its own.
    """

    name: str
    read: Reader
    default: Any
    doc: str
    text: bool = False
    open: bool = False

    @property
    def variable(self) -> str:
        return "DSLC_" + self.name.upper().replace(".", "_")


@dataclass(frozen=True)
class NanPolicy:
    """``stop`` at the first step with a NaN or Inf (skip = 0), or go on past so many of them."""

    skip: int = 0

    def __str__(self) -> str:
        return f"skip {self.skip}" if self.skip else "stop"


@dataclass(frozen=True)
class Best:
    """Which metric of an evaluation makes a checkpoint the best one, and in which direction."""

    metric: str
    highest: bool

    def better(self, new: float, old: float | None) -> bool:
        """Whether ``new`` beats ``old``; a NaN never does, a tie goes to the earlier."""
        if new != new:
            return False
        return old is None or (new > old if self.highest else new < old)

    def __str__(self) -> str:
        return f"{'highest' if self.highest else 'lowest'} {self.metric}"


def refuse(value: Value, cause: str, help: str) -> NoReturn:
    raise DataError("R104", cause, place=str(value.mark), help=help)


def shown(value: Value) -> str:
    """The value as a message quotes it."""
    text = str(plain(value))
    return f"`{text[:40]}{'...' if len(text) > 40 else ''}`"


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The known name that is meant, when one is close (similarity of at least two thirds)."""
    found = difflib.get_close_matches(name[:64], list(known), n=1, cutoff=2 / 3)
    return found[0] if found else None


def unknown(value: Value, key: str, known: Iterable[str], where: str) -> NoReturn:
    names = sorted(known)
    close = nearest(key, names)
    place = str(value.key or value.mark)
    help = f"did you mean `{close}`?" if close else f"known here: {', '.join(names)}"
    raise DataError("R104", f"unknown key `{key[:40]}` in {where}", place=place, help=help)


def mapping(value: Value, name: str) -> dict[str, Value]:
    if not isinstance(value.data, dict):
        refuse(value, f"`{name}` is a mapping, not {shown(value)}", "write `name: value` lines below it")
    return value.data


def integer(low: int, high: int) -> Reader:
    def read(value: Value, name: str) -> int:
        data = value.data
        if isinstance(data, bool) or not isinstance(data, int):
            refuse(value, f"`{name}` is an integer, not {shown(value)}", f"write a number from {low} to {high}")
        if not low <= data <= high:
            refuse(value, f"`{name}` = {data} is out of range", f"write a number from {low} to {high}")
        return data

    return read


def number(low: float, high: float) -> Reader:
    def read(value: Value, name: str) -> float:
        data = value.data
        if isinstance(data, bool) or not isinstance(data, int | float):
            refuse(value, f"`{name}` is a number, not {shown(value)}", f"write a number from {low:g} to {high:g}")
        if not low <= data <= high:
            refuse(value, f"`{name}` = {data:g} is out of range", f"write a number from {low:g} to {high:g}")
        return float(data)

    return read


def boolean(value: Value, name: str) -> bool:
    if not isinstance(value.data, bool):
        refuse(value, f"`{name}` is true or false, not {shown(value)}", "write `true` or `false`")
    return value.data


def text(value: Value, name: str) -> str:
    if not isinstance(value.data, str) or not value.data:
        refuse(value, f"`{name}` is a text, not {shown(value)}", "put it in quotes")
    return value.data


def anything(value: Value, name: str) -> Any:
    """Plain data for the compiler, which knows what it means."""
    return plain(value)


def argument(value: Value, name: str) -> bool | int | float | str:
    data = value.data
    if not isinstance(data, bool | int | float | str):
        refuse(value, f"`{name}` is a single value, not {shown(value)}", "write a number, true, false or a text")
    return data


def duration(*, zero: bool = False) -> Reader:
    def read(value: Value, name: str) -> Duration:
        help = "write for example `1 epoch`, `0.5 epochs` or `500 steps`"
        if not isinstance(value.data, str):
            refuse(value, f"`{name}` needs a unit, {shown(value)} has none", help)
        try:
            found = parse_duration(value.data)
        except ValueError as error:
            refuse(value, f"`{name}`: {error}", help)
        if not zero and found.amount == 0:
            refuse(value, f"`{name}` is zero", help)
        return found

    return read


def on_nan(value: Value, name: str) -> NanPolicy:
    if value.data == "stop":
        return NanPolicy()
    found = _NAN_SKIP.match(value.data) if isinstance(value.data, str) else None
    if found is None or int(found[1]) == 0:
        refuse(value, f"`{name}` cannot be {shown(value)}", "write `stop`, or `skip 10` to go on past ten such steps")
    return NanPolicy(int(found[1]))


def best(value: Value, name: str) -> Best | None:
    if value.data is None:
        return None
    found = _BEST.match(value.data) if isinstance(value.data, str) else None
    if found is None:
        help = "write a metric's name, `highest accuracy` or `lowest loss`"
        refuse(value, f"`{name}` cannot be {shown(value)}", help)
    highest = found[1] == "highest" if found[1] else found[2] != "loss"
    return Best(found[2], highest)


def data_source(value: Value, name: str) -> str:
    source = text(value, name)
    path, _, key = source.partition(".npz:")
    if not (path and key) and not (source.endswith(".npy") and len(source) > 4):
        help = "write `file.npz:key` or `file.npy`"
        refuse(value, f"`{name}` is no array in a file: {shown(value)}", help)
    return source


_FACTOR = number(0.0, 1e9)
_BASE = number(-1e30, 1e30)


def _milestones(value: Value, name: str) -> tuple[Duration, ...]:
    if not isinstance(value.data, list) or not value.data:
        refuse(value, f"`{name}` is a list of durations, not {shown(value)}", "write `[30 epochs, 60 epochs]`")
    return tuple(duration()(item, name) for item in value.data)


_COMMON: Final[dict[str, Reader]] = {"base": _BASE, "warmup": duration(zero=True)}
_SCHEDULES: Final[dict[str, dict[str, Reader]]] = {
    "constant": _COMMON,
    "cosine": {**_COMMON, "end": _FACTOR, "over": duration()},
    "linear": {**_COMMON, "end": _FACTOR, "over": duration()},
    "step": {**_COMMON, "factor": _FACTOR, "every": duration(), "at": _milestones},
}


def schedule(value: Value, name: str) -> Schedule:
    """A number (a constant base), a kind's name, or ``{kind: {...}}`` with exactly one kind."""
    data = value.data
    if isinstance(data, int | float) and not isinstance(data, bool):
        return Schedule(base=_BASE(value, name))
    if isinstance(data, str) and data in _SCHEDULES:
        kind, inner = data, Value({}, value.mark)
    elif isinstance(data, dict) and len(data) == 1:
        kind, inner = next(iter(data.items()))
        if kind not in _SCHEDULES:
            unknown(inner, kind, _SCHEDULES, f"`{name}`")
    else:
        refuse(
            value,
            f"`{name}` is no schedule: {shown(value)}",
            "write a number, `cosine`, or `{cosine: {warmup: 2 epochs}}`",
        )
    options = {} if inner.data is None else mapping(inner, f"{name}.{kind}")
    found: dict[str, Any] = {}
    for key, option in options.items():
        if key not in _SCHEDULES[kind]:
            unknown(option, key, _SCHEDULES[kind], f"`{name}.{kind}`")
        found[key] = _SCHEDULES[kind][key](option, f"{name}.{kind}.{key}")
    if kind == "step" and ("every" in found) == ("at" in found):
        refuse(value, f"`{name}.step` needs one of `every` and `at`", "write `{step: {every: 30 epochs, factor: 0.1}}`")
    return Schedule(kind=kind, **found)  # type: ignore[arg-type]  # a key of _SCHEDULES


def identifier(key: str) -> bool:
    """Whether a key of an open field can name an input, argument or option."""
    return _IDENTIFIER.match(key) is not None


FIELDS: Final[tuple[Field, ...]] = (
    Field("model", text, None, "the model's file, or FILE:MODEL", text=True),
    Field("args", argument, {}, "the model's arguments, by name", open=True),
    Field("build", anything, {}, "build options, by name", open=True),
    Field("data.train", data_source, {}, "file of each input of the model and of train", text=True, open=True),
    Field("data.eval", data_source, {}, "the same for evaluation", text=True, open=True),
    Field("data.shuffle", boolean, True, "a new order of the training rows each epoch"),
    Field("data.check_finite", boolean, True, "refuse NaN and Inf in the data when it is opened"),
    Field("train.epochs", integer(1, 10**9), 1, "passes over the training data"),
    Field("train.seed", integer(0, 2**63 - 1), 0, "of initial weights, order and random draws"),
    Field("train.base_lr", number(0.0, 1e30), None, "learning rate in place of the model's"),
    Field("train.lr", schedule, Schedule(), "schedule: a factor on the base learning rate"),
    Field("train.schedules", schedule, {}, "schedules of train's float arguments, by name", open=True),
    Field("train.on_nan", on_nan, NanPolicy(), "`stop`, or `skip N` to go on past N such steps"),
    Field("train.log_every", duration(), Duration(50, "steps"), "how often a line goes to the log"),
    Field("train.eval_every", duration(), Duration(1, "epochs"), "how often the evaluation data is run"),
    Field("save.dir", text, None, "folder of the run; default runs/NAME beside the configuration", text=True),
    Field("save.every", duration(), Duration(1, "epochs"), "how often a checkpoint is written"),
    Field("save.keep", integer(2, 10**6), 2, "how many of the newest checkpoints stay (at least 2)"),
    Field("save.best", best, None, "the metric whose best checkpoint stays and is published"),
)
