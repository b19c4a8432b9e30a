"""`inf` and `nan`: where a number becomes a tensor; everywhere else numbers are finite."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from sources.in_memory import files

import dslc
from dslc.compiler.check.model import check_program
from dslc.compiler.options import Options
from dslc.compiler.pipeline import build, compile_entry
from dslc.dsl.diagnostics import CompileError

X = np.array([[1.0, -2.0, 3.0], [-np.inf, np.nan, 0.0]])


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("where(x > 0, x, -inf)", np.where(X > 0, X, -np.inf)),
        ("cast(x == inf, \"float\")", (np.inf == X).astype(float)),
        ("maximum(x, -inf)", np.maximum(X, -np.inf)),
        ("full([2, 3], nan) + x", np.full((2, 3), np.nan)),
        ("pad(x, [0, 1], value=-inf)", np.pad(X, ((0, 0), (1, 1)), constant_values=-np.inf)),
        ("maximum(x, inf - 1)", np.maximum(X, np.inf)),
        ("minimum(x, -max(1.0, inf))", np.minimum(X, -np.inf)),
        ("x + 1 / inf", X),
    ],
)  # fmt: skip
@pytest.mark.parametrize("provider", ["reference", "own"])
def test_where_a_number_becomes_a_tensor(expression: str, expected: np.ndarray, provider: str, tmp_path: Path) -> None:
    checked = check_program(files(f"nn 1\nmodel M(x: [2, 3]) -> [2, _] {{\n  return {expression}\n}}\n"))
    path = tmp_path / "m.dslc"
    path.write_bytes(build(checked, Options(provider=provider)).artifact)
    with dslc.load(path, device="cpu") as session:
        np.testing.assert_array_equal(session.predict(x=X.astype(np.float32)), expected.astype(np.float32))


@pytest.mark.parametrize("expression", ["where(x > 0, x, -inf)", "pad(x, [1, 1], value=nan)", "full([2, 3], inf) - x"])
def test_code_for_a_gpu(expression: str) -> None:
    checked = check_program(files(f"nn 1\nmodel M(x: [2, 3]) -> [_, _] {{\n  return {expression}\n}}\n"))
    for precision in ("f32", "bf16"):
        compile_entry(checked, "predict", {}, Options(target="sm_90", precision=precision))


def test_a_file_may_use_the_names() -> None:
    text = "nn 1\nconst inf = 3\nmodel M(x: [4]) -> [4] {\n  nan = x * inf\n  return nan\n}\n"
    check_program(files(text))


@pytest.mark.parametrize(
    ("model", "section"),
    [
        ("return x |> linear(2)", "optimizer = sgd(lr=inf)"),
        ("return x |> linear(2)", "optimizer = adam(lr=0.1, betas=(0.9, nan))"),
        ("return x |> linear(2)", "optimizer = sgd(lr=0.1)\n  ema = nan"),
        ("return x |> linear(2)", "optimizer = sgd(lr=0.1, clip_norm=-inf)"),
        ("return x |> layernorm(eps=nan) |> linear(2)", "optimizer = sgd(lr=0.1)"),
        ("return x |> dropout(nan) |> linear(2)", "optimizer = sgd(lr=0.1)"),
        ("return x |> linear(2, init=normal(inf))", "optimizer = sgd(lr=0.1)"),
        ("param w: [4, 2] = nan\n  return x @ w", "optimizer = sgd(lr=0.1)"),
        ("@lr(nan)\n  param w: [4, 2] = 0\n  return x @ w", "optimizer = sgd(lr=0.1)"),
        ("n = floor(inf)\n  return x |> linear(2)", "optimizer = sgd(lr=0.1)"),
    ],
)
def test_elsewhere_numbers_are_finite(model: str, section: str) -> None:
    text = f"nn 1\ndim B in 1..8 = 4\nmodel M(x: [B, 4]) -> [B, 2] {{\n  {model}\n}}\n"
    text += f"train M(label: i32[B]) {{\n  loss = cross_entropy(output, label)\n  {section}\n}}\n"
    with pytest.raises(CompileError) as caught:
        check_program(files(text))
    assert caught.value.code in ("E0209", "E0202", "E0301", "E0203"), caught.value


@pytest.mark.parametrize(
    "head", ["model M(x: [4], low: float = inf) -> [4]", "train M(rate: float = nan)"]
)  # fmt: skip
def test_arguments_are_finite(head: str) -> None:
    text = "nn 1\nmodel M(x: [4]) -> [4] {\n  return x |> linear(4)\n}\n"
    if head.startswith("train"):
        text += head + " {\n  loss = mean(output) * rate\n  optimizer = sgd(lr=0.1)\n}\n"
    else:
        text = f"nn 1\n{head} {{\n  return maximum(x, low)\n}}\n"
    with pytest.raises(CompileError) as caught:
        check_program(files(text))
    assert caught.value.code == "E0209" and "finite" in str(caught.value)
