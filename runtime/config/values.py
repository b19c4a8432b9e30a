"""The origins of configuration values: the file, flags and variables, the schema's defaults."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from dslc.base.errors import DataError
from dslc.runtime.config.fields import FIELDS
from dslc.runtime.config.readers import Field, identifier, mapping, refuse, unknown
from dslc.runtime.config.schedule import Schedule
from dslc.runtime.config.space import Space
from dslc.runtime.config.yaml import Mark, Plain, Value, parse_yaml, plain
from dslc.runtime.nearest import nearest

_BY_NAME: Final = {field.name: field for field in FIELDS}
_SECTIONS: Final = frozenset(field.name.rpartition(".")[0] for field in FIELDS) - {""}
# An unknown variable with one of our prefixes is a typing error.
_OURS: Final = ("DSLC_TRAIN_", "DSLC_DATA_", "DSLC_SAVE_", "DSLC_START_", "DSLC_SWEEP_")


@dataclass(frozen=True)
class Entry:
    """One value as ``dslc config`` prints it. ``origin``: ``FILE:LINE:COLUMN``, ``flag``, a variable, ``default``."""

    name: str
    value: Plain
    origin: str


def from_file(tree: Value) -> dict[str, Value]:
    """Values by field name, ``NAME.KEY`` for open fields; rejects every key that the schema lacks."""
    found: dict[str, Value] = {}

    def section(value: Value, prefix: str) -> None:
        known = {name[len(prefix) :].split(".")[0] for name in _BY_NAME if name.startswith(prefix)}
        for key, item in mapping(value, prefix.rstrip(".")).items():
            name = prefix + key
            if key not in known:
                where = f"`{prefix.rstrip('.')}`" if prefix else "the configuration"
                belongs = next((each for each in sorted(_SECTIONS) if f"{each}.{key}" in _BY_NAME), None)
                unknown(item, key, known, where, belongs)
            if item.data is None and (name in _SECTIONS or _BY_NAME[name].open):
                continue  # `data:` with nothing under it
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


def from_outside(flags: Mapping[str, object], env: Mapping[str, str]) -> dict[str, tuple[Value, str]]:
    """Values and origins of flags and variables; flags override variables."""
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
    """The field that a dotted name belongs to: itself, or the open field that contains it."""
    if name in _BY_NAME:
        return None if _BY_NAME[name].open else name
    above, _, key = name.rpartition(".")
    return above if above in _BY_NAME and _BY_NAME[above].open and identifier(key) else None


def _outside(field: Field, value: object, origin: str) -> Value:
    """A value of a flag or variable; its place is its origin, unless it brings its own."""
    if isinstance(value, Value):
        return value
    if isinstance(value, str) and not field.text:
        inner = parse_yaml(f"value: {value}".encode(errors="surrogatepass"), origin).data
        assert isinstance(inner, dict)
        if list(inner) != ["value"]:
            raise DataError("R104", f"`{value[:40]}` is more than one value", place=origin, help="give one value")
        return moved(inner["value"], origin)
    return wrapped(value, origin)


def wrapped(value: object, origin: str) -> Value:
    """Plain data as a value whose place, and that of each part, is ``origin``."""
    mark = Mark(origin, 0, 0)
    if isinstance(value, Mapping):
        return Value({str(key): wrapped(item, origin) for key, item in value.items()}, mark)
    if isinstance(value, list | tuple):
        return Value([wrapped(item, origin) for item in value], mark)
    if value is None or isinstance(value, bool | int | float | str):
        return Value(value, mark)
    raise AssertionError(f"a flag of type {type(value).__name__}")


def moved(value: Value, origin: str) -> Value:
    """The value with the origin as every place: line and column in a flag's text have no meaning."""
    mark = Mark(origin, 0, 0)
    if isinstance(value.data, list):
        return Value([moved(item, origin) for item in value.data], mark)
    if isinstance(value.data, dict):
        return Value({key: moved(item, origin) for key, item in value.data.items()}, mark)
    return Value(value.data, mark)


class Values:
    """Selects each field's value and collects the list of entries."""

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
        """The entries of an open field: the key, the parsed content, and the value with its place."""
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
        """Resolve a path: values of the file relative to its folder, all others to the working folder."""
        base = root if name in self.file and name not in self.given else Path()
        try:
            return (base / text).absolute()
        except ValueError as error:
            raise DataError(
                "R104", f"`{name}` is not a path: {error}", place=name, help="write a plain path"
            ) from error


def _as_plain(default: Any) -> Plain:
    if default is None or isinstance(default, bool | int | float | str):
        return default
    if isinstance(default, Schedule):
        return default.kind
    if default == ():
        return []
    return {} if default in ({}, Space()) else str(default)
