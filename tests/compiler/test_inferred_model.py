"""A model with inferred sizes, a table as long as a dim may be, and computed widths, against numpy."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import dslc
from dslc.compiler.check.model import check_file
from dslc.compiler.options import Options
from dslc.compiler.pipeline import build

MODEL = """nn 1
dim B in 1..64 = 4
dim T in 8..32 = 16

block down(x: [N, L, D], factor: float) -> [N, _, _] {
  return (x[:, 0:L//2] + x[:, L - L//2:]) |> linear(max(8, round(D * factor / 8) * 8), bias_init=0.5)
}

model M(x: [B, T, n], n: int = 12) -> [B, _, _] {
  param at: [T.max, n] = normal(0.02)
  return down(x + at[:T], 1.5)
}
"""


@pytest.mark.parametrize("length", [16, 17])
def test_against_numpy(tmp_path: Path, length: int) -> None:
    source = tmp_path / "model.nn"
    source.write_text(MODEL)
    options = Options(precision="f64", provider="reference", sizes={"predict": {"T": (length,)}})
    (tmp_path / "model.dslc").write_bytes(build(check_file(str(source)), options).artifact)
    with dslc.load(tmp_path / "model.dslc", weights="init", seed=3) as session:
        weights = {name: np.asarray(value) for name, value in dict(session.weights).items()}
        x = np.random.default_rng(0).normal(size=(4, length, 12))
        found = np.asarray(session.predict(x=x))
    assert weights["at"].shape == (32, 12) and weights["down.linear.weight"].shape == (16, 12)
    h, half = x + weights["at"][:length], length // 2
    expected = (h[:, :half] + h[:, -half:]) @ weights["down.linear.weight"].T + 0.5
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12)
