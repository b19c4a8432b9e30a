"""A small project that several processes of `dslc train` share, started by the launch contract or by `--processes`."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from ranks.together import free_port

SOURCE = """nn 1
dim B in 1..64 = 16
model Net(x: [B, 6]) -> [B, 3] {
  return x |> linear(8) as a |> batchnorm as bn |> relu |> dropout(0.2) |> linear(3) as b
}
train Net(label: i32[B]) {
  loss      = cross_entropy(output, label)
  metrics   { accuracy = accuracy(output, label) }
  optimizer = adam(lr=0.01)
}
mesh { shards = 8 }
"""
CONFIG = """model: net.nn
build: {target: cpu, providers: reference, sizes: {train: {B: 16}, predict: {B: 16}}}
data:
  train: {x: data.npz:x, label: data.npz:label}
  eval:  {x: data.npz:x, label: data.npz:label}
train: {epochs: 3, seed: 0, lr: {cosine: {warmup: 3 steps, end: 0.01}}}
save:  {dir: runs/net, every: 4 steps, keep: 2}
"""
ROWS = 16 * 8  # 8 steps an epoch


def project(folder: Path) -> Path:
    """The folder with model, data and configuration."""
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(0)
    x = rng.normal(size=(ROWS, 6)).astype("f4")
    np.savez(folder / "data.npz", x=x, label=rng.integers(0, 3, ROWS).astype("i4"))
    (folder / "net.nn").write_text(SOURCE)
    (folder / "dslc.yaml").write_text(CONFIG)
    return folder


def started(folder: Path, *arguments: str, environment: Mapping[str, str] | None = None) -> subprocess.Popen[str]:
    """`dslc train` in a folder."""
    return subprocess.Popen(
        [sys.executable, "-m", "dslc", "train", *arguments],
        cwd=folder,
        env={**os.environ, "DSLC_THREADS": "1", **(environment or {})},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def ranks(
    folders: list[Path],
    *arguments: str,
    of_rank: Mapping[int, Mapping[str, str]] | None = None,
    seconds: int = 10,
    names: tuple[str, str] = ("RANK", "WORLD_SIZE"),
) -> list[subprocess.Popen[str]]:
    """One process for each folder; ``names``: the launcher's variables (torchrun's by default); ``of_rank`` adds some
    to single ranks."""
    common = {
        names[1]: str(len(folders)),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(free_port()),
        "DSLC_RANKS_SECRET": "a secret of the tests",
        "DSLC_RANKS_SECONDS": str(seconds),
        "DSLC_RANKS_START_SECONDS": "40",
    }
    given = of_rank or {}
    return [
        started(folder, *arguments, environment={**common, names[0]: str(rank), **given.get(rank, {})})
        for rank, folder in enumerate(folders)
    ]


def ended(process: subprocess.Popen[str], timeout: float = 60) -> tuple[int, str]:
    """Its exit code and stderr. A process that does not end is killed, and the test fails."""
    try:
        _, said = process.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        raise
    return process.returncode, said
