"""Functions of linear algebra against numpy, and what they say of other tensors."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from op_laws.language import check, evaluate

from dslc.compiler.check.model import Checked
from dslc.dsl.diagnostics import CompileError

RNG = np.random.default_rng(5)
X = RNG.uniform(-1, 1, (4, 5, 5))
Y = RNG.uniform(-1, 1, (4, 5))
Z = RNG.uniform(-1, 1, (4, 5, 3))
ROOT = np.linalg.cholesky(X @ X.swapaxes(-1, -2) + np.eye(5))
GIVEN = {"x": (X, "[B, 5, 5]"), "y": (Y, "[B, 5]"), "z": (Z, "[B, 5, 3]")}


def read_by(source: str) -> dict[str, tuple[np.ndarray, str]]:
    """The inputs that an expression names."""
    return {name: each for name, each in GIVEN.items() if re.search(rf"\b{name}\b", source)}


def checked(folder: Path, source: str, result: str) -> Checked:
    given = ", ".join(f"{name}: {shape}" for name, (_, shape) in read_by(source).items())
    return check(folder, given, f"  return {source}", result)


def value(folder: Path, source: str, result: str) -> np.ndarray:
    return evaluate(checked(folder, source, result), {name: x for name, (x, _) in read_by(source).items()}, B=4)


def solved(t: np.ndarray, b: np.ndarray) -> np.ndarray:
    return np.linalg.solve(t, b[..., None])[..., 0]


CASES: list[tuple[str, str, Callable[[], Any]]] = [
    ("cholesky(x @ transpose(x) + eye(5))", "[B, 5, 5]", lambda: ROOT),
    ("cholesky(tril(x, -1) + 4 * eye(5))", "[B, 5, 5]",
     lambda: np.linalg.cholesky((np.tril(X, -1) + np.tril(X, -1).swapaxes(-1, -2)) / 2 + 4 * np.eye(5))),
    ("solve(x, y)", "[B, 5]", lambda: solved(X, Y)),
    ("solve(x, z)", "[B, 5, 3]", lambda: np.linalg.solve(X, Z)),
    ("solve(x, z[0])", "[B, 5, 3]", lambda: np.linalg.solve(X, np.broadcast_to(Z[0], Z.shape))),
    ("solve(x[0], z)", "[B, 5, 3]", lambda: np.linalg.solve(X[0], Z)),
    ("solve(x, arange(5, dtype=\"float\"))", "[B, 5]", lambda: solved(X, np.broadcast_to(np.arange(5.0), (4, 5)))),
    ("solve(x[0], y[0])", "[5]", lambda: np.linalg.solve(X[0], Y[0])),
    ("inverse(x)", "[B, 5, 5]", lambda: np.linalg.inv(X)),
    ("det(x)", "[B]", lambda: np.linalg.det(X)),
    ("det(x[0])", "[]", lambda: np.linalg.det(X[0])),
    ("det(x - x)", "[B]", lambda: np.zeros(4)),
    ("concat([unsqueeze(a, 0) for a in slogdet(x)], axis=0)", "[2, B]", lambda: np.stack(np.linalg.slogdet(X))),
    ("triangular_solve(x, y)", "[B, 5]", lambda: solved(np.tril(X), Y)),
    ("triangular_solve(x, z, upper=true)", "[B, 5, 3]", lambda: np.linalg.solve(np.triu(X), Z)),
    ("triangular_solve(x, z, transpose=true)", "[B, 5, 3]",
     lambda: np.linalg.solve(np.tril(X).swapaxes(-1, -2), Z)),
    ("triangular_solve(x, z, unit=true)", "[B, 5, 3]", lambda: np.linalg.solve(np.tril(X, -1) + np.eye(5), Z)),
]  # fmt: skip


@pytest.mark.parametrize(("source", "result", "wanted"), CASES, ids=[case[0] for case in CASES])
def test_a_function_gives_what_numpy_does(source: str, result: str, wanted: Callable[[], Any], tmp_path: Path) -> None:
    found = value(tmp_path, source, result)
    np.testing.assert_allclose(found, wanted(), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("cholesky(y)", "`cholesky` takes [n, n], or [..., n, n]"),
        ("inverse(z)", "which is no square matrix"),
        ("solve(x, z[:, :4])", "the right side has 5 numbers, or rows [..., 5, k]"),
        ("solve(x, 1 - y[0, 0])", "the right side has 5 numbers"),
        ("det(cast(x, \"i32\"))", "`det`"),
        ("qr(x)", "cholesky(transpose(x) @ x)"),
        ("logdet(x)", "slogdet(x)"),
    ],
)  # fmt: skip
def test_an_error_says_what_is_taken(source: str, words: str, tmp_path: Path) -> None:
    with pytest.raises(CompileError) as raised:
        checked(tmp_path, f"sum({source})", "[]")
    assert words in str(raised.value)


@pytest.mark.parametrize(
    ("source", "result"), [("cholesky(x - 9 * eye(5))[:, 0, 0]", "[B]"), ("solve(x - x, y)", "[B, 5]")]
)
def test_where_there_is_no_answer_none_is_finite(source: str, result: str, tmp_path: Path) -> None:
    found = value(tmp_path, source, result)
    assert not np.isfinite(found).any()
