"""Training in f16 on this machine's GPU, against f32 and bf16 of the same model: losses, the scale, skipped steps.

Skipped where there is no GPU, or where CUDA cannot be compiled. ``-s`` shows a table.
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from places import MODELS
from real_gpu.launcher import Gpu, why_not

import dslc
from dslc.runtime.artifact.reserved import LOSS_SCALE, SCALING
from dslc.runtime.session.session import Session

MISSING = why_not() or next((f"no {n}" for n in ("numba_cuda", "lark") if find_spec(n) is None), None)
pytestmark = [pytest.mark.skipif(MISSING is not None, reason=str(MISSING)), pytest.mark.timeout(600)]

LENET = MODELS / "lenet.nn"
STEPS = 200


def started(folder: Path, precision: str) -> Session:
    from dslc.compiler import pipeline
    from dslc.compiler.check.model import check_file
    from dslc.compiler.options import Options

    target = Gpu().architecture
    options = Options(target=target, precision=precision, provider="own", sizes={"train": {"B": (64,)}})
    path = folder / f"{precision}.dslc"
    path.write_bytes(pipeline.build(check_file(LENET), options).artifact)
    return dslc.load(path, device="gpu", weights="init", seed=3)


def batch(step: int) -> dict[str, Any]:
    """Ten patterns, and noise."""
    rng = np.random.default_rng(step)
    label = rng.integers(0, 10, 64).astype(np.int32)
    patterns = np.random.default_rng(1).normal(size=(10, 1, 28, 28))
    image = patterns[label] + 0.7 * rng.normal(size=(64, 1, 28, 28))
    return {"image": image.astype(np.float32), "label": label}


def test_f16_learns_what_f32_learns(tmp_path: Path) -> None:
    losses = {}
    for precision in ("f32", "bf16", "f16"):
        with started(tmp_path, precision) as s:
            found = [s.train_step(**batch(step)) for step in range(STEPS)]
            losses[precision] = np.mean([r.loss for r in found[-20:] if not r.skipped])
            last = found[-1]
            print(f"{precision}: loss {found[0].loss:.4f} -> {losses[precision]:.4f}, scale {last.loss_scale}, "
                  f"skipped {last.skipped_steps}, waits {s.counters['synchronisations']}")  # fmt: skip
            assert s.counters["synchronisations"] == 0 and found[0].loss > 2
    assert losses["f16"] < 0.1 and losses["f16"] == pytest.approx(losses["f32"], abs=0.05)
    assert last.loss_scale is not None and last.loss_scale >= 256 and last.skipped_steps <= 8


def test_a_step_that_overflows_on_the_gpu(tmp_path: Path) -> None:
    with started(tmp_path, "f16") as s:
        s.train_step(**batch(0))
        before = s.state_tensors() | {LOSS_SCALE: np.float32(2.0**24)}
        s.restore(before, 1)
        wild = batch(1)
        wild["image"] *= 1000
        result = s.train_step(**wild)
        after = s.state_tensors()
        assert result.skipped and result.nonfinite is None and after[LOSS_SCALE] == 2.0**23
        assert all(np.array_equal(before[n], after[n]) for n in before if n not in SCALING)
