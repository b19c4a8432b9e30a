"""A small model that carries states, and the same model with its states as inputs and results."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from dslc.compiler import pipeline
from dslc.compiler.check.model import check_file
from dslc.compiler.ops.registry import meanings
from dslc.compiler.options import Options
from dslc.runtime.session.load import load
from dslc.runtime.session.session import Session

CARRIED = """nn 1
dim B in 1..64 = 4
dim T in 1..64 = 5
block cell(x: [B, D], d: int) -> [B, d] {
  state last: [B, d] = 0.5
  last = tanh((x |> linear(d) as new) + 0.5 * last)
  return last
}
model Net(x: [B, T, 3], d: int = 6) -> (output: [B, 4], first: [B]) {
  state h: [2, B, d] = 0
  state steps: i32[] = 3
  layer both = cell(d)
  first = h[1, :, 0]
  y = sum(x, over=1)
  for l in 0..2 as level {
    h[l] = tanh((y |> linear(d) as a) + h[l])
    y = both(h[l])
  }
  steps = steps + 1
  y = y * cast(steps, "float")
  return y |> linear(4) as head, first
}
"""
WRITTEN = """nn 1
dim B in 1..64 = 4
dim T in 1..64 = 5
block cell(x: [B, D], last: [B, d], d: int) -> [B, d] {
  return tanh((x |> linear(d) as new) + 0.5 * last)
}
model Net(x: [B, T, 3], h0: [B, d], h1: [B, d], last: [B, d], steps: i32[1], d: int = 6)
    -> (output: [B, 4], first: [B], a0: [B, d], a1: [B, d], kept: [B, d], count: i32[1]) {
  layer both = cell(d)
  first = h1[:, 0]
  y = sum(x, over=1)
  h = [h0, h1]
  for l in 0..2 as level {
    h[l] = tanh((y |> linear(d) as a) + h[l])
    last = both(h[l], last)
    y = last
  }
  steps = steps + 1
  y = y * cast(steps, "float")
  return y |> linear(4) as head, first, h[0], h[1], last, steps
}
"""
TRAIN = """
train Net(label: i32[B]) {
  loss      = cross_entropy(output, label)
  metrics   { started = mean(first) }
  optimizer = adam(lr=0.01)
}
"""
SIZES = {"eval": {"B": (1, 4)}, "predict": {"B": (2, 4), "T": (1, 5)}}


def built(folder: Path, text: str, name: str = "net", **options: Any) -> Path:
    """The artifact of a source."""
    (folder / f"{name}.nn").write_text(text)
    given = {"provider": "reference", "sizes": SIZES} | options
    artifact = pipeline.build(check_file(folder / f"{name}.nn"), Options(**given)).artifact
    (folder / f"{name}.dslc").write_bytes(artifact)
    return folder / f"{name}.dslc"


def opened(folder: Path, text: str, name: str = "net", contexts: int = 1, **options: Any) -> Session:
    path = built(folder, text, name, **options)
    return load(path, weights="init", seed=3, device="cpu", contexts=contexts, meanings=meanings)


def data(rows: int, seed: int = 0, time: int = 5) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((rows, time, 3)).astype(np.float32)
    return {"x": x, "label": rng.integers(0, 4, rows).astype(np.int32)}


def start(rows: int) -> dict[str, np.ndarray]:
    """The states of the written-out model at first."""
    zero = np.zeros((rows, 6), np.float32)
    return {"h0": zero, "h1": zero, "last": zero + 0.5, "steps": np.array([3], np.int32)}


def states_after(results: Any) -> dict[str, np.ndarray]:
    """The inputs of the next call of the written-out model."""
    return {"h0": results.a0, "h1": results.a1, "last": results.kept, "steps": results.count}
