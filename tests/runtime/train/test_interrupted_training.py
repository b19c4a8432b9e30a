"""Ctrl-C at any point of training from Python: handlers, lock, workers and files are as before; it can go on."""

from __future__ import annotations

import io
import shutil
import signal
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from interruption.interrupts import leaves_nothing, spread
from training.small_model import batches, build, start

from dslc.base.errors import ArtifactError, InputError
from dslc.runtime.config.load import load_config
from dslc.runtime.session.session import Session
from dslc.runtime.train.checkpoint import CheckpointStore, read_checkpoint
from dslc.runtime.train.loop import evaluate, train
from dslc.runtime.train.metrics import read_log
from dslc.runtime.train.signals import StopNow
from dslc.runtime.weights import safetensors_file as tensorfile

YAML = """model: small.nn
data:
  workers: {workers}
  train: {{x: data.npy, label: data.npz:label}}
  eval:  {{x: data.npy, label: data.npz:label}}
train: {{epochs: 2, seed: 3, log_every: 1 step, eval_every: 2 steps}}
save:  {{dir: runs/small, every: 1 step, keep: 2, plot: false, best: lowest loss}}
"""
ROWS = 20  # two steps of 8 rows an epoch
HANDLED = (signal.SIGINT, signal.SIGTERM)


class Project:
    """A folder with a session, which is trained again and again."""

    def __init__(self, folder: Path, workers: int) -> None:
        self.folder, self.run = folder, folder / "runs"
        self.session: Session = start(build(folder, 8))
        self.state = self.session.state_tensors()
        data = batches(1, ROWS)[0]
        np.save(folder / "data.npy", data["x"])
        np.savez(folder / "data.npz", label=data["label"])
        (folder / "dslc.yaml").write_text(YAML.format(workers=workers))

    def train(self, *, resume: bool = False) -> Any:
        if not resume:
            self.session.restore(self.state, 0)
            shutil.rmtree(self.run, ignore_errors=True)
            shutil.rmtree(self.folder / "build", ignore_errors=True)
        config = load_config(self.folder / "dslc.yaml", {})
        found = train(config, self.session, self.folder / "build", resume, io.StringIO())
        log = [{n: v for n, v in line.items() if n not in ("seconds", "samples_per_s")} for line in self.log()]
        weights = found.weights.read_bytes() if found.weights is not None else None
        return found.exit_code, found.steps, found.metrics, weights, log

    def evaluate(self) -> Any:
        self.session.restore(self.state, 0)
        return evaluate(load_config(self.folder / "dslc.yaml", {}), self.session, io.StringIO())

    def log(self) -> list[dict[str, Any]]:
        path = self.run / "small/log.jsonl"
        return list(read_log(path)) if path.exists() else []

    def whole(self) -> None:
        """Every file with its final name can be read."""
        for step in CheckpointStore(self.run / "small", 9).steps():
            assert read_checkpoint(CheckpointStore(self.run / "small", 9).path(step)).position.step == step
        weights = self.folder / "build/small.safetensors"
        assert not weights.exists() or tensorfile.read(weights).verified


@pytest.mark.parametrize(
    ("kind", "workers", "points"),
    [
        pytest.param(KeyboardInterrupt, 0, 4, id="interrupt"),
        pytest.param(KeyboardInterrupt, 2, 4, id="interrupt, workers", marks=pytest.mark.slow),
        pytest.param(partial(StopNow, 130), 0, 10, id="second signal", marks=pytest.mark.slow),
        pytest.param(partial(StopNow, 130), 2, 4, id="second signal, workers", marks=pytest.mark.slow),
    ],
)
def test_an_interrupt_of_training(
    kind: Any, workers: int, points: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if workers:
        monkeypatch.setattr("dslc.runtime.data.rows.AT_ONCE", 8)
    project = Project(tmp_path, workers)
    expected, handlers = project.train(), [signal.getsignal(number) for number in HANDLED]

    def after() -> None:
        assert [signal.getsignal(number) for number in HANDLED] == handlers
        project.whole()
        try:
            assert project.train(resume=True) == expected, "a resumed run is another one"
        except ArtifactError as error:  # no run has begun
            assert error.code == "R307" and CheckpointStore(project.run / "small", 9).steps() == []
        except InputError as error:  # the run starts again, but not with a session that has made steps
            assert error.code == "R105" and CheckpointStore(project.run / "small", 9).steps() == []
            project.session.restore(project.state, 0)
            assert project.train(resume=True) == expected, "a run that starts again is another one"

    leaves_nothing(project.train, tmp_path, spread(points), least=3000, kind=kind, after=after)


@pytest.mark.slow
def test_an_interrupt_of_an_evaluation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dslc.runtime.data.rows.AT_ONCE", 8)
    project = Project(tmp_path, 1)
    leaves_nothing(project.evaluate, tmp_path, spread(8), least=300)
