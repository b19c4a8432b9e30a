"""Small nets whose steps are divided into shards, and their batches."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dslc.compiler import pipeline
from dslc.compiler.check.model import check_file
from dslc.compiler.codegen.cpu.levels import LEVELS
from dslc.compiler.codegen.targets import traits_of
from dslc.compiler.ir.build import LossScale, Precision
from dslc.compiler.ir.types import DType
from dslc.compiler.options import Options
from dslc.compiler.passes.lower.dtypes import precision as precision_pass
from dslc.runtime.artifact import slices
from dslc.runtime.cpu.levels import machine_level

MESH = "mesh {{ shards = {shards} }}\n"
BATCHNORM = """nn 1
dim B in 1..64 = 16
model Net(x: [B, 1, 8, 8]) -> [B, 3] {
  return x |> conv(4, 3, pad=1) as c |> batchnorm as bn |> relu |> maxpool(2) |> flatten |> linear(3) as head
}
train Net(label: i32[B]) {
  loss      = cross_entropy(output, label)
  metrics   { accuracy = accuracy(output, label) }
  optimizer = sgd(lr=0.05, momentum=0.9, clip_norm=1.0)
}
"""
ADAMW = BATCHNORM.replace("sgd(lr=0.05, momentum=0.9, clip_norm=1.0)", "adamw(lr=0.01, weight_decay=0.1)")
TRANSFORMER = """nn 1
dim B in 1..64 = 16
dim T = 6
block attend(x: [B, T, D], heads: int) -> [B, T, D] {
  q, k, v = x |> linear(3*D) as qkv |> rearrange("B T (three h d) -> three B h T d", three=3, h=heads)
  return sdpa(q, k, v, causal=true) |> rearrange("B h T d -> B T (h d)") |> linear(D) as out |> dropout(0.1)
}
model Net(x: i32[B, T]) -> [B, T, 11] {
  h = x |> embedding(11, 8) as tok |> dropout(0.1)
  h = h + (h |> layernorm as n1 |> attend(2) as attn)
  h = h + (h |> layernorm as n2 |> linear(16) as up |> gelu |> linear(8) as down |> dropout(0.1))
  return h |> layernorm as last |> linear(11) as head
}
train Net(label: i32[B, T]) {
  loss      = cross_entropy(output, label)
  optimizer = adamw(lr=0.01, weight_decay=0.1)
  ema       = 0.9
}
"""


def in_small_stages(monkeypatch: pytest.MonkeyPatch, least: int = 64) -> None:
    """Exchange and update in as many stages as parts of so many bytes allow: by a link whose transfers cost nothing at
    their start, and updates that take longer than these."""
    monkeypatch.setattr(slices, "LINK", slices.Link(((least, least), (2 * least, 2 * least)), 0, 4 << 20))


def built(folder: Path, source: str, shards: int = 8, provider: str = "own", precision: str | None = None) -> Path:
    """The artifact of a net for this machine's CPU."""
    folder.mkdir(exist_ok=True)
    (folder / "net.nn").write_text(source + (MESH.format(shards=shards) if shards > 1 else ""))
    options = Options(provider=provider, level=machine_level(LEVELS), precision=precision)
    (folder / "net.dslc").write_bytes(pipeline.build(check_file(folder / "net.nn"), options).artifact)
    return folder / "net.dslc"


#: two parameters have one gradient
TWINS = BATCHNORM.replace("return x", "f = x").replace(
    " |> linear(3) as head", "\n  a = f |> linear(3) as one\n  b = f |> linear(3) as other\n  return a + b"
)
#: the names of the buffers, in forward order, are not sorted
SEVERAL = BATCHNORM.replace("|> batchnorm as bn", "|> batchnorm as z |> conv(4, 3, pad=1) as d |> batchnorm as bn")
#: each shard has three micro-batches
ACCUMULATED = BATCHNORM.replace("norm=1.0)", "norm=1.0)\n  accumulate = 3").replace("|> max", "|> dropout(0.2) |> max")


def scaled(folder: Path, source: str, shards: int = 8, compute: DType = DType.F16, scale: float | None = 16.0) -> Path:
    """The artifact of a net with a loss scale, computed by numpy: in f16, or in f32, which needs no scale."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            pipeline,
            "precision_of",
            lambda *_: Precision(compute, DType.F32, None if scale is None else LossScale(start=scale)),
        )
        traits = replace(traits_of("cpu"), compute_dtypes=("f32", "f64", "f16"))
        patch.setattr(precision_pass, "traits_of", lambda _: traits)
        return built(folder, source, shards, provider="reference")


#: two updates in turn, the first of which leaves buffers that the second one reads
IN_TURN = (
    BATCHNORM[: BATCHNORM.index("train")]
    + """train Net(label: i32[B]) {
  step trunk { params = "c"; loss = mean(output^2); optimizer = adamw(lr=0.01) }
  step top { params = ["bn", "head"]; loss = cross_entropy(output, label); optimizer = sgd(lr=0.05, clip_norm=1.0) }
  metrics { accuracy = accuracy(output, label) }
}
"""
)


def rows_of(source: str) -> int:
    """The rows of a step."""
    return 48 if source is ACCUMULATED else 16


def batch(source: str, step: int, rows: int | None = None) -> dict[str, Any]:
    rng, rows = np.random.default_rng(step), rows_of(source) if rows is None else rows
    if source is not TRANSFORMER:
        return {"x": rng.normal(size=(rows, 1, 8, 8)).astype("f4"), "label": rng.integers(0, 3, rows).astype("i4")}
    return {n: rng.integers(0, 11, (rows, 6)).astype("i4") for n in ("x", "label")}
