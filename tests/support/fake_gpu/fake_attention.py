"""Attention as cuDNN's package computes it, made of numpy: from sizes, strides and options alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

#: In the order of the results of the real ones.
RESULTS = {"sdpa": 2, "sdpa_backward": 3}


def attention(op: str, given: Mapping[str, np.ndarray], options: Mapping[str, Any]) -> Sequence[np.ndarray]:
    """``given``: operands in f64, [B, H, T, d], by the package's names. Heads of q may share one of k."""
    q = given["q"]
    share = q.shape[1] // given["k"].shape[1]
    k, v = (np.repeat(given[name], share, axis=1) for name in ("k", "v"))
    scores = q @ k.swapaxes(-1, -2) * options["attn_scale"]
    if options["use_causal_mask"]:
        assert "diagonal_band_right_bound" not in options, "it would be a bound of 0, too"
        scores = np.where(np.tri(*scores.shape[-2:], dtype=bool), scores, -np.inf)
    before = np.arange(scores.shape[-2])[:, None] - np.arange(scores.shape[-1])  # positions from the key to the query
    scores = np.where(before >= options.get("diagonal_band_left_bound", np.inf), -np.inf, scores)
    scores = np.where(-before > options.get("diagonal_band_right_bound", np.inf), -np.inf, scores)
    if op == "sdpa":
        assert options["generate_stats"]
        stats = np.log(np.exp(scores).sum(-1, keepdims=True))
        return np.exp(scores - stats) @ v, stats
    assert options["use_deterministic_algorithm"], "its sums would be added by atomics"
    weights = np.exp(scores - given["stats"])
    dy = given["dO"]
    slopes = weights * (dy @ v.swapaxes(-1, -2) - (dy * given["o"]).sum(-1, keepdims=True)) * options["attn_scale"]
    wide = slopes.swapaxes(-1, -2) @ q, weights.swapaxes(-1, -2) @ dy
    dk, dv = (x.reshape(len(x), -1, share, *x.shape[2:]).sum(2) for x in wide)
    return slopes @ k, dk, dv
