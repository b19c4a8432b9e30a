"""Canonical JSON and schemas: one text for one value, and a place and a rule for everything else."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest

from dslc.base import canonical
from dslc.base.errors import ArtifactError
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


def made(rng: random.Random, depth: int = 0) -> Any:
    kind = rng.randrange(7 if depth < 6 else 5)
    if kind == 0:
        return rng.choice((None, True, False))
    if kind == 1:
        return rng.randrange(-(2**70), 2**70)
    if kind == 2:
        return rng.choice((0.0, -0.0, 1e22, 1e-7, 5e-324, 0.1 + 0.2, rng.uniform(-1e9, 1e9)))
    if kind in (3, 4):
        return "".join(rng.choice('ab"\\/\n\0é\U0001f600[]{},:') for _ in range(rng.randrange(6)))
    if kind == 5:
        return [made(rng, depth + 1) for _ in range(rng.randrange(4))]
    return {str(made(rng, 9)): made(rng, depth + 1) for _ in range(rng.randrange(4))}


def test_round_trip(fuzz_seed: int) -> None:
    rng = random.Random(fuzz_seed)
    for _ in range(500):
        value = made(rng)
        text = canonical.dumps(value)
        assert canonical.loads(text, place="x") == json.loads(text) == value
        assert canonical.dumps(canonical.loads(text, place="x")) == text


@pytest.mark.parametrize(
    ("text", "offset", "rule"),
    [
        (b'{"a":1,"a":2}', 5, "canonical"),
        (b'{"b":1,"a":2}', 2, "canonical"),
        (b'{"a" :1}', 4, "canonical"),
        (b"[1,NaN]", 3, "canonical"),
        (b"[-Infinity]", 1, "canonical"),
        (b"[1e5]", 2, "canonical"),
        (b"[0.10]", 4, "canonical"),
        (b"[-0]", 1, "canonical"),
        (b'["\\u0041"]', 2, "canonical"),
        (b"[1]x", 3, "not JSON"),
        (b"[01]", 2, "not JSON"),
        (b'["\xe9"]', 2, "ASCII"),
        (b"[" * 17 + b"]" * 17, 16, "deeper than 16"),
        (b"[[]]]", 4, "brackets do not match"),
        (b"[1,2,3,4,5,6,7,8]", 0, "more than 8 values"),
    ],
)
def test_refused_at_its_offset(text: bytes, offset: int, rule: str) -> None:
    with pytest.raises(ArtifactError) as caught:
        canonical.loads(text, place="file", offset=1000, max_values=8 if "more" in rule else 100)
    assert caught.value.place == f"file:{1000 + offset}" and rule in caught.value.message


def test_a_difference_far_into_the_text_is_found() -> None:
    text = b"[" + b"1," * 50_000 + b" 1]"
    with pytest.raises(ArtifactError) as caught:
        canonical.loads(text, place="file")
    assert caught.value.place == "file:100001"


@pytest.mark.parametrize("text", [b"[1,2,3,4,5,6,7]", b'["","",""]', b'{"a":[],"b":2}', b'"\\"\\"\\"\\""'])
def test_as_many_values_as_allowed(text: bytes) -> None:
    assert canonical.dumps(canonical.loads(text, place="file", max_values=8)) == text


@pytest.mark.parametrize("value", [float("nan"), {1: 2}, {"a": {None: 1}}, {"a"}, b"x", [[float("inf")]]])
def test_what_cannot_be_written(value: Any) -> None:
    with pytest.raises((ValueError, TypeError)):
        canonical.dumps(value)


def test_depth_when_writing() -> None:
    value: Any = 1
    for _ in range(16):
        value = [value]
    assert canonical.loads(canonical.dumps(value), place="x") == value
    with pytest.raises(ValueError, match="deeper than 16"):
        canonical.dumps([value])


SCHEMA: Schema = Record(
    {
        "i": Int(0, 9),
        "f": Float(),
        "b": Bool(),
        "t": Text(3, "[a-z]+", "a word"),
        "e": Enum(("x", "y")),
        "l": ListOf(Row({"p": Int(), "q": Nullable(Int())}), 2, least=1),
    },
    {"m": MapOf(Text(3), Either(Int(), Text())), "g": Tagged({"k": Row({"tag": Text(), "n": Int()})}), "j": Json(True)},
)
GOOD: dict[str, Any] = {"i": 1, "f": 0.5, "b": True, "t": "abc", "e": "x", "l": [[1, None]]}


@pytest.mark.parametrize(
    ("change", "path"),
    [
        ({"i": 10}, "i"), ({"i": True}, "i"), ({"i": 1.0}, "i"), ({"f": 1}, "f"), ({"f": float("inf")}, "f"),
        ({"f": float("nan")}, "f"), ({"b": 1}, "b"), ({"t": "abcd"}, "t"), ({"t": "A"}, "t"), ({"t": "a\n"}, "t"),
        ({"e": "z"}, "e"), ({"e": ["x"]}, "e"), ({"l": []}, "l"), ({"l": [[1, 2]] * 3}, "l"), ({"l": [[1]]}, "l[0]"),
        ({"l": [[1, 2], [1, "x"]]}, "l[1].q"), ({"l": {}}, "l"), ({"z": 1}, ""), ({"m": {"abcd": 1}}, "m.abcd"),
        ({"m": {"a": None}}, "m.a"), ({"g": []}, "g"), ({"g": ["z", 1]}, "g"), ({"g": ["k", "x"]}, "g.n"),
        ({"g": [[], 1]}, "g"), ({"j": []}, "j"), ({"j": {"a": 2**64}}, "j"), ({"j": {"\ud800": 1}}, "j"),
        ({"j": {"a": ["\udfff"]}}, "j"), ({"j": {"a": b""}}, "j"),
    ],
)  # fmt: skip
def test_schema_refuses_at_its_path(change: dict[str, Any], path: str) -> None:
    check = checker(SCHEMA)
    check(GOOD)
    with pytest.raises(Mismatch) as caught:
        check({**GOOD, **change})
    assert caught.value.path == path


def test_a_missing_field_is_named() -> None:
    with pytest.raises(Mismatch, match="the field 'b' is missing"):
        checker(SCHEMA)({k: v for k, v in GOOD.items() if k != "b"})
