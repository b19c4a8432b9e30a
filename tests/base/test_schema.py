"""Each kind of schema, asked with values of every type: what it takes is written down here once more."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from dslc.base.schema import (
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
    checker,
)

LARGE = 2**63
NAN, INF = float("nan"), float("inf")
#: One of each type, with the ends of each range. bool is an int to Python, and 1.0 equals 1: neither is one here.
VALUES: tuple[Any, ...] = (
    None, True, False, -LARGE - 1, -LARGE, -1, 0, 1, 2, 3, 7, 8, LARGE - 1, LARGE, 2 * LARGE - 1, 2 * LARGE,
    0.0, 1.0, -2.5, NAN, INF, -INF, "", "a", "aa", "aaa", "aaaa", "ab", "b", "a\n", "é", "\x7f", "\ud800",
    [], [1], [1, 2], [1, 2, 3], [1, True], [True], ["a"], ["a", 1], ["b", 1], ["b", "x"], ["a", 1, 2], [None], [[1]],
    [INF], {}, {"a": 1}, {"b": 1}, {"a": True}, {"a": 1, "b": 1}, {"a": 1, "c": 1}, {"a": 1, "b": "x"}, {"aaaa": 1},
    {"a": "\ud800"}, {"\ud800": 1}, {"a": [2 * LARGE]}, (1,), b"a", 1j, object,
)  # fmt: skip
Law = Callable[[Any], bool]


def integer(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def text(value: Any) -> bool:
    return isinstance(value, str) and not set(value) & set("\n\x7f\ud800")


def finite(value: Any) -> bool:
    return isinstance(value, float) and value not in (INF, -INF) and value == value


def json_like(value: Any) -> bool:
    if isinstance(value, dict):
        return all(isinstance(k, str) and k != "\ud800" for k in value) and all(map(json_like, value.values()))
    if isinstance(value, list):
        return all(map(json_like, value))
    if isinstance(value, str):
        return value != "\ud800"
    if integer(value):
        return bool(-LARGE <= value < 2 * LARGE)
    return (
        value is None
        or isinstance(value, bool)
        or (isinstance(value, float) and value not in (INF, -INF) and value == value)
    )


def ints(value: Any) -> bool:
    return isinstance(value, list) and all(integer(v) and -LARGE <= v < LARGE for v in value)


ANY = Int(-LARGE)
LAWS: dict[str, tuple[Schema, Law]] = {
    "int": (Int(), lambda v: integer(v) and 0 <= v < LARGE),
    "any int": (ANY, lambda v: integer(v) and -LARGE <= v < LARGE),
    "int from to": (Int(-1, 7), lambda v: integer(v) and -1 <= v <= 7),
    "float": (Float(), finite),
    "bool": (Bool(), lambda v: isinstance(v, bool)),
    "text": (Text(3), lambda v: text(v) and len(v) <= 3),
    "text of a": (Text(3, "a*"), lambda v: text(v) and v in ("", "a", "aa", "aaa")),
    "enum": (Enum(("a", "ab")), lambda v: v in ("a", "ab")),
    "nullable": (Nullable(Bool()), lambda v: v is None or isinstance(v, bool)),
    "either": (Either(Int(2, 7), Text(1)), lambda v: (integer(v) and 2 <= v <= 7) or (text(v) and len(v) <= 1)),
    "list": (ListOf(ANY, 2), lambda v: ints(v) and len(v) <= 2),
    "list of some": (ListOf(ANY, 2, 1), lambda v: ints(v) and 1 <= len(v) <= 2),
    "row": (Row({"x": ANY, "y": ANY}), lambda v: ints(v) and len(v) == 2),
    "record": (
        Record({"a": ANY}, {"b": Text(1)}),
        lambda v: isinstance(v, dict) and v.keys() <= {"a", "b"} and integer(v.get("a")) and text(v.get("b", "")),
    ),
    "map": (
        MapOf(Text(3, "[ab]+"), ANY, 1),
        lambda v: isinstance(v, dict) and len(v) <= 1 and v.keys() <= {"a", "b"} and all(map(integer, v.values())),
    ),
    "tagged": (
        Tagged({"a": Row({"tag": Text(1), "x": ANY}), "b": Row({"tag": Text(1), "x": Text(1)})}),
        lambda v: v in (["a", 1], ["b", "x"]),
    ),
    "json": (Json(), json_like),
    "table": (Json(table=True), lambda v: isinstance(v, dict) and json_like(v)),
}  # fmt: skip


@pytest.mark.parametrize("name", LAWS)
def test_a_schema_takes_what_it_says(name: str) -> None:
    schema, law = LAWS[name]
    check, taken = checker(schema), 0
    for value in VALUES:
        try:
            check(value)
        except Mismatch as mismatch:
            assert not law(value), f"{value!r} is refused: {mismatch}"
            assert mismatch.rule
        else:
            assert law(value) and not isinstance(value, (tuple, bytes)), f"{value!r} is taken"
            taken += 1
    assert 0 < taken < len(VALUES)


def test_every_kind_of_schema_is_asked() -> None:
    assert {type(schema) for schema, _ in LAWS.values()} == set(Schema.__args__)  # type: ignore[attr-defined]


def test_the_path_leads_to_the_value() -> None:
    check = checker(Record({"a": ListOf(Row({"x": ANY, "y": MapOf(Text(), Bool())}), 3)}))
    with pytest.raises(Mismatch) as caught:
        check({"a": [[1, {}], [2, {"k": 1}]]})
    assert caught.value.path == "a[1].y.k" and caught.value.got == 1
