"""Whole models: training with fusion gives the bits of training without it, and the same source the same bytes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from places import MODELS

from dslc.compiler import pipeline
from dslc.compiler.check.model import check_file
from dslc.compiler.ops.registry import meanings
from dslc.compiler.options import Options
from dslc.runtime.session.load import load


def _trained(path: Path, fuse: bool, precision: str) -> tuple[list[float], dict[str, np.ndarray]]:
    options = Options(provider="reference", fuse=fuse, precision=precision, sizes={"train": {"B": (4,)}})
    path.write_bytes(pipeline.build(check_file(MODELS / "lenet.nn"), options).artifact)
    rng = np.random.default_rng(3)
    losses = []
    with load(path, weights="init", seed=5, meanings=meanings()) as session:
        for _ in range(4):
            image = rng.random((4, 1, 28, 28)).astype("float64" if precision == "f64" else "float32")
            losses.append(session.train_step(image=image, label=rng.integers(0, 10, 4).astype(np.int32)).loss)
        return losses, dict(session.state_tensors())


@pytest.mark.parametrize("precision", ["f32", "f64"])
def test_fused_training_is_unfused_training(precision: str, tmp_path: Path) -> None:
    (losses, fused), (same_losses, unfused) = (_trained(tmp_path / f"{on}.dslc", on, precision) for on in (True, False))
    assert losses == same_losses and len(set(losses)) == 4
    assert fused.keys() == unfused.keys() and len(fused) == 20
    for name, value in fused.items():
        assert value.tobytes() == unfused[name].tobytes(), name


def test_the_same_source_gives_the_same_bytes() -> None:
    first, second = (
        pipeline.build(check_file(MODELS / "lenet.nn"), Options(provider="reference")).artifact for _ in range(2)
    )
    assert first == second
