"""Maximum pools with channels last, their gradient, and adaptive ones, bit by bit as the ops mean them."""

from __future__ import annotations

import numpy as np
import pytest
from cpu_kernels.native import Native
from op_laws.evaluation import apply, values_of

from dslc.compiler.codegen.cpu.ops.adaptive_pools import AdaptiveMaxPool, AdaptiveMaxPoolLast
from dslc.compiler.codegen.cpu.ops.pooling_last import MaxPoolGradLast, MaxPoolLast
from dslc.compiler.ir.op import Builder
from dslc.compiler.ops import registry

OPS = registry.ops()
#: Size, channels, k, stride, pad; the fourth has more positions than a byte holds.
CASES: list[tuple[tuple[int, ...], int, tuple[int, ...], tuple[int, ...], tuple[int, ...]]] = [
    ((9, 8), 70, (3, 2), (2, 1), (1, 0)),
    ((7, 7), 3, (3, 3), (1, 1), (1, 1)),
    ((12,), 17, (4,), (3,), (2,)),
    ((18, 17), 2, (17, 16), (1, 1), (0, 0)),
    ((5, 6, 4), 16, (2, 3, 2), (2, 2, 2), (1, 1, 0)),
]


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_the_first_of_equal_maxima(case: tuple[tuple[int, ...], ...], dtype: str) -> None:
    size, channels, k, stride, pad = case
    rng = np.random.default_rng(len(size))
    x = np.round(rng.standard_normal((2, *size, channels)) * 2).astype(dtype)  # many are equal
    x[rng.random(x.shape) < 0.02], x[0, ..., 0] = np.nan, -np.inf
    attrs = {"k": k, "stride": stride, "pad": pad}
    native = Native(Builder().node(OPS["maxpool_last"], *values_of([x]), **attrs))
    assert [type(launch.spec) for launch in native.launches] == [MaxPoolLast]
    found = native.run([x])
    for got, want in zip(found, apply(OPS["maxpool_last"], [x], attrs), strict=True):
        assert got.dtype == want.dtype
        np.testing.assert_array_equal(got, want)
    assert [y.tobytes() for y in native.run([x], 3)] == [y.tobytes() for y in found]
    dy = rng.standard_normal(found[0].shape).astype(dtype)
    native = Native(Builder().node(OPS["maxpool_grad_last"], *values_of([dy, found[1]]), **attrs, size=size))
    assert [type(launch.spec) for launch in native.launches] == [MaxPoolGradLast]
    [got], [want] = native.run([dy, found[1]]), apply(OPS["maxpool_grad_last"], [dy, found[1]], {**attrs, "size": size})
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)
    assert native.run([dy, found[1]], 3)[0].tobytes() == got.tobytes()


#: Size, channels, results along each axis; the windows of the third overlap, those of the last have 40 columns.
ADAPTIVE = [
    ((9, 8), 70, (3, 3)),
    ((5, 5, 6), 3, (2, 5, 1)),
    ((7, 7), 20, (5, 4)),
    ((33,), 2, (1,)),
    ((4, 80), 5, (3, 2)),
]


@pytest.mark.parametrize("case", ADAPTIVE)
@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize("last", [False, True])
def test_adaptive_windows(case: tuple[tuple[int, ...], int, tuple[int, ...]], dtype: str, last: bool) -> None:
    size, channels, counts = case
    rng = np.random.default_rng(channels)
    x = np.round(rng.standard_normal((2, channels, *size)) * 2).astype(dtype)
    x[rng.random(x.shape) < 0.01], x[1, 0] = np.nan, -np.inf
    if last:
        x = np.moveaxis(x, 1, -1).copy()
    op, attrs = OPS["adaptive_maxpool_last" if last else "adaptive_maxpool"], {"size": counts}
    native = Native(Builder().node(op, *values_of([x]), **attrs))
    assert [type(launch.spec) for launch in native.launches] == [AdaptiveMaxPoolLast if last else AdaptiveMaxPool]
    found = native.run([x])
    for got, want in zip(found, apply(op, [x], attrs), strict=True):
        assert got.dtype == want.dtype
        np.testing.assert_array_equal(got, want)
    assert [y.tobytes() for y in native.run([x], 3)] == [y.tobytes() for y in found]
