"""``dslc sweep`` on a small project: its table, its data, resuming, failures, publishing."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

pytestmark = pytest.mark.slow

MODEL = """nn 1
dim B in 1..64 = 8
model Net(x: [B, 2], width: int = 4) -> [B, 2] {
  return x |> linear(width) as fc |> relu |> linear(2) as head
}
train Net(label: i32[B]) {
  loss = cross_entropy(output, label)
  metrics { accuracy = accuracy(output, label) }
  optimizer = sgd(lr=0.1)
}
"""
CONFIG = """model: net.nn
build: {target: cpu, providers: reference, sizes: {train: {B: 8}}}
data:
  train: {x: data.npz:x, label: data.npz:y}
  eval:  {x: data.npz:x, label: data.npz:y}
train: {epochs: 2, seed: 1}
sweep:
  space:
    train.lr: [0.001, 0.1]
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    rng = np.random.default_rng(0)
    label = rng.integers(0, 2, 64).astype(np.int32)
    x = (rng.normal(0, 0.3, (64, 2)) + (2 * label[:, None] - 1)).astype(np.float32)
    np.savez(tmp_path / "data.npz", x=x, y=label)
    (tmp_path / "net.nn").write_text(MODEL)
    (tmp_path / "dslc.yaml").write_text(CONFIG)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_sweep_compares_its_trials_and_publishes_nothing(dslc: Callable, project: Path) -> None:
    ran = dslc("sweep", "--jobs", "2")
    assert ran.code == 0, ran.err
    head, first, second, best, then = ran.out.splitlines()
    assert head.split() == ["run", "loss", "train.lr"]
    assert first.split()[::2] == ["sweep/002", "0.1"] and second.split()[::2] == ["sweep/001", "0.001"]
    assert best.startswith("best: sweep/002, loss ") and then == "to publish its weights: `dslc publish sweep/002`"
    assert "1/2  sweep/00" in ran.err and "2/2  sweep/00" in ran.err
    assert not (project / "build").exists()
    data = dslc("sweep", "--json").json
    assert data["best"] == "sweep/002" and data["metric"] == "loss" and data["published"] is None
    assert [trial["values"] for trial in data["trials"]] == [{"train.lr": 0.001}, {"train.lr": 0.1}]
    assert all(Path(trial["folder"], "weights.safetensors").exists() for trial in data["trials"])
    assert dslc("build").code == 0 and dslc("publish", "sweep/002").code == 0
    assert dslc("eval", "--json").json["values"]["loss"] == data["trials"][1]["result"]["value"]


def test_the_command_line_adds_to_the_space(dslc: Callable, project: Path) -> None:
    ran = dslc("sweep", "--space", "train.lr=[0.1]", "--space", "args.width={int: [2, 3]}", "--publish", "best")
    assert ran.code == 0, ran.err
    assert ran.out.splitlines()[0].split() == ["run", "loss", "train.lr", "args.width"]
    assert "to publish its weights: write args.width=" in ran.out and "run `dslc build`, then `dslc publish" in ran.out
    assert "not published: its model is not that of dslc.yaml" in ran.out and not (project / "build").exists()
    assert dslc("sweep").code == 5  # the space is another now
    data = dslc("sweep", "--fresh", "--method", "random", "--trials", "1", "--json").json
    assert len(data["trials"]) == 1 and data["folder"].endswith("runs/sweep-2")


def test_the_best_weights_are_published_if_they_are_better(dslc: Callable, project: Path) -> None:
    ran = dslc("sweep", "--publish", "best")
    assert ran.code == 0 and "published the weights of run sweep/002: build/net/net.safetensors" in ran.out, ran
    published = (project / "build/net/net.safetensors").read_bytes()
    assert published == (project / "runs/sweep/002/weights.safetensors").read_bytes()
    ran = dslc("sweep", "--fresh", "--space", "train.lr=[0.001]", "--publish", "best")
    assert ran.code == 0 and "not published: loss" in ran.out and "is not better than the published loss" in ran.out
    assert (project / "build/net/net.safetensors").read_bytes() == published


def test_a_trial_that_fails_is_told_and_the_others_go_on(dslc: Callable, project: Path) -> None:
    ran = dslc("sweep", "--space", "train.lr=[1e30, 0.1]")
    assert ran.code == 0 and "sweep/001 failed: R501: " in ran.out and "best: sweep/002" in ran.out
    assert "1 of 2 trials failed; `dslc sweep --retry` runs them again" in ran.out
    ran = dslc("sweep", "--fresh", "--space", "train.lr=[1e30]")
    assert ran.code == 7 and "error[R501]: all 1 trials failed; sweep-2/001:" in ran.err
    data = dslc("sweep", "--fresh", "--space", "train.lr=[1e30, 0.1]", "--json").json
    assert data["trials"][0]["error"].startswith("R501: ") and data["exit_code"] == 0


@pytest.mark.parametrize(
    ("space", "said"),
    [
        ("train.lr", "is not FIELD=VALUES"),
        ("=[1]", "is not FIELD=VALUES"),
        ("train.lrr=[1]", "unknown key `train.lrr`"),
        ("train.lr=[", "this is not YAML"),
        ("train.lr=[]", "is empty"),
        ("train.lr=[1]\nmore: 2", "more than one value"),
        ("args.width=[4, 0]", "the model of one trial cannot be built: train.lr=0.001  args.width=0"),
        ("args.depth=[4]", "--space args.depth"),
        ("data.augment.y=[[{flip: 0.5}]]", "data.augment.y"),
    ],
)
def test_what_is_wrong_is_told_before_anything_runs(dslc: Callable, project: Path, space: str, said: str) -> None:
    ran = dslc("sweep", "--space", space)
    assert ran.code in (2, 3) and said in ran.err, ran
    assert not (project / "runs").exists()


def test_a_changed_model_is_refused_unless_told(dslc: Callable, project: Path) -> None:
    assert dslc("sweep").code == 0
    (project / "net.nn").write_text(MODEL.replace("relu", "tanh"))
    ran = dslc("sweep")
    assert ran.code == 5 and "the text of the model has changed" in ran.err
    ran = dslc("sweep", "--allow-changes")
    assert ran.code == 0 and "best: sweep/004" in ran.out


def test_a_sweep_of_the_fields_of_a_build(dslc: Callable, project: Path) -> None:
    data = dslc("sweep", "--space", "build.sizes.train.B=[8, 16]", "--space", "train.lr=[0.1]", "--json").json
    records = [json.loads(Path(trial["folder"], "run.json").read_text()) for trial in data["trials"]]
    assert [record["batch"] for record in records] == [8, 16] and records[0]["artifact"] != records[1]["artifact"]
