"""Convolutions with channels last as kernels, held against the ops' numpy meanings in f64."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any

import numpy as np
import pytest
from cpu_kernels.native import Native
from op_laws.evaluation import apply, values_of
from thinning import thinned

from dslc.compiler.codegen.cpu.contraction import parts
from dslc.compiler.codegen.cpu.contraction.depthwise_last import DepthwiseSums, DepthwiseTaps
from dslc.compiler.ir.op import Builder
from dslc.compiler.ops import registry

OPS = registry.ops()
#: Batch, groups, channels and results of a group, size, kernel, stride, pad, dilation.
CASES: list[tuple[int, int, int, int, tuple[int, ...], tuple[int, ...], int, int, int]] = [
    (2, 1, 3, 5, (7, 6), (3, 3), 1, 1, 1),
    (2, 1, 20, 37, (11, 13), (3, 5), 2, 2, 1),
    (2, 2, 6, 4, (9, 8), (3, 3), 2, 2, 2),
    (1, 1, 40, 33, (9, 9), (1, 1), 1, 0, 1),
    (2, 1, 5, 4, (23, 21), (5, 5), 5, 0, 1),  # patches; pixels are left
    (1, 1, 3, 2, (23, 22), (6, 6), 5, 1, 1),  # 25 residues
    (2, 1, 4, 3, (50,), (4,), 2, 3, 3),
    (2, 1, 2, 3, (4, 5, 6), (2, 3, 1), 1, 1, 1),
    (2, 5, 1, 1, (9, 8), (3, 3), 1, 1, 1),
    (2, 70, 1, 1, (9, 11), (3, 5), 2, 2, 1),
    (1, 64, 1, 1, (13, 7), (3, 3), 3, 1, 2),
    (1, 17, 1, 1, (12, 9), (2, 3), 4, 1, 1),  # pixels that no window meets
    (1, 3, 1, 1, (9, 4), (2, 2), 1, 3, 7),  # further apart within a window than windows
    (3, 130, 1, 1, (40,), (7,), 1, 3, 1),
    (1, 20, 1, 1, (5, 6, 7), (3, 2, 3), 1, 1, 1),
]
#: The gradient of the input is a long sum in parts, for a quarter of the pixels.
IN_PARTS = (1, 1, 60, 1040, (5, 4), (1, 1), 2, 0, 1)


def _counts(size: tuple[int, ...], kernel: tuple[int, ...], stride: int, pad: int, dilation: int) -> tuple[int, ...]:
    return tuple((n + 2 * pad - dilation * (k - 1) - 1) // stride + 1 for n, k in zip(size, kernel))


def _check(case: tuple[Any, ...], dtype: str, rng: np.random.Generator) -> None:
    batch, groups, channels, out, size, kernel, stride, pad, dilation = case
    x = rng.standard_normal((batch, *size, groups * channels)).astype(dtype)
    w = rng.standard_normal((groups * out, *kernel, channels)).astype(dtype)
    dy = rng.standard_normal((batch, *_counts(size, kernel, stride, pad, dilation), groups * out)).astype(dtype)
    per_axis = {name: (n,) * len(size) for name, n in (("stride", stride), ("pad", pad), ("dilation", dilation))}
    attrs = {**per_axis, "groups": groups}
    for name, inputs, more in (
        ("conv_last", [x, w], {}), ("conv_dgrad_last", [dy, w], {"size": size}),
        ("conv_wgrad_last", [x, dy], {"size": kernel}),
    ):  # fmt: skip
        native = Native(Builder().node(OPS[name], *values_of(inputs), **attrs, **more))
        kinds = {type(launch.spec) for launch in native.launches}
        own = DepthwiseSums if name == "conv_wgrad_last" else DepthwiseTaps
        assert (own in kinds) == (channels == out == 1 < groups)
        [exact] = apply(OPS[name], [v.astype(np.float64) for v in inputs], {**attrs, **more})
        [got] = native.run(inputs)
        error = 1e-5 if dtype == "f4" else 1e-13
        np.testing.assert_allclose(got, exact, rtol=error, atol=error * max(1.0, np.abs(exact).max()), err_msg=name)
        [again] = native.run(inputs, 3)
        assert got.tobytes() == again.tobytes(), name


@pytest.mark.parametrize(("case", "dtype"), thinned(product(CASES, ("f4", "f8")), 6))
def test_images_with_channels_last(case: tuple[Any, ...], dtype: str, fuzz_seed: int) -> None:
    _check(case, dtype, np.random.default_rng(fuzz_seed))


@pytest.mark.parametrize(
    "case",
    [(2, 1, 20, 37, (9, 9), (3, 3), 1, 4, 4), (2, 2, 6, 4, (9, 8), (3, 3), 2, 2, 2), (2, 1, 4, 3, (7,), (4,), 1, 6, 3)],
)
def test_borders_are_left_out(case: tuple[Any, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    """However little that saves."""
    monkeypatch.setattr(parts, "_APART", 0.0)
    monkeypatch.setattr(parts, "_BEGUN", 0)
    _check(case, "f4", np.random.default_rng(0))


def test_parts_of_a_sum_leave_pixels_of_other_classes(fuzz_seed: int) -> None:
    _check(IN_PARTS, "f4", np.random.default_rng(fuzz_seed))


@pytest.mark.slow
def test_random_shapes(fuzz_count: Callable[..., int], fuzz_seed: int) -> None:
    rng = np.random.default_rng(fuzz_seed)
    left = fuzz_count(60, 4)
    while left:
        axes, groups = int(rng.choice([1, 2, 2, 3])), int(rng.choice([1, 1, 2, 19, 67]))
        channels, out = (1, 1) if groups > 2 else (int(2 ** rng.uniform(0, 5)) for _ in range(2))
        size, kernel = (tuple(map(int, rng.integers(1, most, axes))) for most in (24 if axes < 3 else 8, 5))
        stride, pad, dilation = (int(rng.integers(low, 5)) for low in (1, 0, 1))
        if min(_counts(size, kernel, stride, pad, dilation)) < 1:
            continue
        left -= 1
        _check((int(rng.integers(1, 4)), groups, channels, out, size, kernel, stride, pad, dilation), "f4", rng)
