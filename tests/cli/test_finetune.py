"""Fine-tuning from the command line: layers frozen by pattern, a new head, weights of a run."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from dslc.runtime.weights import safetensors_file as tensorfile

MODEL = """nn 1
dim B in 1..64 = 8

model Net(x: [B, 2], classes: int = 2) -> [B, classes] {
  return x |> linear(8) as fc |> batchnorm as norm |> relu |> linear(classes) as head
}

train Net(label: i32[B]) {
  loss      = cross_entropy(output, label)
  metrics   { accuracy = accuracy(output, label) }
  optimizer = sgd(lr=0.1, momentum=0.9)
  ema       = 0.9
}
"""
CONFIG = """model: net.nn
build: {target: cpu, providers: reference, sizes: {train: {B: 8}}}
data:
  train: {x: "data.csv:a..b", label: data.csv:label}
train: {epochs: 1, seed: 1}
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    rng = np.random.default_rng(0)
    lines = ["a,b,label", *(f"{a:.4f},{b:.4f},{i % 2}" for i, (a, b) in enumerate(rng.normal(0, 1, (24, 2))))]
    (tmp_path / "data.csv").write_text("\n".join(lines) + "\n")
    (tmp_path / "net.nn").write_text(MODEL)
    (tmp_path / "dslc.yaml").write_text(CONFIG)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def trained(project: Path, run: str) -> dict[str, np.ndarray]:
    file = tensorfile.read(project / "runs" / run / "weights.safetensors")
    return {name: tensor.array().copy() for name, tensor in file.tensors.items()}


def configure(project: Path, line: str) -> None:
    (project / "dslc.yaml").write_text(CONFIG.replace("train: {epochs: 1, seed: 1}", f"train: {{epochs: 1, {line}}}"))


def test_frozen_layers_keep_every_bit_and_the_artifact_knows(dslc: Callable, project: Path) -> None:
    assert dslc("train").code == 0
    before = trained(project, "net")
    configure(project, 'freeze: [fc, "norm.*"], lr_scale: {head.bias: 0}')
    ran = dslc("train", "--weights", "runs/net")
    assert ran.code == 0 and "built with other options (freeze, lr_scale)" in ran.err, ran.err
    assert "8 of 8 tensors" in ran.out
    after = trained(project, "net-2")
    same = {name for name in before if before[name].tobytes() == after[name].tobytes()}
    # Batchnorm's statistics are no parameters: they go on, as with `@freeze`.
    assert same == {"fc.weight", "fc.bias", "norm.weight", "norm.bias", "head.bias"}
    header = dslc("info", "build/net", "--json", "--weights").json
    assert "fc.weight.momentum" not in json.dumps(header) and "head.weight.momentum" in json.dumps(header)
    assert dslc("verify", "build/net", "--rebuild", "net.nn").code == 0
    # The run of another artifact is not resumed, and the same configuration is not built again.
    ran = dslc("eval", "--set", "data.split=0.25", "--weights", "runs/net-2")
    assert ran.code == 0 and "built" not in ran.err and "the averaged weights of the newest checkpoint" in ran.err
    configure(project, "freeze: [norm]")
    ran = dslc("train", "--resume", "--epochs", "3")
    assert ran.code == 5 and "R307" in ran.err and "freeze" in ran.err, ran.err
    ran = dslc("train", "--resume", "--epochs", "3", "--allow-changes")
    assert ran.code == 5 and "R307" in ran.err and "another model or optimizer" in ran.err, ran.err


def test_a_pattern_that_selects_nothing_is_told_with_its_line(dslc: Callable, project: Path) -> None:
    configure(project, "freeze: [hed]")
    ran = dslc("train")
    assert ran.code == 2 and "dslc.yaml:5:" in ran.err and "did you mean `head`?" in ran.err, ran.err
    configure(project, "lr_scale: {head: -1}")
    assert dslc("train").code == 3
    configure(project, "lr_scale: [head]")
    assert dslc("train").code == 3


def test_a_new_head_from_a_run_of_other_classes(dslc: Callable, project: Path) -> None:
    assert dslc("train").code == 0
    before = trained(project, "net")
    ran = dslc("train", "-D", "classes=3", "--weights", "runs/net")
    assert ran.code == 5 and "--replace" in ran.err
    assert "misshaped: " in ran.err and "head.weight is f32[2, 8], not f32[3, 8]" in ran.err
    ran = dslc("train", "-D", "classes=3", "--weights", "runs/net", "--replace", "head", "--lr", "0", "--json")
    assert ran.code == 0 and "replaced: keeps its initial values" in ran.err
    rows = ran.json["started"]["tensors"]
    assert {row["name"] for row in rows if row["action"] == "replaced"} == {"head.weight", "head.bias"}
    after = trained(project, "net-2")
    assert after["head.weight"].shape == (3, 8) and after["fc.weight"].tobytes() == before["fc.weight"].tobytes()
    ran = dslc("weights", "list", "runs/net", "--json")
    assert ran.code == 0 and "head.weight" in ran.json["tensors"]


def test_a_proposed_map_starts_a_training(dslc: Callable, project: Path) -> None:
    rng = np.random.default_rng(0)
    theirs = {"body.0.weight": (8, 2), "body.0.bias": (8,), "out.weight": (2, 8), "out.bias": (2,)} | {
        f"body.1.{leaf}": (8,) for leaf in ("weight", "bias", "running_mean", "running_var")
    }
    tensors = {name: rng.normal(0, 1, shape).astype("f4") for name, shape in theirs.items()}
    (project / "theirs.safetensors").write_bytes(tensorfile.encode(tensors))
    ran = dslc("weights", "map", "theirs.safetensors", "net.nn")
    assert ran.code == 0 and "8 of 8 weights" in ran.err, ran.out
    (project / "my.map").write_text(ran.out)
    ran = dslc("train", "--weights", "theirs.safetensors", "--map", "my.map", "--lr", "0", "--json")
    assert ran.code == 0, ran.err
    rows = {row["name"]: row["files"] for row in ran.json["started"]["tensors"]}
    assert rows["fc.weight"] == ["body.0.weight"] and rows["norm.running_var"] == ["body.1.running_var"]
    ran = dslc("weights", "map", "theirs.safetensors", "net.nn", "-D", "classes=3", "--json")
    assert ran.code == 1 and ran.json["missing"] == ["head.weight", "head.bias"]
    assert dslc("weights", "list", "theirs.safetensors", "-D", "classes=3").code == 2
