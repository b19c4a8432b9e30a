"""Convolutions with kernels of their own: depthwise ones and the gradients of their weights, inputs of patches."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from cpu_kernels.native import Native
from op_laws.evaluation import apply, values_of
from thinning import thinned

from dslc.compiler.codegen.cpu.contraction import depthwise_lines
from dslc.compiler.codegen.cpu.contraction.depthwise import DepthwiseWeights
from dslc.compiler.codegen.cpu.contraction.depthwise_lines import DepthwiseLines
from dslc.compiler.codegen.cpu.contraction.kernel import Contraction
from dslc.compiler.ir.op import Builder
from dslc.compiler.ops import registry

OPS = registry.ops()

#: Channels, results of each, size, kernel, stride, pad, dilation.
DEPTHWISE: list[tuple[int, int, tuple[int, ...], tuple[int, ...], int, int, int]] = [
    (5, 1, (19, 33), (3, 3), 1, 1, 1),
    (3, 1, (17, 40), (5, 3), 2, 2, 1),
    (4, 2, (9, 20), (1, 9), 1, 0, 1),
    (2, 4, (50,), (7,), 1, 3, 1),
    (3, 1, (130,), (8,), 3, 4, 2),
    (2, 1, (5, 6, 18), (3, 2, 3), 1, 1, 1),
    (6, 1, (4, 4), (3, 3), 1, 1, 1),
]
#: Groups, channels and results of a group, size, kernel, which is the stride.
PATCHES: list[tuple[int, int, int, tuple[int, ...], tuple[int, ...]]] = [
    (1, 3, 20, (32, 48), (16, 16)),
    (1, 3, 7, (23, 21), (5, 5)),  # pixels are left
    (2, 2, 6, (14, 21), (7, 7)),
    (1, 2, 9, (60,), (20,)),
    (1, 1, 4, (6, 9, 7), (3, 3, 3)),
]


def _attrs(rank: int, stride: Any, pad: int, dilation: int, groups: int, size: tuple[int, ...]) -> dict[str, Any]:
    strides = (stride,) * rank if isinstance(stride, int) else stride
    return {"stride": strides, "pad": (pad,) * rank, "dilation": (dilation,) * rank, "groups": groups, "size": size}


def _agree(native: Native, name: str, attrs: dict[str, Any], xs: list[np.ndarray]) -> None:
    exact = apply(OPS[name], [x.astype(np.float64) for x in xs], attrs)
    whole = native.run(xs)
    for got, want in zip(whole, exact, strict=True):
        error = 1e-5 if xs[0].dtype == np.float32 else 1e-13
        np.testing.assert_allclose(got, want, rtol=error, atol=error * np.abs(want).max())
    for one, other in zip(whole, native.run(xs, 3), strict=True):
        assert one.tobytes() == other.tobytes()


@pytest.mark.parametrize(("case", "dtype"), thinned(((c, d) for c in DEPTHWISE for d in ("f4", "f8")), 2))
def test_the_weights_of_a_depthwise_convolution(case: tuple[Any, ...], dtype: str, fuzz_seed: int) -> None:
    groups, out, size, kernel, stride, pad, dilation = case
    rng = np.random.default_rng(fuzz_seed)
    counts = tuple((n + 2 * pad - dilation * (k - 1) - 1) // stride + 1 for n, k in zip(size, kernel))
    x = rng.standard_normal((2, groups, *size)).astype(dtype)
    dy = rng.standard_normal((2, groups * out, *counts)).astype(dtype)
    attrs = _attrs(len(size), stride, pad, dilation, groups, kernel)
    native = Native(Builder().node(OPS["conv_wgrad"], *values_of([x, dy]), **attrs))
    assert any(isinstance(launch.spec, DepthwiseWeights) for launch in native.launches)
    _agree(native, "conv_wgrad", attrs, [x, dy])


#: As ``DEPTHWISE``: vectors narrower than a register, many of a line, strides that are read element by element, windows
#: that meet only the border, an axis without one.
LINES: list[tuple[int, int, tuple[int, ...], tuple[int, ...], Any, int, int]] = [
    *DEPTHWISE,
    (2, 1, (3, 200), (2, 3), 1, 1, 1),
    (1, 3, (2, 331), (1, 4), 2, 3, 5),
    (3, 1, (40,), (4,), 6, 2, 1),
    (2, 1, (7, 7), (7, 7), 1, 3, 1),
    (2, 1, (14, 14), (3, 3), 2, 1, 1),
    (3, 1, (2, 3), (3, 1), 1, 4, 3),
    (2, 1, (6, 5, 9), (2, 3, 2), (2, 1, 3), 1, 2),
    (2, 1, (9, 1), (3, 1), (1, 2), 0, 1),
]


@pytest.mark.parametrize(("case", "dtype"), thinned(((c, d) for c in LINES for d in ("f4", "f8")), 2))
def test_a_depthwise_convolution(
    case: tuple[Any, ...], dtype: str, fuzz_seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The result also has the bits of the product of patches, whatever the tasks are."""
    groups, out, size, kernel, stride, pad, dilation = case
    groups = max(2, groups)
    rng = np.random.default_rng(fuzz_seed)
    x = rng.standard_normal((2, groups, *size)).astype(dtype)
    w = rng.standard_normal((groups * out, 1, *kernel)).astype(dtype)
    attrs = _attrs(len(size), stride, pad, dilation, groups, kernel)
    del attrs["size"]
    node = Builder().node(OPS["conv"], *values_of([x, w]), **attrs)
    native = Native(node)
    assert [type(launch.spec) for launch in native.launches] == [DepthwiseLines]
    _agree(native, "conv", attrs, [x, w])
    [got] = native.run([x, w])
    monkeypatch.setattr(depthwise_lines, "_TASK_PRODUCTS", 40)
    [divided] = Native(node).run([x, w], 3)
    monkeypatch.setattr(depthwise_lines, "_MAX_TAPS", 0)
    [product] = Native(node).run([x, w])
    assert got.tobytes() == divided.tobytes() == product.tobytes()


