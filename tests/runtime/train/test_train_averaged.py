"""`dslc train` with `ema` and `accumulate`: steps, schedules, files and going on, against built artifacts."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from training.small_model import batches, build, start

import dslc
from dslc.base.errors import DataError
from dslc.runtime.config.load import load_config
from dslc.runtime.session.session import Session
from dslc.runtime.train.checkpoint import CheckpointStore
from dslc.runtime.train.loop import train
from dslc.runtime.train.metrics import read_log
from dslc.runtime.weights import safetensors_file as tensorfile

YAML = """model: small.nn
data:
  train: {x: data.npz:x, label: data.npz:label}
  eval:  {x: data.npz:x, label: data.npz:label}
train: {epochs: 3, seed: 3, lr: {cosine: {warmup: 2 steps}}, log_every: 1 step, eval_every: 5 steps}
save:  {dir: runs/small, every: 2 steps, keep: 9, plot: false}
"""
ROWS = 44  # five steps of 8 rows an epoch, 4 rows left over


def project(folder: Path, batch: int, more: str) -> Path:
    path = build(folder, batch, more, middle="|> dropout(0.2)")
    np.savez(folder / "data.npz", **batches(1, ROWS)[0])  # type: ignore[arg-type]
    (folder / "dslc.yaml").write_text(YAML)
    return path


def run(folder: Path, session: Session, *, resume: bool = False) -> Any:
    return train(load_config(folder / "dslc.yaml", {}), session, folder / "build", resume, io.StringIO())


def test_steps_are_updates(tmp_path: Path) -> None:
    """Length, learning rates, evaluations, checkpoints and weights of a run are those of the whole batch."""
    found = {}
    for name, batch, more in (("whole", 8, ""), ("parts", 2, "accumulate = 4")):
        session = start(project(tmp_path / name, batch, more))
        result = run(tmp_path / name, session)
        assert result.steps == session.step == 15
        store = CheckpointStore(tmp_path / name / "runs/small", 9)
        assert store.steps() == [15, 14, 12, 10, 8, 6, 4, 2]
        last = store.newest(lambda found: None, print)
        assert (last.position.batch_size, last.position.epoch, last.position.batch) == (8, 3, 0)
        found[name] = (read_log(tmp_path / name / "runs/small/log.jsonl"), dict(session.weights))
    whole, parts = found["whole"], found["parts"]
    assert [(e["kind"], e["step"], e.get("lr")) for e in whole[0]] == [
        (e["kind"], e["step"], e.get("lr")) for e in parts[0]
    ]
    assert [e["loss"] for e in parts[0]] == pytest.approx([e["loss"] for e in whole[0]], rel=1e-12)
    for name, array in whole[1].items():
        np.testing.assert_allclose(parts[1][name], array, rtol=0, atol=1e-12)


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
def test_a_resumed_run_publishes_the_bytes_of_the_unbroken_one(tmp_path: Path, at: int) -> None:
    path = project(tmp_path, 2, "accumulate = 4; ema = 0.8")
    with pytest.raises(Interrupted):
        run(tmp_path, Stopping(start(path), at))  # type: ignore[arg-type]
    result = run(tmp_path, start(path), resume=True)
    resumed = result.weights.read_bytes()
    whole = tmp_path / "whole"
    assert run(whole, start(project(whole, 2, "accumulate = 4; ema = 0.8"))).weights.read_bytes() == resumed


def test_averages_are_evaluated_and_published_and_both_are_kept(tmp_path: Path) -> None:
    session = start(project(tmp_path, 8, "ema = 0.8"))
    result = run(tmp_path, session)
    published = {n: t.array() for n, t in tensorfile.read(result.weights).tensors.items()}
    last = CheckpointStore(tmp_path / "runs/small", 9).newest(lambda found: None, print).tensors
    assert set(published) == set(session.weights)
    for name, array in published.items():
        np.testing.assert_array_equal(array, last[name])
        assert np.abs(array - last[f"{name}.raw"]).max() > 1e-6
    plain = dslc.load(build(tmp_path / "plain", 8), weights=result.weights)
    assert result.metrics["loss"] == plain.evaluate(**batches(1, ROWS)[0]).loss


def test_too_few_rows_for_the_micro_batches(tmp_path: Path) -> None:
    session = start(project(tmp_path, 8, "accumulate = 6"))
    with pytest.raises(DataError) as caught:
        run(tmp_path, session)
    assert caught.value.code == "R106" and "48, 6 micro-batches of 8" in caught.value.message
    assert "--size B=7" in str(caught.value.help)
