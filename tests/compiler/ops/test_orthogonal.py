"""Orthogonal starts: rows or columns at right angles, every direction alike, the same bits with any BLAS."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys

import numpy as np
import pytest

from dslc.compiler.ops import registry
from dslc.compiler.ops.random import orthogonal
from dslc.compiler.ops.random.orthogonal import orthonormal


def drawn(shape: tuple[int, ...], seed: int = 1, gain: float = 1.0, dtype: str = "f32") -> np.ndarray:
    attrs = {"shape": list(shape), "key": 5, "dtype": dtype, "gain": gain}
    [x] = registry.ops()["init_orthogonal"].meaning([np.array(seed)], attrs)
    assert x.shape == shape
    return np.asarray(x, np.float64)


@pytest.mark.parametrize("shape", [(64, 64), (70, 40), (40, 70), (16, 8, 3, 3), (100, 3, 5), (1, 1), (1, 9), (9, 1)])
def test_the_shorter_side_is_orthonormal(shape: tuple[int, ...]) -> None:
    x = drawn(shape, gain=1.5).reshape(shape[0], -1)
    x = x if x.shape[0] <= x.shape[1] else x.T
    np.testing.assert_allclose(x @ x.T, 2.25 * np.eye(len(x)), atol=2e-6)


def test_another_seed_gives_another_matrix_and_f64_holds_the_same() -> None:
    assert np.abs(drawn((8, 8)) - drawn((8, 8), seed=2)).max() > 0.1
    np.testing.assert_array_equal(drawn((8, 8)), drawn((8, 8), dtype="f64"))


def test_every_direction_is_as_likely() -> None:
    """Elements of a random orthogonal [n, n] have mean 0, variance 1/n and no preferred sign, the diagonal too."""
    found = np.stack([drawn((6, 6), seed=seed) for seed in range(2000)])
    assert np.abs(found.mean(0)).max() < 5 * np.sqrt(1 / 6 / 2000)
    np.testing.assert_allclose((found**2).mean(0), 1 / 6, atol=0.03)


HARD = {
    "hilbert": 1 / (np.arange(40)[:, None] + np.arange(40) + 1.0),
    "equal rows": np.ones((40, 64)),
    "zero": np.zeros((40, 64)),
    "of all sizes": np.random.default_rng(0).normal(size=(50, 50)) * 10.0 ** np.arange(-100, 100, 4)[:, None],
    "random": np.random.default_rng(1).normal(size=(200, 200)),
}


@pytest.mark.parametrize("name", HARD)
def test_rows_are_orthonormal_whatever_was_given(name: str) -> None:
    found = orthonormal(HARD[name])
    assert np.abs(found @ found.T - np.eye(len(found))).max() < 1e-8


def test_blocks_change_nothing_that_f32_would_see(monkeypatch: pytest.MonkeyPatch) -> None:
    blocked = orthonormal(HARD["random"])
    monkeypatch.setattr(orthogonal, "_BLOCK", 200)
    np.testing.assert_allclose(blocked, orthonormal(HARD["random"]), atol=1e-9)


_HASH = """
import hashlib, numpy as np
from dslc.compiler.ops.random.orthogonal import orthonormal
print(hashlib.sha256(orthonormal(np.random.default_rng(1).normal(size=(200, 200))).tobytes()).hexdigest())
"""


@pytest.mark.parametrize("variables", [{"OPENBLAS_NUM_THREADS": "1"}, {"OPENBLAS_CORETYPE": "Sandybridge"}])
def test_the_bits_do_not_depend_on_the_blas(variables: dict[str, str]) -> None:
    """Of numpy's own OpenBLAS, with one thread, and with kernels that sum in another order."""
    ran = subprocess.run(
        [sys.executable, "-c", _HASH], env={**os.environ, **variables}, capture_output=True, text=True, check=True
    )
    assert ran.stdout.strip() == hashlib.sha256(orthonormal(HARD["random"]).tobytes()).hexdigest()
