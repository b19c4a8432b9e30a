"""A loss with a reduction over the batch alone, which leaves other axes: it was refused as a damaged artifact."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from dslc.compiler import pipeline
from dslc.compiler.check.model import check_file
from dslc.compiler.ops.registry import meanings
from dslc.compiler.options import Options
from dslc.runtime.session.load import load

MODEL = """nn 1
dim B in 1..16 = 4
model Net(x: [B, 3]) -> [B, 5] { return x |> linear(5) as a }
train Net(y: [B, 5]) {
  p = sigmoid(output)
  loss = 1 - mean(2 * sum(p * y, over=0) / (sum(p, over=0) + sum(y, over=0) + 1))
  metrics { top = mean(max(p, over=0)) }
  optimizer = sgd(lr=0.1)
}
"""


def test_the_dice_loss_of_each_class_is_that_of_all_rows(tmp_path: Path) -> None:
    (tmp_path / "net.nn").write_text(MODEL)
    built = pipeline.build(check_file(tmp_path / "net.nn"), Options(provider="reference"))
    (tmp_path / "net.dslc").write_bytes(built.artifact)
    rng = np.random.default_rng(2)
    x, y = rng.standard_normal((9, 3), dtype=np.float32), rng.random((9, 5), dtype=np.float32)
    with load(tmp_path / "net.dslc", weights="init", meanings=meanings()) as session:
        got = session.evaluate(x=x, y=y)
        p = 1 / (1 + np.exp(-session.predict(x=x).astype(float)))
    dice = 2 * (p * y).sum(0) / (p.sum(0) + y.sum(0) + 1)
    assert got.loss == pytest.approx(1 - dice.mean(), rel=1e-6) and got.rows == 9
    assert got.metrics["top"] == pytest.approx(p.max(0).mean(), rel=1e-6)


def test_integers_and_comparisons_of_the_batch_in_a_loss(tmp_path: Path) -> None:
    """Averaging them as floats alone was a crash of the build."""
    text = MODEL.replace(
        "  loss = 1",
        "  high = max(p) > 0.5\n  some = max(argmax(p, axis=1))\n"
        '  loss = where(high, 2, 3) * cast(some, "float") + cast(output[0, 0] < 1000, "float") + 1',
    )
    (tmp_path / "net.nn").write_text(text)
    built = pipeline.build(check_file(tmp_path / "net.nn"), Options(provider="reference"))
    (tmp_path / "net.dslc").write_bytes(built.artifact)
    x, y = np.ones((9, 3), np.float32), np.zeros((9, 5), np.float32)
    with load(tmp_path / "net.dslc", weights="init", meanings=meanings()) as session:
        p = 1 / (1 + np.exp(-session.predict(x=x).astype(float)))
        assert session.evaluate(x=x, y=y).loss == pytest.approx((2 if p.max() > 0.5 else 3) * p[0].argmax() + 2)
