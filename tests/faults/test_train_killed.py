"""``dslc train`` killed at points of step, log and checkpoint, resumed: it ends as the unbroken one, bit for bit."""

from __future__ import annotations

import hashlib
import json
import os
import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

pytestmark = pytest.mark.slow

MODEL = """nn 1
dim B in 1..64 = 8
model Net(x: [B, 12]) -> [B, 3] {
  return x |> linear(16) as a |> batchnorm |> relu |> dropout(0.3) |> linear(3) as b
}
train Net(y: i32[B]) {
  loss = cross_entropy(output, y)
  metrics { accuracy = accuracy(output, y) }
  optimizer = adam(lr=0.01)
}
"""
CONFIG = """model: net.nn
build: {sizes: {train: {B: 8}}, providers: reference}
data:
  train: {x: "data.npz:x", y: "data.npz:y"}
  eval:  {x: "data.npz:x", y: "data.npz:y"}
train: {epochs: 3, seed: 4, lr: {cosine: {warmup: 2 steps, end: 0.1}}}
save:  {dir: runs/net, every: 3 steps, keep: 2, best: accuracy}
"""
ROWS = 35  # four batches of 8 and an incomplete one


def cache_of(folder: Path) -> Path:
    """A project's own, so that each one builds, and passes the same points."""
    return folder.with_suffix(".cache")


def project(folder: Path) -> Path:
    folder.mkdir()
    cache_of(folder).mkdir(mode=0o700)
    rng = np.random.default_rng(1)
    x = rng.standard_normal((ROWS, 12), dtype=np.float32)
    np.savez(folder / "data.npz", x=x, y=(x[:, 0] > 0).astype(np.int32) + (x[:, 1] > 0.5))
    (folder / "net.nn").write_text(MODEL)
    (folder / "dslc.yaml").write_text(CONFIG)
    return folder


def train(folder: Path, *args: str, failpoint: str = "") -> subprocess.CompletedProcess[str]:
    env = dict(os.environ, DSLC_FAILPOINT_LOG=str(folder / "points"), DSLC_CACHE_DIR=str(cache_of(folder)))
    env.pop("DSLC_FAILPOINT", None)
    if failpoint:
        env["DSLC_FAILPOINT"] = failpoint
    (folder / "points").unlink(missing_ok=True)
    command = [sys.executable, "-m", "dslc", "train", *args]
    return subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, timeout=100)


def outcome(folder: Path) -> tuple[str, str, list[float]]:
    """Digests of the published weights and of the newest checkpoint's tensors, and the epochs' losses."""
    from dslc.runtime.weights.safetensors_file import read

    newest = sorted((folder / "runs/net/checkpoints").glob("step-*.safetensors"))[-1]
    found = []
    for path in (folder / "build/net/net.safetensors", newest):
        tensors = read(path, verify=True).tensors
        found.append(hashlib.sha256(b"".join(tensors[n].raw.tobytes() for n in sorted(tensors))).hexdigest())
    # the newest entry of each epoch: a killed epoch is trained, and logged, again
    epochs = {}
    for line in (folder / "runs/net/log.jsonl").read_text().splitlines():
        entry = json.loads(line)
        if entry["kind"] == "eval":
            epochs[entry["epoch"]] = entry["loss"]
    return found[0], found[1], list(epochs.values())


@pytest.mark.timeout(1200)
def test_killed_anywhere_and_resumed(tmp_path: Path, fuzz_count: Callable[..., int], fuzz_seed: int) -> None:
    whole = project(tmp_path / "whole")
    done = train(whole, failpoint="trace")
    assert done.returncode == 0, done.stderr
    points = [tuple(line.split()[:2]) for line in (whole / "points").read_text().splitlines()]
    names = {name.partition(".")[0] for name, _ in points}
    assert {"train", "publish", "log"} <= names and len(points) >= 60, f"passed {points}"
    expected = outcome(whole)
    assert len(expected[2]) == 3

    # a draw from each kind of point; all kinds of them, thirty in all, in the full run
    rng = random.Random(fuzz_seed)
    chosen = rng.sample(points, min(len(points), fuzz_count(60, 15)))
    chosen += rng.sample([p for p in points if p[0].startswith(("publish", "ckpt"))], 2)
    fired = 0
    for i, (name, number) in enumerate(chosen):
        folder = project(tmp_path / f"killed-{i}")
        killed = train(folder, failpoint=f"{name}:{number}:kill")
        assert killed.returncode == -9, f"{name}:{number}: {killed.returncode} {killed.stderr}"
        assert (folder / "points").read_text() == f"{name} {number} kill\n"
        fired += 1
        resumed = train(folder, "--resume")
        if resumed.returncode == 5 and "train without --resume first" in resumed.stderr:  # killed before the first one
            assert not list(folder.rglob("step-*.safetensors"))
            resumed = train(folder)
        assert resumed.returncode == 0, f"{name}:{number}: {resumed.stderr}"
        assert outcome(folder) == expected, f"after a kill at {name}:{number}"
        left = [p.name for p in folder.rglob("*") if p.name.startswith(".dslc") and p.name.endswith(".tmp")]
        assert not left, f"{name}:{number} left {left}"
    assert fired == len(chosen)
    print(f"{fired} kills fired, all resumed to the same bits")


def test_a_wrong_resume_would_be_seen(tmp_path: Path) -> None:
    """The control: another seed gives other bits, so equality above means something."""
    whole, other = project(tmp_path / "whole"), project(tmp_path / "other")
    assert train(whole).returncode == 0 and train(other, "--seed", "5").returncode == 0
    assert outcome(whole)[0] != outcome(other)[0]
