"""``dslc publish`` and ``dslc runs`` on a small project."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

from dslc.runtime.weights import safetensors_file as tensorfile

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
train: {epochs: 3, seed: 1}
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


def test_weights_are_published_on_request(dslc: Callable, project: Path) -> None:
    assert dslc("train").code == 0
    published = project / "build/net/net.safetensors"
    good = published.read_bytes()
    ran = dslc("train", "--epochs", "1")
    assert ran.code == 0 and "not published: loss" in ran.out and "`dslc publish net-2`" in ran.out
    assert "weights in" in ran.out and "runs/net-2/weights.safetensors" in ran.out and published.read_bytes() == good
    ran = dslc("publish", "net-2")
    assert ran.code == 0 and "published the weights of run net-2, loss" in ran.out
    assert published.read_bytes() == (project / "runs/net-2/weights.safetensors").read_bytes()
    assert (project / "build/net/net.previous.safetensors").read_bytes() == good
    data = dslc("publish", "net", "--json").json
    assert data["score"]["run"] == "net" and data["previous"].endswith("net.previous.safetensors")
    assert published.read_bytes() == good
    ran = dslc("publish", "nett")
    assert ran.code == 5 and "did you mean `net`?" in ran.err


def test_weights_of_another_model_are_refused(dslc: Callable, project: Path) -> None:
    assert dslc("train").code == 0
    ran = dslc("train", "--epochs", "1", "-D", "width=5")
    assert "whose tensors do not fit the model as it is now" in ran.out
    assert dslc("build").code == 0
    ran = dslc("publish", "net-2")
    assert ran.code == 5 and "error[R305]" in ran.err and "fc.weight" in ran.err
    assert dslc("eval").code == 0


def test_the_commands_of_a_run_are_for_its_own_model(dslc: Callable, project: Path) -> None:
    """The model of dslc.yaml is another one: its file, and a section `sweep`, do not say how the run is evaluated."""
    assert dslc("train", "--epochs", "1", "-D", "width=5").code == 0
    with (project / "dslc.yaml").open("a") as file:
        file.write("\nsweep: {space: {train.seed: [1, 2]}}\n")
    assert dslc("train", "--epochs", "1").code == 0
    assert dslc("runs", "--json").json["differing"] == ["args.width"]
    rows = [line.split() for line in dslc("runs", "show", "net").out.splitlines()]
    commands = {words[0]: words[1:] for words in rows if words[:1] in (["evaluate"], ["predict"])}
    assert commands["predict"][:3] == ["dslc", "predict", "..."]
    assert dslc("eval", "--weights", commands["evaluate"][-1]).code == 5
    ran = dslc(*commands["evaluate"][1:])
    assert ran.code == 0 and ran.out.startswith("loss "), ran.err


def test_no_publish_keeps_the_weights_in_the_run(dslc: Callable, project: Path) -> None:
    ran = dslc("train", "--epochs", "1", "--no-publish", "--json")
    assert ran.code == 0 and ran.json["published"] is None
    assert Path(ran.json["weights"]).exists() and not (project / "build/net/net.safetensors").exists()


def bits(path: Path) -> dict[str, bytes]:
    return {name: tensor.raw.tobytes() for name, tensor in tensorfile.read(path).tensors.items()}


def test_runs_are_listed_compared_and_shown(dslc: Callable, project: Path) -> None:
    assert dslc("runs").out.startswith("there are no runs here yet")
    assert dslc("train").code == 0 and dslc("train", "--epochs", "1", "--lr", "0.01").code == 0
    ran = dslc("runs")
    head, *rows = ran.out.splitlines()
    assert ran.code == 0 and head.split() == ["run", "state", "steps", "best", "time", "started", "base_lr", "epochs"]
    assert {row.split()[0] for row in rows} == {"net*", "net-2"} and all("finished" in row for row in rows)
    assert {row.split()[2] for row in rows} == {"24/24", "8/8"}
    data = dslc("runs", "--json", "--sort", "loss").json
    assert [run["name"] for run in data["runs"]] == ["net", "net-2"], "the lowest loss first"
    assert data["differing"] == ["train.base_lr", "train.epochs"]
    assert [run["published"] for run in data["runs"]] == [True, False]
    assert [run["name"] for run in dslc("runs", "--json", "--sort", "steps", "--reverse").json["runs"]] == [
        "net-2",
        "net",
    ]
    assert [run["name"] for run in dslc("runs", "--json", "--where", "train.epochs=1").json["runs"]] == ["net-2"]
    assert dslc("runs", "--json", "--state", "killed").json["runs"] == []
    ran = dslc("runs", "compare", "net", "net-2", "--plot", "both.svg")
    assert ran.code == 0 and "train.epochs" in ran.out and "loss (last)" in ran.out and "train.seed" not in ran.out
    text = (project / "both.svg").read_text()
    ElementTree.fromstring(text)
    assert ">net-2</text>" in text and ">loss</text>" in text
    ran = dslc("runs", "show", "net-2")
    assert ran.code == 0 and "dslc publish net-2" in ran.out and "sha256:" in ran.out and "train.base_lr" in ran.out


@pytest.mark.parametrize(
    "args",
    [("bad",), ("show",), ("show", "a", "b"), ("compare", "net"), ("compare", "net", "net"), ("--yaml",),
     ("--plot", "a.svg"), ("--sort", "colour"), ("--where", "epochs"), ("--state", "odd")],
)  # fmt: skip
def test_wrong_calls_are_usage_errors(dslc: Callable, project: Path, args: tuple[str, ...]) -> None:
    assert dslc("runs", *args).code == 2


def test_a_damaged_run_and_a_broken_model_hide_nothing(dslc: Callable, project: Path) -> None:
    assert dslc("train", "--epochs", "1").code == 0
    (project / "runs/evil").mkdir()
    (project / "runs/evil/run.json").symlink_to("/dev/zero")
    (project / "net.nn").write_text("model {")
    ran = dslc("runs")
    assert ran.code == 0 and "finished" in ran.out and "damaged, no weights" in ran.out
    assert "run evil: its record cannot be read" in ran.err and "which weights are published is not known" in ran.err
    assert dslc("runs", "show", "evil").code == 0 and dslc("runs", "compare", "net", "evil").code == 0
    ran = dslc("runs", "show", "evil", "--yaml")
    assert ran.code == 5 and "error[R307]" in ran.err


FLAGS = [
    ("--epochs", "2", "--lr", "0.05", "--seed", "7", "-D", "width=6", "--set", "train.lr={cosine: {warmup: 1 epoch}}"),
    ("--epochs", "1", "--size", "B=16", "--set", "save.best=highest accuracy", "--set", "data.shuffle=false"),
    ("--epochs", "1", "--set", "train.lr=0.02", "--set", "train.freeze=[head.weight]"),
]


@pytest.mark.parametrize("flags", FLAGS)
def test_the_yaml_of_a_run_repeats_it_bit_for_bit(dslc: Callable, project: Path, flags: tuple[str, ...]) -> None:
    assert dslc("train", *flags).code == 0
    (project / "again.yaml").write_text(dslc("runs", "show", "net", "--yaml").out)
    assert dslc("train", "--config", "again.yaml").code == 0
    assert bits(project / "runs/net/weights.safetensors") == bits(project / "runs/net-2/weights.safetensors")
    assert dslc("runs", "--json").json["differing"] == []


def test_a_rate_outside_of_the_file_wins_in_the_yaml_too(dslc: Callable, project: Path) -> None:
    (project / "dslc.yaml").write_text(CONFIG.replace("seed: 1", "seed: 1, base_lr: 0.3"))
    assert dslc("train", "--epochs", "1", "--set", "train.lr=0.02").code == 0
    (project / "again.yaml").write_text(dslc("runs", "show", "net", "--yaml").out)
    assert dslc("train", "--config", "again.yaml").code == 0
    assert bits(project / "runs/net/weights.safetensors") == bits(project / "runs/net-2/weights.safetensors")


HOSTILE: list[dict[str, object]] = [
    {"nonsense": 1},
    {"": 1},
    {"a\nb: 1": 1},
    {"train.epochs": "\x1b[2J"},
    {"train.epochs": "\ud800"},
    {"train.epochs": float("inf")},
    {"train.epochs": 10**30},
    {"train.epochs": 1, "train.epochs.x": 2},
    {"train.epochs.x": 2, "train.epochs": 1},
    {"args": 1, "args.classes": 2},
]


@pytest.mark.parametrize("values", HOSTILE)
def test_a_hostile_configuration_becomes_no_yaml(dslc: Callable, project: Path, values: dict[str, object]) -> None:
    folder = project / "runs/net"
    folder.mkdir(parents=True)
    (folder / "run.json").write_text(json.dumps({"format": 1, "state": "finished", "name": "net"}))
    entries = {name: {"value": value, "origin": "flag"} for name, value in values.items()}
    (folder / "config.json").write_text(json.dumps({"values": entries}))
    ran = dslc("runs", "show", "net", "--yaml")
    assert ran.code == 5 and "error[R307]" in ran.err and "Traceback" not in ran.err


def test_the_weights_of_a_killed_run_can_be_used(dslc: Callable, project: Path) -> None:
    assert dslc("train", "--epochs", "2").code == 0
    whole = bits(project / "runs/net/weights.safetensors")
    (project / "runs/net/weights.safetensors").unlink()
    record = json.loads((project / "runs/net/run.json").read_text())
    (project / "runs/net/run.json").write_text(json.dumps({**record, "state": "running", "weights": None}))
    assert "killed, has weights" in dslc("runs").out
    loss = dslc("eval", "--weights", "runs/net", "--json").json["values"]["loss"]
    assert dslc("predict", "x=data.npz:x", "--weights", "runs/net", "-o", "out.npz").code == 0
    (project / "build/net/net.safetensors").unlink()
    ran = dslc("publish", "net")
    assert ran.code == 0 and bits(project / "build/net/net.safetensors") == whole
    assert dslc("eval", "--json").json["values"]["loss"] == loss and "net*" in dslc("runs").out
    assert "not published" in dslc("train", "--epochs", "3").out
