"""Depthwise convolutions and their gradients, as compiled, thread by thread, against the reference in f64."""

from __future__ import annotations

from itertools import product
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
from dslc.compiler.codegen.cuda.contraction.direct import depthwise
from dslc.compiler.codegen.cuda.contraction.kernel import AddParts
from dslc.compiler.codegen.cuda.contraction.lower import tiled
from dslc.compiler.codegen.cuda.contraction.windows import Shape
from dslc.compiler.codegen.cuda.lower import lower
from dslc.compiler.ir.graph import Node
from dslc.compiler.ir.op import Builder
from dslc.compiler.ir.types import DType


def drawn(rng: Random, axes: int) -> dict[str, Any]:
    """Sizes of a depthwise convolution over ``axes`` axes."""
    return {**drawn_windows(rng, axes), "channels": rng.choice((2, 3, 8, 16, 20))}


def node_of(
    kind: str, last: bool, dtype: DType, sizes: dict[str, Any], seed: int
) -> tuple[Node, list[np.ndarray[Any, Any]]]:
    channels = sizes["channels"]
    return convolution(kind, last, dtype, {**sizes, **dict.fromkeys(("into", "out", "groups"), channels)}, seed)


def right(kind: str, last: bool, dtype: DType, sizes: dict[str, Any], seed: int = 0) -> None:
    node, xs = node_of(kind, last, dtype, sizes, seed)
    specs = [launch.spec for launch in lower(node) or []]
    assert [type(s) for s in specs] == ([DepthwiseSums, AddParts] if kind == "conv_wgrad" else [Depthwise])
    assert tiled(node) is None
    [wanted] = apply(node.op, [v.astype(np.float64) for v in xs], dict(node.attrs))
    [got] = on_machine(node, xs)
    scale = np.abs(wanted).max(initial=1.0)
    assert np.abs(got.astype(np.float64) - wanted).max(initial=0.0) <= 2 * ROUNDING[dtype] * scale


@pytest.mark.parametrize(("kind", "last", "dtype"), taken(product(KINDS, (False, True), DTYPES), 5))
def test_the_kernels_agree_with_the_reference(kind: str, last: bool, dtype: DType, fuzz_seed: int) -> None:
    rng = Random(f"{fuzz_seed} {kind} {last} {dtype}")
    right(kind, last, dtype, drawn(rng, rng.choice((1, 2, 2, 3))), fuzz_seed)


#: Shapes of published models, small: what a thread holds depends on these taps, strides and dilations.
NAMED = {
    "mobilenet": {"taps": (3, 3), "stride": (1, 1), "pad": (1, 1), "dilation": (1, 1), "space": (7, 9)},
    "mobilenet, stride 2": {"taps": (3, 3), "stride": (2, 2), "pad": (1, 1), "dilation": (1, 1), "space": (8, 7)},
    "efficientnet": {"taps": (5, 5), "stride": (2, 2), "pad": (2, 2), "dilation": (1, 1), "space": (9, 9)},
    "convnext": {"taps": (7, 7), "stride": (1, 1), "pad": (3, 3), "dilation": (1, 1), "space": (7, 7)},
    "conformer": {"taps": (15,), "stride": (1,), "pad": (7,), "dilation": (1,), "space": (20,)},
    "wavenet": {"taps": (2,), "stride": (1,), "pad": (0,), "dilation": (8,), "space": (30,)},
    "stride 4": {"taps": (3, 3), "stride": (4, 4), "pad": (1, 1), "dilation": (1, 1), "space": (9, 10)},
    "stride without taps": {"taps": (1, 1), "stride": (3, 3), "pad": (0, 0), "dilation": (1, 1), "space": (7, 8)},
}


@pytest.mark.parametrize(("kind", "name"), taken(product(KINDS, NAMED), 5))
def test_shapes_of_published_models(kind: str, name: str) -> None:
    right(kind, True, DType.BF16, {"batch": 2, "channels": 10, **NAMED[name]})


@pytest.mark.parametrize("kind", KINDS)
def test_threads_of_half_the_channels_read_lines_ahead(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As for large images in 16 bits: with full loads and many taps, threads would hold too many registers."""
    monkeypatch.setattr("dslc.compiler.codegen.cuda.contraction.depthwise._BUSY_THREADS", 1)
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
    monkeypatch.setattr("dslc.compiler.codegen.cuda.contraction.depthwise._BUSY_THREADS", 1)
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
    shape = depthwise(node_of("conv_wgrad", True, DType.F32, {"batch": 1, "channels": 3, **sizes}, 0)[0])
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
    assert depthwise(node) is None and tiled(node) is not None
