"""A small model, built for the CPU, whose train section and batch each test chooses."""

from __future__ import annotations

from pathlib import Path

import numpy as np

import dslc
from dslc.compiler import pipeline
from dslc.compiler.check.model import check_file
from dslc.compiler.options import Options
from dslc.runtime.session.session import Session

SOURCE = """nn 1
dim B in 1..64 = {batch}
model Small(x: [B, 6]) -> [B, 3] {{
  return x |> linear(8) as a {middle} |> relu |> linear(3) as b
}}
train Small(label: i32[B]) {{
  loss      = cross_entropy(output, label)
  metrics   {{ accuracy = accuracy(output, label) }}
  optimizer = {optimizer}
  {more}
}}
"""


def build(
    folder: Path,
    batch: int,
    more: str = "",
    *,
    middle: str = "",
    optimizer: str = "adam(lr=0.01)",
    precision: str = "f64",
    provider: str = "reference",
    shards: int = 1,
) -> Path:
    """``small.dslc`` in a folder that is made. ``shards``: those of the batch."""
    folder.mkdir(parents=True, exist_ok=True)
    source = folder / "small.nn"
    mesh = f"mesh {{ shards = {shards} }}\n" if shards > 1 else ""
    source.write_text(SOURCE.format(batch=batch, more=more, middle=middle, optimizer=optimizer) + mesh)
    options = Options(precision=precision, provider=provider)
    (folder / "small.dslc").write_bytes(pipeline.build(check_file(source), options).artifact)
    return folder / "small.dslc"


def start(path: Path) -> Session:
    return dslc.load(path, weights="init", seed=3)


def batches(count: int, rows: int, dtype: str = "f8", seed: int = 0) -> list[dict[str, np.ndarray]]:
    rng = np.random.default_rng(seed)
    return [
        {"x": rng.normal(size=(rows, 6)).astype(dtype), "label": rng.integers(0, 3, rows).astype("i4")}
        for _ in range(count)
    ]


def near(session: Session, other: Session, limit: float) -> bool:
    """Whether the weights of both agree to ``limit``, absolutely."""
    return all(np.abs(session.weights[n] - other.weights[n]).max() <= limit for n in session.weights)
