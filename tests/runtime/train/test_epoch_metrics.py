"""`metrics epoch { ... }`: in training, too, these are computed from sums over all rows of the epoch so far."""

from __future__ import annotations

import io
import json
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from training.small_model import batches, build, start

from dslc.base.errors import DataError
from dslc.runtime.config.load import load_config
from dslc.runtime.session.session import Session
from dslc.runtime.train.checkpoint import CheckpointStore
from dslc.runtime.train.loop import train
from dslc.runtime.weights.slots import slots

#: F1 of class 1, the area under the curve of a histogram of ten bins, squares of hits by class, an extreme, a mean.
MORE = """
  yes   = cast(argmax(output) == 1, "float")
  truth = cast(label == 1, "float")
  tp    = sum(yes * truth)
  wrong = sum(abs(yes - truth))
  rows  = cast(reshape(argmax(output), [B, 1]) == arange(3), "float")
  share = softmax(output)[:, 1]
  hit   = cast(reshape(floor(share * 10), [B, 1]) == cast(arange(10), "float"), "float")
  pos   = sum(hit * reshape(truth, [B, 1]), over=0)
  neg   = sum(hit * reshape(1 - truth, [B, 1]), over=0)
  metrics epoch {
    f1      = 2 * tp / (2 * tp + wrong)
    auc     = sum(pos * (cumsum(neg) - neg / 2)) / (sum(pos) * sum(neg))
    squares   = sum(sum(reshape(cast(argmax(output) == label, "float"), [B, 1]) * rows, over=0)^2)
    highest = max(output)
    average = mean(output)
  }
  metrics { part = 2 * tp / (2 * tp + wrong) }
"""
YAML = """model: small.nn
data:
  train: {x: data.npz:x, label: data.npz:label}
train: {epochs: 3, seed: 3, log_every: 1 step}
save:  {dir: runs/small, every: 2 steps, keep: 9, plot: false, best: highest f1}
"""
ROWS = 40  # five steps of 8 rows an epoch


def wanted(output: np.ndarray, label: np.ndarray) -> dict[str, float]:
    """The metrics of these rows in numpy."""
    best, truth = output.argmax(1), label == 1
    yes = best == 1
    tp, wrong = (yes & truth).sum(), (yes != truth).sum()
    e = np.exp(output - output.max(1, keepdims=True))
    bins = np.floor((e / e.sum(1, keepdims=True))[:, 1] * 10).astype(int)
    pos, neg = (np.bincount(bins[chosen], minlength=10) for chosen in (truth, ~truth))
    hits = np.bincount(best[best == label], minlength=3)
    return {
        "f1": 2 * tp / (2 * tp + wrong),
        "auc": (pos * (neg.cumsum() - neg / 2)).sum() / (pos.sum() * neg.sum()),
        "squares": float((hits**2).sum()),
        "highest": output.max(),
        "average": output.mean(),
    }


@pytest.mark.parametrize("provider", ["reference", pytest.param("own", marks=pytest.mark.slow)])
def test_each_step_tells_the_metrics_of_all_rows_of_the_epoch_so_far(provider: str, tmp_path: Path) -> None:
    path = build(tmp_path, 8, MORE, provider=provider)
    with closing(start(path)) as session:
        for _ in range(2):
            outputs, labels = np.zeros((0, 3)), np.zeros(0, "i4")
            for given in batches(5, 8):
                outputs = np.concatenate([outputs, session.predict(x=given["x"])])
                labels = np.concatenate([labels, given["label"]])
                found = session.train_step(**given, epoch_steps=5.0).metrics
                for name, value in wanted(outputs, labels).items():
                    assert found[name] == pytest.approx(value, rel=1e-12, nan_ok=True), name
                part = wanted(outputs[-8:], labels[-8:])["f1"]
                assert found["part"] == pytest.approx(part, rel=1e-12, nan_ok=True)


