"""Attention in TF32, in separate kernels and in tiles: what they compute, as compiled, thread by thread."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gpu_kernels.on_ptx_machine import on_machine
from gpu_kernels.sample_nodes import OPS
from op_laws.evaluation import apply, values_of

from dslc.compiler.ir.op import Builder

TF32 = {"tf32": True}


def rounded(x: np.ndarray) -> np.ndarray:
    """To the 10 bits of TF32, ties away from zero."""
    return ((x.view(np.uint32) + 0x1000) & 0xFFFFE000).view(np.float32)


@pytest.mark.parametrize(
    ("features", "values", "causal"), [(12, 16, False), (12, 16, True), (13, 13, False), (16, 16, True), (22, 22, True)]
)
def test_products_round_their_factors_to_tf32(features: int, values: int, causal: bool) -> None:
    """Attention whose values have other features than keys goes in separate kernels. Rows of 22 features are
    copied in pieces of 8 bytes, those of 13 in pieces of 4."""
    rng = np.random.default_rng(5)
    attrs: dict[str, Any] = {"causal": causal, "scale": 0.5}
    xs = [rng.standard_normal((1, 1, 17, n), np.float32) for n in (features, features, values)]
    near = [x.astype(np.float64) for x in map(rounded, xs)]
    exact, lse = apply(OPS["sdpa"], near, attrs)
    y, found = on_machine(Builder(name="here").node(OPS["sdpa"], *values_of(xs), **attrs, **TF32), xs)
    assert np.abs(found - lse).max() < 1e-5, "scores are not those of rounded factors"
    assert np.abs(y - exact).max() < 2e-3
    plain, _ = on_machine(Builder(name="here").node(OPS["sdpa"], *values_of(xs), **attrs), xs)
    assert np.abs(y - plain).max() > 1e-4, "factors are as they were"
    dy = rng.standard_normal((1, 1, 17, values), np.float32)
    given = [*xs, y, found, dy]
    wanted = apply(OPS["sdpa_grad"], [*near, exact, lse, rounded(dy).astype(np.float64)], attrs)
    got = on_machine(Builder(name="here").node(OPS["sdpa_grad"], *values_of(given), **attrs, **TF32), given)
    for slope, right in zip(got, wanted, strict=True):
        assert np.abs(slope - right).max() < 4e-3 * max(1.0, np.abs(right).max())
