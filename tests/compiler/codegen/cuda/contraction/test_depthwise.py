"""Depthwise convolutions and their gradients, as compiled, thread by thread, against the reference in f64."""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import product
from math import prod
from random import Random
from typing import Any

import numpy as np
import pytest
from gpu_kernels.convolutions import DTYPES, KINDS, ROUNDING, convolution, drawn_windows
from gpu_kernels.on_ptx_machine import on_machine
from gpu_kernels.sample_nodes import OPS
from op_laws.evaluation import apply, values_of
from thinning import taken

from dslc.compiler.codegen.cuda.contraction.depthwise import Depthwise, DepthwiseSums
from dslc.compiler.codegen.cuda.contraction.direct import depthwise_shape
from dslc.compiler.codegen.cuda.contraction.kernel import AddParts
from dslc.compiler.codegen.cuda.contraction.lower import tiled_problem
from dslc.compiler.codegen.cuda.contraction.windows import Shape
from dslc.compiler.codegen.cuda.lower import lower
from dslc.compiler.codegen.device_model import H200, STATIC_SHARED_BYTES
from dslc.compiler.ir.graph import Node
from dslc.compiler.ir.op import Builder
from dslc.compiler.ir.types import DType

MODULE = "dslc.compiler.codegen.cuda.contraction.depthwise"
BUSY = 1024 * H200.multiprocessors  # threads


def drawn(rng: Random, axes: int) -> dict[str, Any]:
    """Sizes of a depthwise convolution over ``axes`` axes."""
    return {**drawn_windows(rng, axes), "channels": rng.choice((2, 3, 8, 16, 20))}


def node_of(
    kind: str, last: bool, dtype: DType, sizes: dict[str, Any], seed: int
) -> tuple[Node, list[np.ndarray[Any, Any]]]:
    channels = sizes["channels"]
    return convolution(kind, last, dtype, {**sizes, **dict.fromkeys(("into", "out", "groups"), channels)}, seed)


#: How many threads keep the device busy for each form of a small problem: only of one channel each there are few; of
#: whole loads there are enough, but not of several neighbours; there are enough of any.
FORMS = ("one channel", "loads", "neighbours")


