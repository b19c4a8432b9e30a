"""Subscripts of the language are numpy's: the same text gives the same elements, by slices and by integer tensors."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from op_laws.language import check, evaluate

from dslc.compiler.artifact.interface import integer_ranges
from dslc.compiler.ir.types import DType
from dslc.dsl.diagnostics import CompileError

X = np.arange(4 * 7 * 5, dtype=np.float64).reshape(4, 7, 5)

#: slice -> what numpy gives, and the shape in the language
SLICES = {
    "::-1": (X[::-1], "[B, 7, 5]"),
    ":, 5:0:-2": (X[:, 5:0:-2], "[B, 3, 5]"),
    ":, ::-3, ::-1": (X[:, ::-3, ::-1], "[B, 3, 5]"),
    ":, -2:-5:-1": (X[:, -2:-5:-1], "[B, 3, 5]"),
    ":, 2::-1, 1:4": (X[:, 2::-1, 1:4], "[B, 3, 3]"),
    ":, :3:-1, 0": (X[:, :3:-1, 0], "[B, 3]"),
    ":, 3:3:-1": (X[:, 3:3:-1], "[B, 0, 5]"),
    ":, ::-9": (X[:, ::-9], "[B, 1, 5]"),
    ":, ::2": (X[:, ::2], "[B, 4, 5]"),
}


@pytest.mark.parametrize("text", SLICES)
def test_a_slice_is_that_of_numpy(tmp_path: Path, text: str) -> None:
    expected, shape = SLICES[text]
    model = check(tmp_path, "x: [B, 7, 5]", f"  return x[{text}]", shape)
    np.testing.assert_array_equal(evaluate(model, {"x": X}, B=4), expected)


def test_flip_is_the_slice_with_a_step_of_minus_one(tmp_path: Path) -> None:
    flipped, sliced = (
        check(tmp_path, "x: [B, 7, 5]", f"  return {text}", "[B, 7, 5]").graph
        for text in ("flip(x, over=[0, 2])", "x[::-1, :, ::-1]")
    )
    [a], [b] = flipped.nodes, sliced.nodes
    assert a.op is b.op and a.attrs == b.attrs


I = np.array([[3, 0, 6], [6, 6, 1]], np.int32)
J = np.array([4, 0, 4], np.int64)
K = np.array([[1], [0]], np.uint8)
INDICES = {"x": "x: [B, 7, 5]", "i": "i: i32[2, 3]", "j": "j: i64[3]", "k": "k: u8[2, 1]"}

#: subscript with integer tensors -> the same in numpy, and the shape in the language
TENSORS = {
    "j": (X[J % 4], "j % 4", "[3, 7, 5]"),
    "i": (X[:, I], ":, i", "[B, 2, 3, 5]"),
    "last": (X[..., J], ":, :, j", "[B, 7, 3]"),
    "two": (X[:, I, J], ":, i, j", "[B, 2, 3]"),
    "two, first": (X[K, I], "k, i", "[2, 3, 5]"),
    "three": (X[K, I, J], "k, i, j", "[2, 3]"),
    "apart": (X[K, :, J], "k, :, j", "[2, 3, 7]"),
    "apart, sliced": (X[K, 1:6:2, J], "k, 1:6:2, j", "[2, 3, 3]"),
    "sliced": (X[::-1, I, 1:3], "::-1, i, 1:3", "[B, 2, 3, 2]"),
    "a position, then a tensor": (X[0][I], "0, i", "[2, 3, 5]"),
    "a position between": (X[:, 2][K, J], "k, 2, j", "[2, 3]"),
    "a position, a slice, a tensor": (X[0][:, J], "0, :, j", "[7, 3]"),
    "a position after": (X[:, I, -1], ":, i, -1", "[B, 2, 3]"),
    "a computed tensor": (X[:, (I + 1) % 7], ":, (i + 1) % 7", "[B, 2, 3, 5]"),
    "a single number": (X[:, 4], ":, j[0]", "[B, 5]"),
}


def given(text: str) -> str:
    """The declarations of the inputs that an expression reads."""
    read = re.findall(r"\b[a-z]\b", text)
    return ", ".join(declared for name, declared in INDICES.items() if name in read)


@pytest.mark.parametrize("name", TENSORS)
def test_a_subscript_by_tensors_is_that_of_numpy(tmp_path: Path, name: str) -> None:
    expected, text, shape = TENSORS[name]
    model = check(tmp_path, given(f"x[{text}]"), f"  return x[{text}]", shape)
    arrays = {i.name: {"x": X, "i": I, "j": J, "k": K}[i.name] for i in model.graph.inputs}
    np.testing.assert_array_equal(evaluate(model, arrays, B=4), expected)


@pytest.mark.parametrize(
    "text, found",
    [
        ("x[:, i, j]", {"i": [0, 7], "j": [0, 5]}),
        ("x[:, :, k]", {"k": [0, 5]}),
        ("x[:, k, i[0]]", {"k": [0, 7]}),
        ("x[:, i, :][:, :, :, reshape(j, [3, 1])]", {"i": [0, 7], "j": [0, 5]}),
        ('x[:, cast(i, "i64")]', {"i": [0, 7]}),
        ('x[:, cast(i, "u8")]', {}),
        ("x[:, i + 1]", {}),
    ],
)
def test_data_that_indexes_is_checked_for_each_axis(tmp_path: Path, text: str, found: dict[str, list[int]]) -> None:
    model = check(tmp_path, given(text), f"  return sum({text})", "[]")
    assert integer_ranges(model) == found


@pytest.mark.parametrize("wrong", [(-1, 0), (7, 0), (0, -1), (0, 5), (1, -7), (-(2**31), 3), (2**31 - 1, 4)])
def test_a_computed_index_outside_of_its_own_axis_gives_nan(tmp_path: Path, wrong: tuple[int, int]) -> None:
    body = "  return x[:, i + 0, j + 0]"
    i, j = (np.array([0, n], np.int32) for n in wrong)
    model = check(tmp_path, "x: [B, 7, 5], i: i32[2], j: i32[2]", body, "[B, 2]")
    found = evaluate(model, {"x": X, "i": i, "j": j}, B=4)
    assert np.isnan(found).tolist() == [[False, True]] * 4


def test_a_joint_index_of_large_axes_is_i64(tmp_path: Path) -> None:
    large = "x: [65536, 65536], i: i32[3], j: u8[3]"
    [ids] = [n for n in check(tmp_path, large, "  return x[i, j]", "[3]").graph.nodes if n.op.name == "joint_index"]
    assert ids.types[0].dtype is DType.I64


REFUSED = [
    ("x[x]", "E0202", "holds integers, this is"),
    ("x[x > 0]", "E0202", "holds integers, this is b1"),
    ("x[:, i, k, j]", "E0306", "4 indices"),
    ("x[:, i, j[:2]]", "E0301", "do not broadcast"),
    ("x[i:]", "E0202", "a size is an int"),
    ("x[1.5]", "E0202", "a size is an int"),
]


@pytest.mark.parametrize("text, code, why", REFUSED)
def test_a_wrong_subscript_is_told(tmp_path: Path, text: str, code: str, why: str) -> None:
    with pytest.raises(CompileError) as caught:
        check(tmp_path, given(text), f"  return sum({text})", "[]")
    assert caught.value.code == code and why in str(caught.value)
