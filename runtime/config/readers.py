"""Readers of single values: each takes a value with its place and raises DataError R104 at that place. No value is
converted implicitly.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final, NoReturn, TypeAlias

from dslc.base.errors import DataError
from dslc.base.words import of_percentage
from dslc.runtime.config.habits import key_hint
from dslc.runtime.config.schedule import Duration, parse_duration
from dslc.runtime.config.yaml import Value, plain
from dslc.runtime.nearest import nearest

Reader: TypeAlias = "Callable[[Value, str], Any]"  # (value, the field's name) -> the field's content

_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}\Z")


@dataclass(frozen=True)
class Field:
    """One field: its dotted name, its reader, its default, and one line for ``dslc config``.

    ``text`` fields take the text of a flag or variable unchanged; others parse it as YAML. An ``open`` field is a
    mapping with user-defined keys; each is read by ``read`` and has its own origin.
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


def refuse(value: Value, cause: str, help: str) -> NoReturn:
    raise DataError("R104", cause, place=str(value.mark), help=help)


def shown(value: Value) -> str:
    """The value as quoted in messages."""
    text = str(plain(value))
    return f"`{text[:40]}{'...' if len(text) > 40 else ''}`"


def unknown(value: Value, key: str, known: Iterable[str], where: str, section: str | None = None) -> NoReturn:
    """DataError R104 for a key that is none of ``known``; ``section``: the one that has such a key."""
    names = sorted(known)
    close = nearest(key, names)
    place = str(value.key or value.mark)
    help = f"did you mean `{close}`?" if close else key_hint(key) or f"known here: {', '.join(names)}"
    if section is not None:
        help = f"it belongs to `{section}`: write `{section}: {{{key}: ...}}`"
    raise DataError("R104", f"unknown key `{key[:40]}` in {where}", place=place, help=help)


def in_quotes(value: Value) -> str:
    """The help for a value that should be a text; the entries of a list, such as columns, are one text."""
    if not isinstance(value.data, list):
        return "put it in quotes"
    whole = ",".join(str(each.data) for each in value.data)
    first, _, columns = whole.partition(":")
    whole = f"{first}:{columns.replace(f',{first}:', ',')}" if columns else whole  # `[t.csv:a, t.csv:b]`
    return f'write one text: "{whole[:60]}"'


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
            percent = of_percentage(data) if (low, high) == (0, 1) else None
            help = percent or f"write a number from {low:g} to {high:g}"
            refuse(value, f"`{name}` = {data:g} is out of range", help)
        return float(data)

    return read


ANY_NUMBER: Final = number(-1e30, 1e30)


def boolean(value: Value, name: str) -> bool:
    if not isinstance(value.data, bool):
        refuse(value, f"`{name}` is true or false, not {shown(value)}", "write `true` or `false`")
    return value.data


def text(value: Value, name: str) -> str:
    if value.data is None:  # as the key `b` of `{x: t.csv:a,b}`
        help = 'write it after the colon; a text with commas needs quotes inside of `{ }`: `x: "t.csv:a,b"`'
        refuse(value, f"`{name}` has no value", help)
    if not isinstance(value.data, str) or not value.data:
        refuse(value, f"`{name}` is a string, not {shown(value)}", in_quotes(value))
    return value.data


def anything(value: Value, name: str) -> Any:
    """Plain data for the compiler, which interprets it."""
    return plain(value)


def argument(value: Value, name: str) -> bool | int | float | str:
    data = value.data
    if not isinstance(data, bool | int | float | str):
        refuse(value, f"`{name}` is a single value, not {shown(value)}", "write a number, true, false or a string")
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


def identifier(key: str) -> bool:
    """True if a key of an open field can name an input, argument or option."""
    return _IDENTIFIER.match(key) is not None
