"""Parameters and buffers that start as tensors of constants."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from sources.in_memory import files

import dslc
from dslc.compiler.check.model import check_file, check_program
from dslc.compiler.options import Options
from dslc.compiler.pipeline import build
from dslc.dsl.diagnostics import CompileError

HEAD = "nn 1\ndim B in 1..64 = 8\ndim T in 8..256 = 16\n"


def initial(path: Path, text: str, **options: Any) -> dict[str, NDArray[np.generic]]:
    """The initial weights of a model."""
    source, artifact = path / "model.nn", path / "model.dslc"
    source.write_text(HEAD + text, encoding="utf-8")
    artifact.write_bytes(build(check_file(str(source)), Options(**options)).artifact)
    with dslc.load(artifact, device="cpu", weights="init", seed=3) as session:
        return {name: np.asarray(session.weights[name]) for name in session.weights}


@pytest.mark.parametrize("provider", ["reference", "own"])
def test_parameters_and_buffers_start_as_tensors(provider: str, tmp_path: Path) -> None:
    """As the decay of a state space model, the transform of a spatial transformer, and a table of a file."""
    np.save(tmp_path / "table.npy", np.arange(12.0).reshape(3, 4) / 7)
    text = """use "table.npy" (table)
block spaces(x: [B, D], n: int) -> [B, D, n] {
  param a_log: [D, n] = log(arange(1, n + 1, dtype="float"))
  buffer grid: [n] = linspace(0, 1, n)
  return unsqueeze(x, 2) * -exp(a_log) + grid
}
model M(x: [B, 4]) -> [B, 6, 3] {
  layer fc = linear(6, init=table[0], bias_init=tensor([1, 0, 0, 0, 1, 0], dtype="float"))
  @freeze param mix: [3, 4] = table
  return fc(x) + sum(mix) |> spaces(3) as ssm
}
train M(y: [B, 6, 3]) { loss = mse(output, y); optimizer = adam(lr=0.1); ema = 0.9 }
"""
    found = initial(tmp_path, text, provider=provider, precision="f64")
    table = np.arange(12.0).reshape(3, 4) / 7
    assert np.array_equal(found["fc.bias"], [1, 0, 0, 0, 1, 0])
    assert np.array_equal(found["fc.weight"], np.broadcast_to(table[0], (6, 4)))
    assert np.array_equal(found["mix"], table)
    assert np.allclose(found["ssm.a_log"], np.broadcast_to(np.log([1, 2, 3]), (6, 3)), rtol=1e-15)
    assert np.allclose(found["ssm.grid"], [0, 0.5, 1], rtol=1e-15)


def test_initial_values_of_a_model_of_16_bits_are_not_rounded(tmp_path: Path) -> None:
    text = "model M(x: [B, 2]) -> [B, 2] {\n  param w: [2] = tensor([0.1, 1 / 3])\n  return x * w\n}\n"
    assert np.array_equal(initial(tmp_path, text, precision="bf16")["w"], np.array([0.1, 1 / 3], np.float32))


@pytest.mark.parametrize(
    ("start", "told"),
    [
        (
            "tensor([1, 0, 0, 1])",
            r'E0202.*floats, this is i32\[4\].*convert it: `tensor\(\[1, 0, 0, 1\], dtype="float"\)',
        ),
        ("x[0]", "E0202.*constants alone, these depend on `x`"),
        ("0.5 * other", "E0202.*constants alone, these depend on `other`"),
        ("randn([4])", "E0202.*constants alone, these depend on random draws"),
        ("ones([4]) * T", "E0307.*depend on a dim"),
        ("zeros([3])", r"E0302.*shape \[3\] for the shape \[4\]"),
        ("zeros([1, 4])", r"E0302.*shape \[1, 4\] for the shape \[4\]"),
        ('"zeros"', "E0202.*a string is no initialiser.*a tensor of constants"),
    ],
)
def test_tensors_that_are_no_initial_values(start: str, told: str) -> None:
    text = f"  param other: [4] = 1\n  param w: [4] = {start}\n  return x * w * other\n"
    with pytest.raises(CompileError, match=f"(?s){told}"):
        check_program(files(f"{HEAD}model M(x: [B, 4]) -> [B, 4] {{\n{text}}}\n"))
