"""``dslc publish`` and ``dslc runs`` on a small project."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

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


def test_no_publish_keeps_the_weights_in_the_run(dslc: Callable, project: Path) -> None:
    ran = dslc("train", "--epochs", "1", "--no-publish", "--json")
    assert ran.code == 0 and ran.json["published"] is None
    assert Path(ran.json["weights"]).exists() and not (project / "build/net/net.safetensors").exists()
