"""A run on tar shards, and one on a stored Python dataset, are killed at points that they have and resumed."""

from __future__ import annotations

import io
import os
import shutil
import signal
import subprocess
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from places import SUPPORT
from tables.packages import install

from dslc.runtime.train.checkpoint import CheckpointStore

pytestmark = pytest.mark.slow

YAML = """\
model: toy.nn
data:
  train: {x: "X", label: "LABEL"}
  split: 0.3
train: {epochs: 3, seed: 3}
save: {dir: runs/toy, every: 2 steps, keep: 9}
"""
ENTRY = "entry:spam-table(rows=40, spool=true)"
SOURCES = {"shards": ("s-{0..2}.tar:npy", "s-{0..2}.tar:cls"), "entry": (f"{ENTRY}:x", f"{ENTRY}:label")}


def project(folder: Path, kind: str) -> Path:
    folder.mkdir()
    rng = np.random.default_rng(1)
    for shard, rows in enumerate((9, 20, 11)):
        with tarfile.open(folder / f"s-{shard}.tar", "w") as file:
            for row in range(rows):
                made = io.BytesIO()
                np.save(made, rng.standard_normal(4).astype("f4"))
                for suffix, data in (("npy", made.getvalue()), ("cls", b"%d" % rng.integers(3))):
                    info = tarfile.TarInfo(f"{row:03}.{suffix}")
                    info.size = len(data)
                    file.addfile(info, io.BytesIO(data))
    x, label = SOURCES[kind]
    (folder / "dslc.yaml").write_text(YAML.replace("X", x).replace("LABEL", label))
    install(folder / "site")
    (folder / "cache").mkdir(mode=0o700)
    return folder


def run(folder: Path, *options: str, fault: str = "") -> subprocess.CompletedProcess[str]:
    env = {k: v for k, v in os.environ.items() if not k.startswith("DSLC_FAILPOINT")}
    env |= {"DSLC_CACHE_DIR": str(folder / "cache"), "PYTHONPATH": str(folder / "site")}
    if fault:
        env |= {"DSLC_FAILPOINT": fault, "DSLC_FAILPOINT_LOG": str(folder / "fired")}
    command = [sys.executable, str(SUPPORT / "training" / "fake_session.py"), str(folder), *options]
    return subprocess.run(command, capture_output=True, text=True, env=env, timeout=100)


@pytest.mark.parametrize("kind", SOURCES)
def test_killed_anywhere_a_run_ends_the_same(
    kind: str, tmp_path: Path, fuzz_count: Callable[[int], int], fuzz_seed: int
) -> None:
    whole = project(tmp_path / "whole", kind)
    done = run(whole)
    assert done.returncode == 0, done.stderr
    saved = CheckpointStore(whole / "runs/toy", 2).steps()
    steps = max(saved)
    points = ("create", "write", "fsync", "rename", "renamed", "dirsync", "sweep")
    kills = [f"train.step:{number}:kill" for number in range(1, steps + 1)]
    kills += [f"ckpt.{point}:{number}:kill" for point in points for number in (2, len(saved) - 1)]
    if kind == "entry":  # also while the rows are stored
        kills = [
            *(f"data.spool:{number}:kill" for number in (1, 40)),
            "data.rename:1:kill",
            "data.renamed:1:kill",
            *kills,
        ]
    order = np.random.default_rng(fuzz_seed).permutation(len(kills))
    for kill in [*kills[:1], *(kills[at] for at in order[: max(2, fuzz_count(len(kills)))])]:
        folder = project(tmp_path / "part", kind)
        killed = run(folder, fault=kill)
        assert killed.returncode == -signal.SIGKILL, (kill, fuzz_seed, killed.stderr)
        assert (folder / "fired").read_text() == kill.replace(":", " ") + "\n"
        again = run(folder, *(["--resume"] if CheckpointStore(folder / "runs/toy", 2).steps() else []))
        assert again.returncode == 0, (kill, fuzz_seed, again.stderr)
        ours, theirs = (f / "build/toy.safetensors" for f in (folder, whole))
        assert ours.read_bytes() == theirs.read_bytes(), (kill, fuzz_seed)
        left = [path.name for path in folder.rglob(".dslc*") if path.name.endswith(".tmp")]
        assert not left, (kill, left)
        shutil.rmtree(folder)
