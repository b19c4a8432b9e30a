"""Weights under other names: the longest beginning counts, and no two tensors get one name."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dslc.base.errors import ArtifactError
from dslc.runtime.weights import safetensors_file as tensorfile
from dslc.runtime.weights.files import compared
from dslc.runtime.weights.names.name_map import NameMap
from dslc.runtime.weights.tensor_bytes import FileTensor

TENSORS: dict[str, Any] = {
    name: FileTensor("f32", (0,), np.zeros(0, np.uint8)) for name in ("a.w", "a.b.w", "ab.w", "c")
}


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
    assert NameMap.of(names).renamed(TENSORS, "here") == {new: TENSORS[old] for new, old in found.items()}


@pytest.mark.parametrize(
    ("names", "said"),
    [
        ({"c": "a.w"}, "two tensors would be named `a.w`"),
        ({"a": "ab"}, "two tensors would be named `ab.w`"),
        ({"a.b": "a"}, "two tensors would be named `a.w`"),
        ({"d": "x"}, "no tensor's name is or begins with `d`"),
        ({"a.": "x"}, "no tensor's name"),
    ],
)
def test_what_does_not_name_each_tensor_once(names: dict[str, str], said: str) -> None:
    with pytest.raises(ArtifactError) as caught:
        NameMap.of(names).renamed(TENSORS, "here")
    assert caught.value.code == "R305" and caught.value.place == "here" and said in caught.value.message


def test_two_files_compared() -> None:
    """The same where name, shape, dtype and every bit are."""
    one = np.array([1.0, np.nan, -0.0], np.float32)
    cases: dict[str, tuple[Any, Any, bool, float | None]] = {
        "equal": (one, one.copy(), True, 0.0),
        "last_bit": (one, np.nextafter(one, np.float32(9)), False, 1.1920928955078125e-07),
        "dtype": (one[:1], one[:1].astype(np.float64), False, 0.0),
        "shape": (one, one.reshape(3, 1), False, None),
        "nan": (one, np.ones(3, np.float32), False, np.inf),
        "left": (one, None, False, None),
        "right": (None, one, False, None),
    }
    left, right = (
        tensorfile.encode({n: c[side] for n, c in cases.items() if c[side] is not None}, {}) for side in (0, 1)
    )
    files = [tensorfile.decode(np.frombuffer(data, np.uint8), "here") for data in (left, right)]
    found = {d.name: d for d in compared(files[0].tensors, files[1].tensors)}
    assert {n: (d.same, d.largest) for n, d in found.items()} == {n: c[2:] for n, c in cases.items()}
