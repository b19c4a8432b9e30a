"""`dslc train` with a model that carries states: rows in streams, a fresh start each epoch, resumed bit for bit."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from states.recurrent import CARRIED, TRAIN, built, data

import dslc
from dslc.base.errors import DataError
from dslc.runtime.config.load import load_config
from dslc.runtime.session.session import Session
from dslc.runtime.train.checkpoint import CheckpointStore
from dslc.runtime.train.eval_rows import in_streams
from dslc.runtime.train.loop import evaluate, train
from dslc.runtime.weights.slots import slots

YAML = """model: net.nn
data:
  train: {x: data.npz:x, label: data.npz:label}
  eval:  {x: eval.npz:x, label: eval.npz:label}
train: {epochs: 3, seed: 3, log_every: 1 step, eval_every: 3 steps}
save:  {dir: runs/net, every: 2 steps, keep: 9, plot: false}
"""
ROWS, STEPS = 21, 5  # of four streams; the last row is left out


def project(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    np.savez(folder / "data.npz", **data(ROWS))  # type: ignore[arg-type]
    np.savez(folder / "eval.npz", **data(10, seed=1))  # type: ignore[arg-type]
    (folder / "dslc.yaml").write_text(YAML)
    return built(folder, CARRIED + TRAIN)


def start(path: Path) -> Session:
    return dslc.load(path, weights="init", seed=3)


def run(folder: Path, session: Any, *, resume: bool = False) -> Any:
    return train(load_config(folder / "dslc.yaml", {}), session, folder / "build", resume, io.StringIO())


def logged(folder: Path) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in (folder / "runs/net/log.jsonl").read_text().splitlines()]
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


@pytest.mark.parametrize(("rows", "batch"), [(21, 4), (4, 4), (7, 1), (3, 4)])
def test_row_i_of_a_batch_continues_row_i_of_the_one_before(rows: int, batch: int) -> None:
    found = in_streams(np.arange(100, 100 + rows), batch).reshape(-1, batch)
    assert len(found) == rows // batch and (np.diff(found, axis=0) == 1).all()
    assert sorted(found.ravel()) == list(range(100, 100 + rows // batch * batch))


def test_a_run_is_that_of_its_steps_by_hand(tmp_path: Path) -> None:
    path = project(tmp_path)
    run(tmp_path, start(path))
    lines = logged(tmp_path)
    with start(path) as session:
        rows, batches = data(ROWS), np.arange(4 * STEPS).reshape(4, STEPS).T
        held, of_eval = data(10, seed=1), np.arange(8).reshape(4, 2).T.ravel()
        for step in range(3 * STEPS):
            if step % STEPS == 0:
                session.reset_state()
            batch = batches[step % STEPS]
            result = session.train_step(**{n: v[batch] for n, v in rows.items()})
            [line] = [e for e in lines if e["kind"] == "step" and e["step"] == step + 1]
            assert line["loss"] == result.loss and line["started"] == result.metrics["started"]
            for line in (e for e in lines if e["kind"] == "eval" and e["step"] == step + 1):
                assert line["loss"] == session.evaluate(**{n: v[of_eval] for n, v in held.items()}).loss
                assert line["rows"] == 8
    assert sum(e["kind"] == "eval" for e in lines) == 5


@pytest.mark.parametrize("at", [8, 10])
def test_resuming_in_the_middle_of_an_epoch_gives_the_same_bits(tmp_path: Path, at: int) -> None:
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    result = run(whole, start(project(whole)))
    path = project(parts)
    with pytest.raises(Interrupted):
        run(parts, Stopping(start(path), at))
    resumed = run(parts, start(path), resume=True)
    assert logged(parts) == logged(whole)
    assert resumed.weights.read_bytes() == result.weights.read_bytes()
    last = CheckpointStore(parts / "runs/net", 9).newest(lambda found: None, print).tensors
    states = {name for name in last if name.startswith("train.state.")}
    assert {f"train.state.{name}" for name in ("h", "both.last", "steps")} == states <= slots(last)
    assert last["train.state.steps"] == 3 + STEPS


def test_evaluation_alone_reads_the_same_rows(tmp_path: Path) -> None:
    path = project(tmp_path)
    result = run(tmp_path, start(path))
    with dslc.load(path, weights=result.weights) as session:
        found = evaluate(load_config(tmp_path / "dslc.yaml", {}), session)
    assert found.rows == 8 and found.loss == [e for e in logged(tmp_path) if e["kind"] == "eval"][-1]["loss"]


def test_rows_at_random_are_refused(tmp_path: Path) -> None:
    path = project(tmp_path)
    text = YAML.replace("  eval:  {x: eval.npz:x, label: eval.npz:label}\n", "  split: 0.2\n")
    (tmp_path / "dslc.yaml").write_text(text)
    with pytest.raises(DataError, match=r"data.split.*carried from one row to the next"):
        run(tmp_path, start(path))
