"""Models that compute nothing, or nothing in some of their entries: their artifacts load and run on each target."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from fake_gpu.fake_driver import FakeDriver

import dslc
from dslc.compiler import pipeline
from dslc.compiler.check.model import check_file
from dslc.compiler.options import Options
from dslc.runtime.artifact.file import Artifact

X = np.arange(12, dtype=np.float32).reshape(4, 3)
Z = np.ones((4, 2), np.float32)

#: the model's signature and body, and its results for X (and Z)
MODELS: dict[str, tuple[str, str, list[np.ndarray]]] = {
    "input": ("(x: [B, 3]) -> [B, 3]", "return x", [X]),
    "reshape": ("(x: [B, 3]) -> [B, 1, 3]", "return reshape(x, [B, 1, 3])", [X[:, None]]),
    "flatten": ("(x: [B, 3, 1]) -> [B, 3]", "return x |> flatten", [X]),
    "dropout": ("(x: [B, 3]) -> [B, 3]", "return x |> dropout(0.5) |> stop_gradient", [X]),
    "twice": ("(x: [B, 3]) -> (a: [B, 3], b: [B, 3])", "return x, x", [X, X]),
    "two views": ("(x: [B, 3]) -> (a: [B, 3, 1], b: [B, 1, 3])",
                  "return reshape(x, [B, 3, 1]), reshape(x, [B, 1, 3])", [X[:, :, None], X[:, None]]),
    "parameter": ("(x: [B, 3]) -> (a: [B, 3], b: [2], c: [2])",
                  "param w: [2] = constant(1)\n  return x, w, w", [X, Z[0], Z[0]]),
    "stored numbers": ("(x: [B, 3]) -> (a: [B, 3], b: i32[10, 7], c: i32[70])",
                       "t = tensor(0..70)\n  return x, reshape(t, [10, 7]), t",
                       [X, np.arange(70, dtype=np.int32).reshape(10, 7), np.arange(70, dtype=np.int32)]),
    "unread": ("(x: [B, 3], z: [B, 2]) -> [B, 3]", "y = exp(z)\n  return x", [X]),
    "swapped": ("(x: [B, 3], z: [B, 2]) -> (a: [B, 2], b: [B, 3])", "return z, x", [Z, X]),
}  # fmt: skip


def built(folder: Path, name: str, provider: str, train: str = "") -> Path:
    signature, body, _ = MODELS[name]
    source = folder / "net.nn"
    source.write_text(f"nn 1\ndim B in 1..8 = 4\nmodel Net{signature} {{\n  {body}\n}}\n{train}")
    artifact = pipeline.build(check_file(source), Options(target="cpu,sm_90", provider=provider)).artifact
    (folder / "net.dslc").write_bytes(artifact)
    return folder / "net.dslc"


@pytest.mark.parametrize("provider", ["auto", "own", "vendor", "reference"])
@pytest.mark.parametrize("name", MODELS)
def test_it_loads_and_predicts(name: str, provider: str, tmp_path: Path, machine: Callable[..., FakeDriver]) -> None:
    machine(kernels={}, parameters={})
    path = built(tmp_path, name, provider)
    needs = Artifact.of_bytes(path.read_bytes()).header["required_features"]
    assert needs == [] or (name == "parameter" and "cuda" in needs)  # whose `init` has something to do
    given = {"x": X[:, :, None] if name == "flatten" else X} | ({"z": Z} if "z:" in MODELS[name][0] else {})
    for device in ("cpu", "gpu")[: 1 if needs else 2]:
        with dslc.load(path, device=device, weights="init") as session:
            for rows in (4, 1):
                found = session.predict(**{n: v[:rows] for n, v in given.items()})
                results = [found] if isinstance(found, np.ndarray) else list(found)
                expected = [v[:rows] if len(v) == len(X) else v for v in MODELS[name][2]]
                for got, wanted in zip(results, expected, strict=True):
                    assert got.shape == wanted.shape and got.tobytes() == wanted.tobytes()