@pytest.mark.parametrize("more", ["accumulate = 2", "accumulate = 2; ema = 0.9"])
def test_micro_batches_of_a_step(more: str, tmp_path: Path) -> None:
    """Each adds its rows; a step tells the metrics of all rows so far; its first micro-batch alone begins an epoch."""
    with closing(start(build(tmp_path, 4, MORE + f"  {more}"))) as session:
        for _ in range(2):
            outputs, labels = np.zeros((0, 3)), np.zeros(0, "i4")
            for given in batches(3, 8):
                read = session.state_tensors()
                w, b = ([read.get(f"{n}.{part}.raw", read[f"{n}.{part}"]) for part in ("weight", "bias")] for n in "ab")
                hidden = np.maximum(given["x"] @ w[0].T + w[1], 0)
                outputs = np.concatenate([outputs, hidden @ b[0].T + b[1]])
                labels = np.concatenate([labels, given["label"]])
                found = session.train_step(**given, epoch_steps=3.0)
                for name, value in wanted(outputs, labels).items():
                    assert found.metrics[name] == pytest.approx(value, rel=1e-12, nan_ok=True), name
                with np.errstate(invalid="ignore"):
                    halves = [wanted(outputs[rows], labels[rows])["f1"] for rows in (slice(-8, -4), slice(-4, None))]
                assert found.metrics["part"] == pytest.approx(np.mean(halves), rel=1e-12, nan_ok=True)
        assert session.find_nonfinite(**batches(1, 8)[0], epoch_steps=3.0) is None
        assert session.state_tensors()["train.epoch.parts"] == 0


def test_a_step_by_itself_and_evaluation(tmp_path: Path) -> None:
    """Without ``epoch_steps`` a step has the metrics of its batch; evaluation combines all rows."""
    [rows] = batches(1, 40)
    with closing(start(build(tmp_path, 8, MORE))) as session:
        output = session.predict(x=rows["x"])
        found = session.evaluate(**rows).metrics
        for name, value in wanted(output, rows["label"]).items():
            assert found[name] == pytest.approx(value, rel=1e-12)
        for start_row in (0, 8):
            part = {name: array[start_row : start_row + 8] for name, array in rows.items()}
            before = session.predict(x=part["x"])
            after = session.train_step(**part, lr=0.0).metrics
            assert after["average"] == pytest.approx(before.mean(), rel=1e-12)


def project(folder: Path) -> Path:
    path = build(folder, 8, MORE, middle="|> dropout(0.2)")
    np.savez(folder / "data.npz", **batches(1, ROWS)[0])  # type: ignore[arg-type]
    (folder / "dslc.yaml").write_text(YAML)
    return path


def run(folder: Path, session: Any, *, resume: bool = False) -> Any:
    return train(load_config(folder / "dslc.yaml", {}), session, folder / "build", resume, io.StringIO())


def logged(folder: Path) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in (folder / "runs/small/log.jsonl").read_text().splitlines()]
    return [{k: v for k, v in line.items() if k not in ("samples_per_s", "seconds")} for line in lines]


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


def test_the_log_of_an_epoch_is_that_of_its_last_step_and_goes_on_bit_for_bit(tmp_path: Path) -> None:
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    result = run(whole, start(project(whole)))
    lines = logged(whole)
    for epoch in (1, 2, 3):
        [told] = [e for e in lines if e["kind"] == "epoch" and e["epoch"] == epoch]
        [last] = [e for e in lines if e["kind"] == "step" and e["step"] == 5 * epoch]
        steps = [e for e in lines if e["kind"] == "step" and 5 * (epoch - 1) < e["step"] <= 5 * epoch]
        assert all(told[name] == last[name] for name in ("f1", "auc", "squares", "highest", "average"))
        assert told["loss"] == pytest.approx(np.mean([e["loss"] for e in steps]), rel=1e-12)
        assert told["average"] != pytest.approx(steps[0]["average"], rel=1e-6)
    path = project(parts)
    with pytest.raises(Interrupted):
        run(parts, Stopping(start(path), 8))
    resumed = run(parts, start(path), resume=True)
    assert logged(parts) == lines
    assert resumed.weights.read_bytes() == result.weights.read_bytes()
    last = CheckpointStore(parts / "runs/small", 9).newest(lambda found: None, print).tensors
    sums = {name for name in last if name.startswith("train.epoch.")}
    assert len(sums) >= 7 and sums <= slots(last) and not any("train.epoch" in name for name in start(path).weights)


def test_the_number_of_steps_has_no_schedule(tmp_path: Path) -> None:
    session = start(project(tmp_path))
    text = YAML.replace("log_every", "schedules: {epoch_steps: 3.0}, log_every")
    (tmp_path / "dslc.yaml").write_text(text)
    with pytest.raises(DataError, match="no float argument `epoch_steps`"):
        run(tmp_path, session)


def test_an_epoch_of_more_steps_than_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    session = start(project(tmp_path))
    monkeypatch.setattr("dslc.runtime.train.setup._LONGEST_EPOCH", 4)
    with pytest.raises(DataError, match="an epoch of 5 steps"):
        run(tmp_path, session)
