"""Training on a folder of images, augmented, with weights of samples: workers and kills change no bit of it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

pytestmark = pytest.mark.slow

Image = pytest.importorskip("PIL.Image", reason="pillow is not installed")

MODEL = """nn 1
dim B in 1..64 = 4

model Net(image: [B, 1, 6, 6]) -> [B, 2] {
  return image |> conv(4, 3) as c |> relu |> flatten |> linear(2) as head
}

train Net(label: i32[B], weight: [B]) {
  loss      = weight * cross_entropy(output, label, reduce="none")
  metrics   { accuracy = accuracy(output, label) }
  optimizer = sgd(lr=0.05, momentum=0.9)
}
"""
CONFIG = """model: net.nn
data:
  train: {image: "shapes/:image", label: "shapes/:label", weight: weights.csv:weight}
  augment: {image: [{flip: 0.5}, {crop: {pad: 1}}, {normalize: {mean: 0.5, std: 0.5, scale: 255}}]}
  split: 0.2
  on_bad: skip 1
train: {epochs: 3, seed: 1}
save:  {dir: runs/net, every: 2 steps}
"""
ROWS = 25


def project(folder: Path) -> Path:
    """Bright and dark pictures, one of which does not decode."""
    rng = np.random.default_rng(0)
    for number in range(ROWS):
        kind = number % 2
        pixels = np.clip(rng.normal(80 + 100 * kind, 30, (6, 6)), 0, 255).astype("u1")
        path = folder / "shapes" / ("dark", "light")[kind] / f"{number:02}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels).save(path)
    (folder / "shapes/dark/04.png").write_bytes(b"spam")
    (folder / "weights.csv").write_text("weight\n" + "".join(f"{1 + number % 3}\n" for number in range(ROWS)))
    (folder / "net.nn").write_text(MODEL)
    (folder / "dslc.yaml").write_text(CONFIG)
    return folder


def train(folder: Path, *args: str, fault: str = "") -> subprocess.CompletedProcess[str]:
    env = {name: value for name, value in os.environ.items() if not name.startswith("DSLC_FAILPOINT")}
    if fault:
        env |= {"DSLC_FAILPOINT": fault}
    command = [sys.executable, "-m", "dslc", "train", *args]
    return subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, timeout=100)


def test_workers_and_kills_change_no_bit(tmp_path: Path) -> None:
    weights = {}
    for name, args, fault in (
        ("whole", (), ""),
        ("two workers", ("--set", "data.workers=2"), ""),
        ("killed", (), "train.step:9:kill"),
    ):
        folder = tmp_path / name
        folder.mkdir()
        project(folder)
        ran = train(folder, *args, fault=fault)
        if fault:
            assert ran.returncode == -9, ran.stderr
            ran = train(folder, "--resume", "--set", "data.workers=3")
            assert "resuming from" in ran.stdout and "8 of 15 steps" in ran.stdout
        assert ran.returncode == 0, ran.stderr
        assert ran.stdout.count("04.png: record 2 is skipped") == 1, ran.stdout
        weights[name] = (folder / "build/net/net.safetensors").read_bytes()
    assert weights["whole"] == weights["two workers"] == weights["killed"]
    # The bad image stops a run that allows none.
    ran = train(tmp_path / "whole", "--set", "data.on_bad=error")
    assert ran.returncode == 3 and "04.png" in ran.stderr and "R101" in ran.stderr
