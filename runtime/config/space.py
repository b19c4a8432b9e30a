"""Reads the space of a sweep: the values that its trials try, by the path of the field that gets them.

A value keeps its place in the file, so an error of a trial's configuration names the line of the space.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias, cast

from dslc.runtime.config.readers import identifier, integer, mapping, number, refuse, shown, unknown
from dslc.runtime.config.yaml import Value, plain

Kind: TypeAlias = Literal["choice", "uniform", "log_uniform", "int"]

MOST: Final = 1000  # values of one key
_KINDS: Final = ("choice", "uniform", "log_uniform", "int")
_HELP: Final = "write `[0.1, 0.01]`, `{uniform: [0, 0.5]}`, `{log_uniform: [1e-4, 0.1]}` or `{int: [1, 8]}`"
#: Fields that no trial may change, and why.
_SAME: Final = {
    "save": "it says what a run keeps, not what it learns",
    "sweep": "it describes the sweep itself",
    "data.eval": "trials with other evaluation data cannot be compared",
    "data.split": "trials with other evaluation data cannot be compared",
    "data.workers": "results do not depend on it",
    "data.check_finite": "results do not depend on it",
    "train.log_every": "results do not depend on it",
    "build.name": "it names an artifact",
    "build.target": "all trials run on the same kind of device",
    "build.gpu": "all trials run on the same kind of device",
    "build.locked": "results do not depend on it",
}


@dataclass(frozen=True)
class Axis:
    """One key of a space: ``field`` is the field, ``inner`` the path in its value, ``written`` the text of the file.

    A ``choice`` has ``choices``; the others are ranges from ``low`` to ``high``, both included."""

    key: str
    field: str
    inner: tuple[str, ...]
    kind: Kind
    written: Value
    choices: tuple[Value, ...] = ()
    low: float = 0
    high: float = 0

    def of(self, found: int | float) -> Value:
        """A number of the range, with the place of the range."""
        return Value(found, self.written.mark)

    def matching(self, found: object) -> Value | None:
        """The value of the axis that equals plain data; None if it has no such value."""
        for choice in self.choices:
            if plain(choice) == found and type(choice.data) is type(found):
                return choice
        whole = self.kind == "int"
        if self.choices or isinstance(found, bool) or not isinstance(found, int if whole else int | float):
            return None
        return self.of(found) if self.low <= found <= self.high else None

    @property
    def ends(self) -> tuple[Value, ...]:
        """The values from which all others can be judged: each choice, or both ends of a range."""
        return self.choices or (self.of(self.low), self.of(self.high))


@dataclass(frozen=True)
class Space:
    """``axes`` in the order of the file; ``written``: the section as it is there, None if it is missing."""

    axes: tuple[Axis, ...] = ()
    written: Value | None = None


def space(value: Value, name: str) -> Space:
    """A mapping from paths of the configuration to values. An empty one is a space without keys."""
    axes = [_axis(key, item, f"{name}.{key}") for key, item in mapping(value, name).items()]
    for axis in axes:
        for other in axes:
            if other.key.startswith(axis.key + "."):
                refuse(
                    other.written, f"`{other.key}` is a part of `{axis.key}`, which is here, too", "keep one of them"
                )
    return Space(tuple(axes), value)


def _axis(key: str, value: Value, name: str) -> Axis:
    field, inner = _located(key, value)
    if isinstance(value.data, list):
        return Axis(key, field, inner, "choice", value, _choices(value, name))
    if not isinstance(value.data, dict):
        refuse(value, f"`{name}` is one value, {shown(value)}: there is nothing to try", _HELP)
    if len(value.data) != 1:
        refuse(value, f"`{name}` is not one of the forms of a space: {shown(value)}", _HELP)
    [(kind, given)] = value.data.items()
    if kind not in _KINDS:
        unknown(given, kind, _KINDS, f"`{name}`")
    if kind == "choice":
        return Axis(key, field, inner, "choice", value, _choices(given, name))
    low, high = _range(kind, given, f"{name}.{kind}")
    return Axis(key, field, inner, cast(Kind, kind), value, (), low, high)


def _choices(value: Value, name: str) -> tuple[Value, ...]:
    if not isinstance(value.data, list) or not value.data:
        refuse(
            value, f"`{name}` is {'empty' if value.data == [] else shown(value)}", "write a list of at least one value"
        )
    if len(value.data) > MOST:
        refuse(value, f"`{name}` lists {len(value.data)} values", f"list at most {MOST}, or write a range")
    seen: list[tuple[object, object]] = []
    for item in value.data:
        said = (type(item.data), plain(item))
        if said in seen:
            refuse(item, f"`{name}` lists {shown(item)} twice", "list each value once")
        seen.append(said)
    return tuple(value.data)


def _range(kind: str, value: Value, name: str) -> tuple[float, float]:
    example = {"int": "[1, 8]", "uniform": "[0, 0.5]", "log_uniform": "[1e-4, 0.1]"}[kind]
    if not isinstance(value.data, list) or len(value.data) != 2:
        refuse(value, f"`{name}` is a range of two numbers, not {shown(value)}", f"write `{{{kind}: {example}}}`")
    read = integer(-(2**62), 2**62) if kind == "int" else number(-1e30, 1e30)
    low, high = (read(item, name) for item in value.data)
    if not low < high:
        refuse(value, f"`{name}` starts at {low:g} and ends at {high:g}", "write the smaller number first")
    if kind == "log_uniform" and (low <= 0 or not math.isfinite(math.log(low))):
        refuse(value, f"`{name}` starts at {low:g}, which has no logarithm", "write numbers above 0")
    return low, high


def _located(key: str, value: Value) -> tuple[str, tuple[str, ...]]:
    """The field of a key, ``args.width``, and the path in the field's value: ``train.B`` of ``build.sizes.train.B``."""
    from dslc.runtime.config.fields import FIELDS  # it lists this section, too

    parts = key.split(".")
    for fixed, why in _SAME.items():
        if key == fixed or key.startswith(fixed + "."):
            refuse(value, f"a sweep cannot change `{key[:60]}`: {why}", "remove the key from the space")
    for field in FIELDS:
        above = field.name.split(".")
        count = len(above) + field.open
        if parts[: len(above)] == above and len(parts) >= count and all(map(identifier, parts)):
            return ".".join(parts[:count]), tuple(parts[count:])
    if parts[-1] in ("batch", "batch_size"):
        help = "the batch is a dim of the model: write build.sizes.train.B"
        refuse(value, f"unknown key `{key[:60]}` in the space", help)
    unknown(value, key, _names(), "the space")


def _names() -> Iterator[str]:
    from dslc.runtime.config.fields import FIELDS

    for field in FIELDS:
        if not any(field.name == fixed or field.name.startswith(fixed + ".") for fixed in _SAME):
            yield f"{field.name}.NAME" if field.open else field.name
