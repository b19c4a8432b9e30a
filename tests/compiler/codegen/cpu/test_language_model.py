"""A small language model with causal attention, wholly on own kernels: it trains as the reference does, in f32 and f64,
with the same bits for any number of threads."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dslc
from dslc.compiler.check.model import check_file
from dslc.compiler.options import Options
from dslc.compiler.pipeline import build

MODEL = """\
nn 1
dim B in 4..4 = 4
dim T in 16..16 = 16
const V = 32

block attention(x: [B, T, D], heads: int) -> [B, T, D] {
  q, k, v = x |> linear(3*D) as qkv |> rearrange("B T (three h d) -> three B h T d", three=3, h=heads)
  y = sdpa(q, k, v, causal=true)
  return y |> rearrange("B h T d -> B T (h d)") |> linear(D) as proj
}

block gpt_block(x: [B, T, D], heads: int) -> [B, T, D] {
  x = x + (x |> layernorm as ln1 |> attention(heads) as attn)
  return x + (x |> layernorm as ln2 |> linear(4*D) as up |> gelu("tanh") |> linear(D) as down)
}

model Small(ids: i32[B, T], layers: int = 2, heads: int = 2, d: int = 32) -> [B, T, V] {
  layer tok = embedding(V, d, init=normal(0.02))
  param pos: [16, d] = normal(0.02)
  x = tok(ids) + pos[0:T]
  for i in 0..layers { x = x |> gpt_block(heads) as h }
  return (x |> layernorm as ln) @ tok.weight.T
}

train Small(target: i32[B, T]) {
  loss      = cross_entropy(output, target)
  optimizer = adamw(lr=0.003, clip_norm=1.0)
}
"""
STEPS = 20
pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]  # builds for three levels
RUN = """\
import hashlib, json, sys
import numpy as np
import dslc
ids = np.random.default_rng(0).integers(0, 32, (4, 17)).astype(np.int32)
with dslc.load(sys.argv[1], weights="init", seed=5) as session:
    losses = [float(session.train_step(ids=ids[:, :-1], target=ids[:, 1:]).loss) for _ in range(int(sys.argv[2]))]
    tensors = session.state_tensors()
    digest = hashlib.sha256(b"".join(tensors[n].tobytes() for n in sorted(tensors))).hexdigest()
    predicted = session.predict(ids=ids[:, :-1])
print(json.dumps([losses, digest, predicted.tolist()]))
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("language")
    (path / "small.nn").write_text(MODEL)
    return path


def _run(folder: Path, provider: str, precision: str, threads: int) -> Any:
    path = folder / f"{provider}_{precision}.dslc"
    if not path.exists():
        made = build(check_file(str(folder / "small.nn")), Options(provider=provider, precision=precision))
        path.write_bytes(made.artifact)
    done = subprocess.run(
        [sys.executable, "-c", RUN, str(path), str(STEPS)], env={**os.environ, "DSLC_THREADS": str(threads)},
        capture_output=True, text=True, timeout=200,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("precision, rtol", [("f32", 3e-4), ("f64", 1e-10)])
def test_training_is_the_references(folder: Path, precision: str, rtol: float) -> None:
    losses, _, predicted = _run(folder, "own", precision, 2)
    wanted, _, expected = _run(folder, "reference", precision, 1)
    np.testing.assert_allclose(losses, wanted, rtol=rtol)
    np.testing.assert_allclose(predicted, expected, rtol=30 * rtol, atol=30 * rtol)
    assert losses[-1] < 0.9 * losses[0]


def test_one_set_of_bits_for_any_number_of_threads(folder: Path) -> None:
    first = _run(folder, "own", "f32", 1)
    for threads in (2, 8):
        assert _run(folder, "own", "f32", threads) == first


def test_an_id_that_does_not_exist_is_refused(folder: Path) -> None:
    _run(folder, "own", "f32", 1)
    with dslc.load(folder / "own_f32.dslc", weights="init") as session, pytest.raises(dslc.DslcError, match="R105"):
        session.predict(ids=np.full((4, 16), 32, np.int32))