#: Channels, size, kernel, pad, dilation.
GRADIENTS: list[tuple[int, tuple[int, ...], tuple[int, ...], int, int]] = [
    (3, (14, 14), (3, 3), 1, 1),
    (2, (5, 40), (2, 5), 0, 2),
    (3, (200,), (7,), 9, 1),
    (2, (4, 5, 9), (3, 1, 2), 1, 1),
]


@pytest.mark.parametrize(("case", "dtype"), thinned(((c, d) for c in GRADIENTS for d in ("f4", "f8")), 2))
def test_the_input_of_a_depthwise_convolution(
    case: tuple[Any, ...], dtype: str, fuzz_seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With stride 1; with the bits of the product."""
    groups, size, kernel, pad, dilation = case
    rng = np.random.default_rng(fuzz_seed)
    counts = tuple(n + 2 * pad - dilation * (k - 1) for n, k in zip(size, kernel))
    dy = rng.standard_normal((2, groups, *counts)).astype(dtype)
    w = rng.standard_normal((groups, 1, *kernel)).astype(dtype)
    attrs = _attrs(len(size), 1, pad, dilation, groups, size)
    node = Builder().node(OPS["conv_dgrad"], *values_of([dy, w]), **attrs)
    native = Native(node)
    assert [type(launch.spec) for launch in native.launches] == [DepthwiseLines]
    _agree(native, "conv_dgrad", attrs, [dy, w])
    [got] = native.run([dy, w])
    monkeypatch.setattr(depthwise_lines, "_MAX_TAPS", 0)
    [product] = Native(node).run([dy, w])
    assert got.tobytes() == product.tobytes()


def test_long_windows_and_many_border_vectors_are_products() -> None:
    for size, taps, pad, dilation in ((400, 65, 32, 1), (4000, 9, 1000, 250), (10_000, 3, 1, 1)):
        x, w = np.zeros((1, 2, size), np.float32), np.zeros((2, 1, taps), np.float32)
        attrs = {"stride": (1,), "pad": (pad,), "dilation": (dilation,), "groups": 2}
        launches = Native(Builder().node(OPS["conv"], *values_of([x, w]), **attrs)).launches
        assert not any(isinstance(launch.spec, DepthwiseLines) for launch in launches)


@pytest.mark.parametrize(("case", "dtype"), thinned(((c, d) for c in PATCHES for d in ("f4", "f8")), 2))
def test_the_input_of_patches(case: tuple[Any, ...], dtype: str, fuzz_seed: int) -> None:
    groups, channels, out, size, kernel = case
    rng = np.random.default_rng(fuzz_seed)
    dy = rng.standard_normal((2, groups * out, *(n // k for n, k in zip(size, kernel)))).astype(dtype)
    w = rng.standard_normal((groups * out, channels, *kernel)).astype(dtype)
    attrs = _attrs(len(size), kernel, 0, 1, groups, size)
    native = Native(Builder().node(OPS["conv_dgrad"], *values_of([dy, w]), **attrs))
    assert sum(isinstance(launch.spec, Contraction) for launch in native.launches) == 1
    _agree(native, "conv_dgrad", attrs, [dy, w])
