"""Weights under other names: the longest beginning counts, and no two tensors get one name."""

from __future__ import annotations

from typing import Any

import pytest

from dslc.base.errors import ArtifactError
from dslc.runtime.weightfiles import renamed

TENSORS: dict[str, Any] = {name: object() for name in ("a.w", "a.b.w", "ab.w", "c")}


@pytest.mark.parametrize(
    ("names", "found"),
    [
        ({}, {"a.w": "a.w", "a.b.w": "a.b.w", "ab.w": "ab.w", "c": "c"}),
        ({"a": "x"}, {"x.w": "a.w", "x.b.w": "a.b.w", "ab.w": "ab.w", "c": "c"}),
        ({"a": "x", "a.b": "y"}, {"x.w": "a.w", "y.w": "a.b.w", "ab.w": "ab.w", "c": "c"}),
        ({"c": "a.c", "a.w": "c"}, {"c": "a.w", "a.b.w": "a.b.w", "ab.w": "ab.w", "a.c": "c"}),
    ],
)
def test_beginnings_up_to_a_dot(names: dict[str, str], found: dict[str, str]) -> None:
    assert renamed(TENSORS, names, "here") == {new: TENSORS[old] for new, old in found.items()}


@pytest.mark.parametrize(
    ("names", "said"),
    [
        ({"c": "a.w"}, "two tensors would be called `a.w`"),
        ({"a": "ab"}, "two tensors would be called `ab.w`"),
        ({"a.b": "a"}, "two tensors would be called `a.w`"),
        ({"d": "x"}, "no tensor's name is or begins with `d`"),
        ({"a.": "x"}, "no tensor's name"),
    ],
)
def test_what_does_not_name_each_tensor_once(names: dict[str, str], said: str) -> None:
    with pytest.raises(ArtifactError) as caught:
        renamed(TENSORS, names, "here")
    assert caught.value.code == "R305" and caught.value.place == "here" and said in caught.value.message