def take_form(form: str, node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sets the threads that keep the device busy, so that the kernel of a small convolution has this form."""
    shape = depthwise_shape(node)
    assert shape is not None
    spec = Depthwise(shape, node.op.name.startswith("conv_dgrad"))
    busy = {"one channel": BUSY, "loads": spec.wide_threads, "neighbours": 1}[form]
    monkeypatch.setattr(f"{MODULE}._BUSY_THREADS", busy)


def right(kind: str, last: bool, dtype: DType, sizes: dict[str, Any], seed: int = 0) -> None:
    node, xs = node_of(kind, last, dtype, sizes, seed)
    specs = [launch.spec for launch in lower(node) or []]
    assert [type(s) for s in specs] == ([DepthwiseSums, AddParts] if kind == "conv_wgrad" else [Depthwise])
    assert tiled_problem(node) is None
    [wanted] = apply(node.op, [v.astype(np.float64) for v in xs], dict(node.attrs))
    [got] = on_machine(node, xs)
    scale = np.abs(wanted).max(initial=1.0)
    assert np.abs(got.astype(np.float64) - wanted).max(initial=0.0) <= 2 * ROUNDING[dtype] * scale


@pytest.mark.parametrize(("kind", "last", "dtype", "form"), taken(product(KINDS, (False, True), DTYPES, FORMS), 8))
def test_the_kernels_agree_with_the_reference(
    kind: str, last: bool, dtype: DType, form: str, fuzz_seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = Random(f"{fuzz_seed} {kind} {last} {dtype}")
    sizes = drawn(rng, rng.choice((1, 2, 2, 3)))
    take_form(form, node_of(kind, last, dtype, sizes, fuzz_seed)[0], monkeypatch)
    right(kind, last, dtype, sizes, fuzz_seed)


#: Shapes of published models, small: what a thread holds depends on these taps, strides and dilations.
NAMED = {
    "mobilenet": {"taps": (3, 3), "stride": (1, 1), "pad": (1, 1), "dilation": (1, 1), "space": (7, 9)},
    "mobilenet, stride 2": {"taps": (3, 3), "stride": (2, 2), "pad": (1, 1), "dilation": (1, 1), "space": (8, 7)},
    "efficientnet": {"taps": (5, 5), "stride": (2, 2), "pad": (2, 2), "dilation": (1, 1), "space": (9, 9)},
    "convnext": {"taps": (7, 7), "stride": (1, 1), "pad": (3, 3), "dilation": (1, 1), "space": (7, 7)},
    "conformer": {"taps": (15,), "stride": (1,), "pad": (7,), "dilation": (1,), "space": (20,)},
    "wavenet": {"taps": (2,), "stride": (1,), "pad": (0,), "dilation": (8,), "space": (30,)},
    "stride 4": {"taps": (3, 3), "stride": (4, 4), "pad": (1, 1), "dilation": (1, 1), "space": (9, 10)},
    "chunks of lines": {"taps": (9, 9), "stride": (1, 1), "pad": (4, 4), "dilation": (1, 1), "space": (5, 6)},
    "stride without taps": {"taps": (1, 1), "stride": (3, 3), "pad": (0, 0), "dilation": (1, 1), "space": (7, 8)},
}


@pytest.mark.parametrize(("kind", "name"), taken(product(KINDS, NAMED), 5))
def test_shapes_of_published_models(kind: str, name: str) -> None:
    right(kind, True, DType.BF16, {"batch": 2, "channels": 10, **NAMED[name]})


@pytest.mark.parametrize(("kind", "name", "dtype"), taken(product(KINDS[:2], NAMED, (DType.BF16, DType.F32)), 5))
def test_all_forms_have_the_same_bits(kind: str, name: str, dtype: DType, monkeypatch: pytest.MonkeyPatch) -> None:
    node, xs = node_of(kind, True, dtype, {"batch": 1, "channels": 8, **NAMED[name]}, 1)
    found = []
    for form in FORMS:
        take_form(form, node, monkeypatch)
        found.append(on_machine(node, xs)[0])
    assert np.array_equal(found[0], found[1]) and np.array_equal(found[0], found[2])


#: Channels, size, window and stride of depthwise convolutions of ConvNeXt-T, EfficientNet-B0 and MobileNetV2.
LAYERS = ((96, 56, 7, 1), (768, 7, 7, 1), (144, 56, 5, 2), (672, 14, 5, 1), (32, 112, 3, 1), (960, 7, 3, 1))


def layer(batch: int, channels: int, size: int, taps: int, stride: int = 1, last: bool = True) -> Shape:
    count, edge = size // stride, taps // 2
    window = ((1, taps, taps), (1, stride, stride), (0, edge, edge), (1, 1, 1))
    return Shape(batch, channels, (1, size, size), (1, count, count), *window, DType.BF16, last)


@pytest.mark.parametrize(("channels", "size", "taps", "stride"), LAYERS)
def test_threads_of_one_image_take_one_channel(channels: int, size: int, taps: int, stride: int) -> None:
    """And read lines before their products; those of many images take whole loads, or half of them, as they did."""
    few, many = (Depthwise(layer(batch, channels, size, taps, stride), False) for batch in (1, 128))
    assert (few.few, few.lanes, few.ahead, few.together) == (True, 1, False, taps)
    assert (many.few, many.lanes, many.together) == (False, 4 if many.ahead else 8, 1)
    threads = prod(few.geometry.grid) * few.geometry.block[0]
    assert threads >= min(BUSY, 8 * few.wide_threads) and few.wide_threads < BUSY <= many.wide_threads


def test_threads_of_one_small_plane_read_lines_before_products() -> None:
    small, large = (Depthwise(layer(1, 384, size, 7, last=False), False) for size in (7, 56))
    assert (small.few, small.together, large.few, large.together) == (True, 7, False, 1)


def test_a_gradient_that_skips_lines_keeps_whole_loads() -> None:
    shape = layer(1, 96, 56, 3, 2)
    assert not Depthwise(shape, True).few and Depthwise(shape, False).few


def test_taps_of_a_channel_lie_in_different_banks() -> None:
    """When they are written: 32 banks, each of 4 bytes; vectors of weights stay in line."""
    for channels, taps, dtype in product((6, 8, 96, 384), (3, 7, 31), (DType.BF16, DType.F32)):
        for batch in (1, 512):
            spec = Depthwise(replace(layer(batch, channels, 14, taps), dtype=dtype), False)
            row = int(re.findall(r"ROW = (\d+)", spec.code.text)[0])
            unit = min(spec.lanes, 4)
            assert row % unit == 0 and len({tap * row % 32 for tap in range(32)}) == 32 // unit
            assert spec.lanes <= row and taps * taps * row * 4 <= STATIC_SHARED_BYTES


@pytest.mark.parametrize("kind", KINDS)
def test_threads_of_half_the_channels_read_lines_ahead(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As for large images in 16 bits: with full loads and many taps, threads would hold too many registers."""
    monkeypatch.setattr(f"{MODULE}._BUSY_THREADS", 1)
    sizes = {
        "taps": (5, 5),
        "stride": (1, 1),
        "pad": (2, 2),
        "dilation": (1, 1),
        "space": (6, 9),
        "batch": 1,
        "channels": 16,
    }
    spec = (lower(node_of(kind, True, DType.BF16, sizes, 0)[0]) or [])[0].spec
    assert isinstance(spec, Depthwise | DepthwiseSums) and spec.ahead
    assert (spec.lanes, spec.pixels) == ((1, 8) if kind == "conv_wgrad" else (4, 4))
    right(kind, True, DType.BF16, sizes)


@pytest.mark.slow
@pytest.mark.parametrize("back", [False, True])
def test_threads_of_many_pixels(back: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a large image: a thread computes several neighbours."""
    monkeypatch.setattr(f"{MODULE}._BUSY_THREADS", 1)
    for name, last in product(("mobilenet", "mobilenet, stride 2", "convnext"), (False, True)):
        sizes = {"batch": 1, "channels": 8, **NAMED[name]}
        kind = "conv_dgrad" if back else "conv"
        spec = (lower(node_of(kind, last, DType.BF16, sizes, 0)[0]) or [])[0].spec
        assert isinstance(spec, Depthwise) and spec.pixels == 4
        right(kind, last, DType.BF16, sizes)


@pytest.mark.slow
def test_many_lines_of_taps_are_shared_out() -> None:
    """The gradient of a large filter: no thread holds the sums of all taps."""
    sizes = {"taps": (11, 13), "stride": (1, 1), "pad": (5, 6), "dilation": (1, 1), "space": (6, 9)}
    shape = depthwise_shape(node_of("conv_wgrad", True, DType.F32, {"batch": 1, "channels": 3, **sizes}, 0)[0])
    assert shape is not None and DepthwiseSums(shape).geometry.grid[2] == 3
    right("conv_wgrad", True, DType.F32, {"batch": 1, "channels": 3, **sizes})
    right("conv", True, DType.F32, {"batch": 1, "channels": 3, **sizes})


def test_parts_of_the_sum_fill_the_device() -> None:
    shape = Shape(128, 96, (1, 56, 56), (1, 56, 56), (1, 3, 3), (1, 1, 1), (0, 1, 1), (1, 1, 1), DType.BF16, True)
    sums = DepthwiseSums(shape)
    assert sums.geometry.grid == (2, 264, 1) and sums.geometry.block[0] == 192


@pytest.mark.parametrize("groups", [1, 2])
def test_other_convolutions_are_contractions(groups: int) -> None:
    x, w = values_of([np.zeros((1, 4, 5, 5), np.float32), np.zeros((8, 4 // groups, 3, 3), np.float32)])
    node = Builder(name="here").node(OPS["conv"], x, w, groups=groups, stride=(1, 1), pad=(1, 1), dilation=(1, 1))
    assert depthwise_shape(node) is None and tiled_problem(node) is not None
