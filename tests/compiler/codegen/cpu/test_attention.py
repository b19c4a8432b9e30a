"""Attention's kernels at sizes that are no multiple of a tile, against the meaning of the op; the same bits for any cut
of the tasks and any level."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest
from cpu_kernels.kernels import runnable_levels
from cpu_kernels.native import Native
from op_laws.evaluation import apply, values_of
from thinning import thinned

from dslc.compiler.codegen.cpu.lower import lower
from dslc.compiler.ir.op import Builder
from dslc.compiler.ops.products.attention import sdpa, sdpa_grad

TOLERANCE = {np.float32: (3e-5, 3e-6), np.float64: (1e-12, 1e-13)}
Case = tuple[tuple[int, ...], int, int, bool, tuple[int, ...] | None]

CASES: list[Case] = [  # shape of q, keys, values, causal, shape of the mask
    ((1, 1), 1, 1, True, None),
    ((3, 1, 5), 1, 4, True, None),
    ((2, 2, 8, 16), 8, 16, True, None),
    ((1, 70, 33), 70, 33, True, None),
    ((2, 128, 32), 128, 32, True, None),
    ((17, 65, 8), 65, 8, True, None),
    ((1, 530, 20), 530, 7, True, None),  # more keys than a block
    ((2, 9, 5), 1030, 3, False, None),
    ((1, 200, 80), 3, 130, False, None),  # wide heads
    ((3, 1, 64), 77, 64, False, None),  # one new query
    ((2, 3, 17, 12), 90, 12, False, (2, 1, 1, 90)),
    ((2, 3, 17, 12), 45, 12, False, (3, 17, 1)),
    ((2, 3, 70, 12), 70, 12, True, (70, 70)),
    ((2, 600, 4), 600, 4, True, (2, 600, 600)),
]


def _inputs(case: Case, dtype: Any, seed: int = 0) -> tuple[list[np.ndarray], dict[str, Any]]:
    shape, keys, values, causal, mask = case
    rng = np.random.default_rng(seed)
    shapes = (shape, (*shape[:-2], keys, shape[-1]), (*shape[:-2], keys, values))
    arrays = [rng.standard_normal(s).astype(dtype) for s in shapes]
    masks = [] if mask is None else [rng.random(mask) < 0.6]
    return [*arrays, *masks], {"causal": causal, "scale": shape[-1] ** -0.5}


def _close(got: list[np.ndarray], wanted: Any, dtype: Any) -> None:
    for g, w in zip(got, wanted, strict=True):
        assert g.dtype == w.dtype and g.shape == w.shape
        np.testing.assert_allclose(g, w, rtol=TOLERANCE[dtype][0], atol=TOLERANCE[dtype][1])


@pytest.mark.parametrize(("case", "dtype"), thinned(product(CASES, TOLERANCE), 7), ids=str)
def test_attention_and_its_gradient(case: Case, dtype: Any) -> None:
    (q, k, v, *mask), attrs = _inputs(case, dtype)
    node = Builder().node(sdpa, *values_of([q, k, v, *mask]), **attrs)
    y, lse = apply(sdpa, [q, k, v, *mask], attrs)
    native = Native(node)
    found = native.run([q, k, v, *mask])
    _close(found, (y, lse), dtype)
    dy = np.random.default_rng(9).standard_normal(y.shape).astype(dtype)
    xs = [q, k, v, y, lse, dy, *mask]
    back = Native(Builder().node(sdpa_grad, *values_of(xs), **attrs))
    gradients = back.run(xs)
    _close(gradients, apply(sdpa_grad, xs, attrs), dtype)
    for splits in (2, 7):
        assert [x.tobytes() for x in native.run([q, k, v, *mask], splits)] == [x.tobytes() for x in found]
        assert [x.tobytes() for x in back.run(xs, splits)] == [x.tobytes() for x in gradients]


@pytest.mark.slow
@pytest.mark.parametrize("case", [CASES[3], CASES[12]], ids=str)
def test_levels_give_the_same_bits(case: Case) -> None:
    inputs, attrs = _inputs(case, np.float32)
    y, lse = apply(sdpa, inputs, attrs)
    xs = [*inputs[:3], y, lse, np.ones_like(y), *inputs[3:]]
    forward = Builder().node(sdpa, *values_of(inputs), **attrs)
    backward = Builder().node(sdpa_grad, *values_of(xs), **attrs)
    found = set()
    for level in runnable_levels():
        results = [*Native(forward, level).run(inputs), *Native(backward, level).run(xs)]
        found.add(b"".join(x.tobytes() for x in results))
    assert len(found) == 1


def test_a_hidden_value_that_is_not_finite_stays_hidden_after_whole_tiles_and_a_visible_one_shows() -> None:
    (q, k, v), attrs = _inputs(((1, 64, 8), 64, 8, True, None), np.float32)
    v[0, 40], k[0, 50] = np.nan, np.inf
    y, lse = Native(Builder().node(sdpa, *values_of([q, k, v]), **attrs)).run([q, k, v])
    assert np.isfinite(y[0, :40]).all() and np.isnan(y[0, 40:]).all()
    assert np.isfinite(lse[0, :50]).all() and not np.isfinite(lse[0, 50:]).any()


def test_a_query_that_may_look_nowhere_gives_zeros() -> None:
    (q, k, v, mask), attrs = _inputs(((1, 9, 8), 700, 8, False, (9, 700)), np.float32)
    mask[4], mask[5, :600] = False, False
    y, lse = Native(Builder().node(sdpa, *values_of([q, k, v, mask]), **attrs)).run([q, k, v, mask])
    assert (y[0, 4] == 0).all() and np.isneginf(lse[0, 4])
    assert np.isfinite(y).all() and np.isfinite(np.delete(lse, 4, 1)).all()


def test_no_score_matrix_is_kept() -> None:
    """Scratch memory grows with the length of the sequence, not with its square."""
    sizes = []
    for length in (512, 1024):
        inputs, attrs = _inputs(((2, length, 16), length, 16, True, None), np.float32)
        launches = lower(Builder().node(sdpa, *values_of(inputs), **attrs))
        assert launches is not None
        sizes.append(sum(b.bytes for x in launches for b in x.writes if hasattr(b, "bytes")))
    assert sizes[1] == 2 * sizes[0]
