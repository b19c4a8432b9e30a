"""`dslc train` of a model with a loss scale: what a run shows and logs of skipped steps, and going on."""

from __future__ import annotations

import io
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from training.small_model import batches, build, start

from dslc.base.errors import NumericError
from dslc.compiler import pipeline
from dslc.compiler.ir.build import LossScale, Precision
from dslc.compiler.ir.types import DType
from dslc.runtime.config.load import load_config
from dslc.runtime.session.session import Session
from dslc.runtime.train.loop import train
from dslc.runtime.train.metrics import read_log

YAML = """model: small.nn
data: {train: {x: data.npz:x, label: data.npz:label}}
train: {epochs: 3, seed: 3, log_every: 1 step}
save:  {dir: runs/small, every: 2 steps, keep: 9, plot: false}
"""
ROWS = 44  # five steps of 8 rows an epoch, 4 rows left over
TOO_HIGH = 2.0**125  # for f32, in which these runs are


def project(folder: Path) -> Path:
    with pytest.MonkeyPatch.context() as patch:
        asked = Precision(DType.F32, DType.F32, LossScale(start=TOO_HIGH, interval=6, most=TOO_HIGH))
        patch.setattr(pipeline, "precision_of", lambda *_: asked)
        path = build(folder, 8, optimizer="adam(lr=0.001)")
    [data] = batches(1, ROWS, "f4")
    np.savez(folder / "data.npz", x=np.float32(3000) * data["x"], label=data["label"])
    (folder / "dslc.yaml").write_text(YAML)
    return path


def run(folder: Path, session: Session, *, resume: bool = False) -> tuple[Any, str, list[dict[str, Any]]]:
    shown = io.StringIO()
    result = train(load_config(folder / "dslc.yaml", {}), session, folder / "build", resume, shown)
    return result, shown.getvalue(), list(read_log(folder / "runs/small/log.jsonl"))


def test_a_run_goes_on_past_skipped_steps_and_says_how_many(tmp_path: Path) -> None:
    """Though `on_nan` is `stop`."""
    result, shown, log = run(tmp_path, start(project(tmp_path)))
    steps = [e for e in log if e["kind"] == "step"]
    skipped = steps[-1]["skipped"]
    assert result.exit_code == 0 and result.steps == 15 and 1 <= skipped <= 12
    assert {e["kind"] for e in log} == {"step", "epoch"}
    assert steps[0]["loss_scale"] == TOO_HIGH and steps[0]["skipped"] == 1
    for before, after in pairwise(steps):
        more = after["skipped"] - before["skipped"]
        assert more in (0, 1) and 0 <= before["loss_scale"] / after["loss_scale"] <= 2
    last = [e for e in log if e["kind"] == "epoch"][-1]
    assert (last["loss_scale"], last["skipped"]) == (steps[-1]["loss_scale"], skipped)
    assert f"loss_scale {int(last['loss_scale'])}  skipped {skipped}" in shown
    taken = [after["loss"] for before, after in pairwise(steps[9:]) if after["skipped"] == before["skipped"]]
    assert last["loss"] == pytest.approx(np.mean(taken)), "of the steps that were not skipped"


class Interrupted(Exception):
    pass


class Stopping:
    """A session whose step number ``at`` does not come."""

    def __init__(self, session: Session, at: int) -> None:
        self._session, self._at = session, at

    def __getattr__(self, name: str) -> Any:
        return getattr(self._session, name)

    def train_step(self, **given: Any) -> Any:
        if self._session.step == self._at:
            raise Interrupted
        return self._session.train_step(**given)


@pytest.mark.parametrize("at", [3, 9])
def test_a_resumed_run_goes_on_with_the_scale(tmp_path: Path, at: int) -> None:
    path = project(tmp_path)
    with pytest.raises(Interrupted):
        run(tmp_path, Stopping(start(path), at))  # type: ignore[arg-type]
    resumed, _, log = run(tmp_path, start(path), resume=True)
    whole, _, expected = run(tmp_path / "whole", start(project(tmp_path / "whole")))
    timed = ("samples_per_s", "seconds")
    assert [{k: v for k, v in e.items() if k not in timed} for e in log] == [
        {k: v for k, v in e.items() if k not in timed} for e in expected
    ]
    assert resumed.weights.read_bytes() == whole.weights.read_bytes()


def test_what_is_not_finite_at_the_least_scale_stops_a_run(tmp_path: Path) -> None:
    session = start(project(tmp_path))
    with np.load(tmp_path / "data.npz") as data:
        np.savez(tmp_path / "data.npz", x=np.full_like(data["x"], np.nan), label=data["label"])
    (tmp_path / "dslc.yaml").write_text(
        YAML.replace("epochs: 3", "epochs: 40").replace("data: {", "data: {check_finite: false, ")
    )
    with pytest.raises(NumericError) as caught:
        run(tmp_path, session)
    assert caught.value.code == "R501" and caught.value.message.endswith("in step 125")
