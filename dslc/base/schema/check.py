"""Schemas as functions: each takes a value and raises Mismatch where the value violates its schema.

The work is done once, when a function is made: a plan holds tens of thousands of values. The depth of the check is the
depth of the schema, never that of the value.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final, TypeAlias

from dslc.base.schema.kinds import (
    INT_LOW,
    Bool,
    Either,
    Enum,
    Float,
    Int,
    Json,
    ListOf,
    MapOf,
    Mismatch,
    Nullable,
    Record,
    Row,
    Schema,
    Tagged,
    Text,
)

_LARGEST_JSON_INT: Final = (1 << 64) - 1

Check: TypeAlias = Callable[[object], None]


def checker(schema: Schema) -> Check:
    """The function that checks a value against a schema and raises Mismatch."""
    match schema:
        case Int():
            return _int(schema)
        case Float():
            return _float
        case Bool():
            return _bool
        case Text():
            return _text(schema)
        case Enum(words):
            return _enum(frozenset(words), "one of " + ", ".join(words))
        case Nullable(of):
            return _nullable(checker(of))
        case Either(number, text):
            return _either(_int(number), _text(text))
        case ListOf(of=Int(low, high)):
            return _ints(
                low, high, max(1, schema.least), schema.most, _list(_int(Int(low, high)), schema.least, schema.most)
            )
        case ListOf():
            return _list(checker(schema.of), schema.least, schema.most)
        case Row(fields) if all(isinstance(inner, Int) for inner in fields.values()):
            bounds = tuple((inner.low, inner.high) for inner in fields.values() if isinstance(inner, Int))
            return _numbers(bounds, _row(tuple((name, checker(inner)) for name, inner in fields.items())))
        case Row(fields):
            return _row(tuple((name, checker(inner)) for name, inner in fields.items()))
        case Record(fields, optional):
            return _record({n: checker(s) for n, s in fields.items()}, {n: checker(s) for n, s in optional.items()})
        case MapOf():
            return _map(_text(schema.key), checker(schema.of), schema.most)
        case Tagged(kinds):
            return _tagged({tag: _tagged_row(row) for tag, row in kinds.items()})
        case Json(table):
            return _table if table else _json


def _int(schema: Int) -> Check:
    low, high = schema.low, schema.high

    def check(value: object) -> None:
        if type(value) is not int or not low <= value <= high:
            raise Mismatch(f"expected an int in [{low}, {high}]", value)

    return check


def _float(value: object) -> None:
    if type(value) is not float or not -1.8e308 < value < 1.8e308:
        raise Mismatch("expected a finite float", value)


def _bool(value: object) -> None:
    if type(value) is not bool:
        raise Mismatch("expected true or false", value)


def _text(schema: Text) -> Check:
    pattern = re.compile(schema.pattern) if schema.pattern is not None else None
    longest, called = schema.longest, schema.called

    def check(value: object) -> None:
        if type(value) is not str or len(value) > longest or not value.isprintable():
            raise Mismatch(f"expected {called}: printable, at most {longest} characters", value)
        if pattern is not None and pattern.fullmatch(value) is None:
            raise Mismatch(f"expected {called}", value)

    return check


def _enum(words: frozenset[str], rule: str) -> Check:
    def check(value: object) -> None:
        if type(value) is not str or value not in words:
            raise Mismatch(f"expected {rule}", value)

    return check


def _nullable(inner: Check) -> Check:
    def check(value: object) -> None:
        if value is not None:
            inner(value)

    return check


def _either(number: Check, text: Check) -> Check:
    def check(value: object) -> None:
        if type(value) is str:
            text(value)
        else:
            number(value)

    return check


def _list(inner: Check, least: int, most: int) -> Check:
    def check(value: object) -> None:
        if type(value) is not list or not least <= len(value) <= most:
            raise Mismatch(f"expected a list of {least} to {most} items", value)
        at = 0
        try:
            for at, item in enumerate(value):  # noqa: B007  (used by the handler)
                inner(item)
        except Mismatch as mismatch:
            raise mismatch.inside(at) from None

    return check


def _ints(low: int, high: int, least: int, most: int, otherwise: Check) -> Check:
    """For a list of ints, most of what plans are: in one loop if all is well. ``otherwise`` says what is not."""

    def check(value: object) -> None:
        if type(value) is list and least <= len(value) <= most:
            for item in value:
                if type(item) is not int or not low <= item <= high:
                    break
            else:
                return
        otherwise(value)

    return check


def _numbers(bounds: tuple[tuple[int, int], ...], otherwise: Check) -> Check:
    """The same for a row of ints, each with bounds of its own."""
    count = len(bounds)

    def check(value: object) -> None:
        if type(value) is list and len(value) == count:
            for item, (low, high) in zip(value, bounds):
                if type(item) is not int or not low <= item <= high:
                    break
            else:
                return
        otherwise(value)

    return check


def _tagged_row(row: Row) -> Check:
    """A row whose first item, its tag, is known. Most have one item more: a plan holds tens of thousands."""
    (tag, _), *rest = row.fields.items()
    inner = [(name, checker(schema)) for name, schema in rest]
    whole = _row(((tag, lambda _: None), *inner))
    if len(inner) != 1:
        return whole
    name, single = inner[0]

    def pair(value: object) -> None:
        if type(value) is not list or len(value) != 2:
            return whole(value)
        try:
            single(value[1])
        except Mismatch as mismatch:
            raise mismatch.inside(name) from None

    return pair


def _row(fields: tuple[tuple[str, Check], ...]) -> Check:
    count = len(fields)
    rule = f"expected a list of {count}: " + ", ".join(name for name, _ in fields)

    def check(value: object) -> None:
        if type(value) is not list or len(value) != count:
            raise Mismatch(rule, value)
        name = ""
        try:
            for (name, inner), item in zip(fields, value):  # noqa: B007  (used by the handler)
                inner(item)
        except Mismatch as mismatch:
            raise mismatch.inside(name) from None

    return check


def _record(fields: dict[str, Check], optional: dict[str, Check]) -> Check:
    required = fields.keys()
    every = fields | optional

    def check(value: object) -> None:
        if type(value) is not dict:
            raise Mismatch("expected an object", value)
        if value.keys() != required:
            for name in sorted(required - value.keys()):
                raise Mismatch(f"the field {name!r} is missing")
            for name in sorted(value.keys() - every.keys()):
                raise Mismatch(f"unknown field {name[:64]!r}")
        name = ""
        try:
            for name, item in value.items():
                every[name](item)
        except Mismatch as mismatch:
            raise mismatch.inside(name) from None

    return check


def _map(key: Check, inner: Check, most: int) -> Check:
    def check(value: object) -> None:
        if type(value) is not dict or len(value) > most:
            raise Mismatch(f"expected an object of at most {most} fields", value)
        name = ""
        try:
            for name, item in value.items():
                key(name)
                inner(item)
        except Mismatch as mismatch:
            raise mismatch.inside(name[:64]) from None

    return check


def _tagged(kinds: dict[str, Check]) -> Check:
    rule = "expected a list that begins with one of " + ", ".join(kinds)

    def check(value: object) -> None:
        if type(value) is not list or not value or type(value[0]) is not str or value[0] not in kinds:
            raise Mismatch(rule, value)
        kinds[value[0]](value)

    return check


def _json(value: object) -> None:
    stack = [value]
    while stack:
        item = stack.pop()
        kind = type(item)
        if kind is dict:
            assert isinstance(item, dict)
            for name in item:
                _json_text(name)
            stack.extend(item.values())
        elif kind is list:
            assert isinstance(item, list)
            stack.extend(item)
        elif kind is str:
            _json_text(item)
        elif kind is int:
            assert isinstance(item, int)
            if not INT_LOW <= item <= _LARGEST_JSON_INT:
                raise Mismatch("expected ints of at most 64 bits", item)
        elif kind is float:
            _float(item)
        elif item is not None and kind is not bool:
            raise Mismatch("expected JSON", item)


def _json_text(text: object) -> None:
    if not isinstance(text, str) or any("\ud800" <= c <= "\udfff" for c in text):
        raise Mismatch("expected text without lone surrogates", text)


def _table(value: object) -> None:
    if type(value) is not dict:
        raise Mismatch("expected an object", value)
    _json(value)
