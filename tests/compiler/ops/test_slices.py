"""Slices of the language are numpy's: the same text gives the same elements, in both directions."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from op_laws.language import check, evaluate

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
