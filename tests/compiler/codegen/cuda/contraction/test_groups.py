"""Convolutions with groups of few channels and their gradients, as compiled, thread by thread, against f64."""

from __future__ import annotations

from itertools import product
from math import prod
from random import Random
from typing import Any, Final

import numpy as np
import pytest
from gpu_kernels.convolutions import KINDS, ROUNDING, convolution, drawn_windows
from gpu_kernels.on_ptx_machine import on_machine
from op_laws.evaluation import apply
from thinning import taken

from dslc.compiler.codegen.cuda.contraction import groups as kernels
from dslc.compiler.codegen.cuda.contraction.groups import GroupedConvolution, GroupedSums
from dslc.compiler.codegen.cuda.contraction.kernel import AddParts
from dslc.compiler.codegen.cuda.lower import lower
from dslc.compiler.codegen.cuda.variants import variants
from dslc.compiler.ir.types import DType

HALF: Final = (DType.BF16, DType.F16)
SQUARE: Final = {"taps": (3, 3), "stride": (1, 1), "pad": (1, 1), "dilation": (1, 1)}


def specs_of(kind: str, sizes: dict[str, Any], dtype: DType = DType.BF16, last: bool = True) -> list[Any]:
    return [launch.spec for launch in lower(convolution(kind, last, dtype, sizes, 0)[0]) or []]


def right(kind: str, dtype: DType, sizes: dict[str, Any], seed: int = 0) -> None:
    """The kernels' result, within some roundings of the reference in f64."""
    node, xs = convolution(kind, True, dtype, sizes, seed)
    wanted_specs: list[type] = [GroupedSums, AddParts]
    if kind != "conv_wgrad":
        wanted_specs = [GroupedConvolution] * (prod(sizes["stride"]) if kind == "conv_dgrad" else 1)
    assert [type(launch.spec) for launch in lower(node) or []] == wanted_specs
    [wanted] = apply(node.op, [v.astype(np.float64) for v in xs], dict(node.attrs))
    [got] = on_machine(node, xs)
    scale = np.abs(wanted).max(initial=1.0)
    assert np.abs(got.astype(np.float64) - wanted).max(initial=0.0) <= 2 * ROUNDING[dtype] * scale


@pytest.mark.parametrize(("kind", "dtype"), taken(product(KINDS, HALF), 3))
def test_the_kernels_agree_with_the_reference(kind: str, dtype: DType, fuzz_seed: int) -> None:
    rng = Random(f"{fuzz_seed} {kind} {dtype}")
    sizes = drawn_windows(rng, rng.choice((1, 2)))
    while np.prod(sizes["taps"]) == 1:
        sizes = drawn_windows(rng, len(sizes["taps"]))
    if kind == "conv_dgrad":  # each class of pixels has a tap
        sizes["stride"] = tuple(map(min, sizes["stride"], sizes["taps"], sizes["space"]))
        sizes["dilation"] = tuple(1 if s > 1 else d for s, d in zip(sizes["stride"], sizes["dilation"]))
    into, out = rng.choice(((8, 8), (16, 16), (24, 8), (8, 24)))
    right(kind, dtype, sizes | {"groups": 2, "into": 2 * into, "out": 2 * out}, fuzz_seed)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "windows",
    [
        {"space": (3, 4, 5), "taps": (1, 3, 2), "stride": (1, 1, 2), "pad": (0, 1, 0)},
        {"space": (5, 2, 3), "taps": (3, 1, 1), "stride": (2, 1, 1), "pad": (1, 0, 0)},
        {"space": (2, 3, 6), "taps": (1, 1, 3), "stride": (1, 1, 1), "pad": (0, 0, 2)},
        {"space": (2, 5, 3), "taps": (1, 3, 1), "stride": (1, 1, 1), "pad": (0, 1, 0)},
    ],
    ids=lambda windows: str(windows["taps"]),
)
def test_windows_of_one_place_leave_two_axes_of_three(kind: str, windows: dict[str, Any]) -> None:
    """Such volumes are more images, or their planes are lines, of the same memory."""
    sizes = {"batch": 2, "dilation": (1, 1, 1), "groups": 2, "into": 16, "out": 32, **windows}
    right(kind, DType.BF16, sizes)


def test_classes_of_pixels_have_kernels_of_their_own() -> None:
    sizes = {"batch": 1, "space": (7, 6), "groups": 2, "into": 16, "out": 32, **SQUARE}
    right("conv_dgrad", DType.BF16, sizes | {"stride": (2, 3)})


@pytest.mark.parametrize("kind", KINDS)
def test_a_block_goes_on_with_further_tiles(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of two images, whose tiles are not whole."""
    monkeypatch.setattr(kernels, "_BUSY_BLOCKS", 2)
    monkeypatch.setattr(kernels, "_BUSY_SUMS", 2)
    monkeypatch.setattr(kernels, "_PIXELS", (64,))
    sizes = {"batch": 3, "space": (5, 7), "groups": 2, "into": 16, "out": 16, **SQUARE}
    spec = specs_of(kind, sizes)[0]
    assert spec.geometry.grid[1] == 1 and spec.items == 3
    right(kind, DType.BF16, sizes)


@pytest.mark.slow
def test_the_sums_of_a_gradient_of_many_channels_are_shared_out() -> None:
    """Eight warps; each of all kinds has 40 channels, 16 and 16 and 8."""
    sizes = {"batch": 1, "space": (4, 5), "groups": 2, "into": 80, "out": 80, **SQUARE}
    assert specs_of("conv_wgrad", sizes)[0].geometry.block[0] == 256
    for kind in KINDS:
        right(kind, DType.BF16, sizes)


def test_a_tile_of_a_large_image() -> None:
    """8 x 16 pixels, of which neighbours read the same places; with a stride, as many as fit shared memory."""
    sizes = {"batch": 20, "space": (56, 56), "groups": 8, "into": 128, "out": 128, **SQUARE}
    [spec] = specs_of("conv", sizes)
    assert spec.tile in ((8, 16), (16, 8)) and spec.geometry.grid == (8, 132, 1)
    strided = sizes | {"stride": (2, 2), "batch": 64, "space": (28, 28), "groups": 32, "into": 512, "out": 512}
    for kind in ("conv", "conv_wgrad"):
        spec = specs_of(kind, strided)[0]
        assert isinstance(spec, GroupedConvolution | GroupedSums) and spec.geometry.shared_bytes <= 64 << 10


OTHERS: Final = {
    "channels first": ("conv", {}, DType.BF16, False),
    "f32": ("conv", {}, DType.F32, True),
    "no whole chunks": ("conv", {"into": 24, "out": 24}, DType.BF16, True),
    "one tap": ("conv", {"taps": (1, 1), "pad": (0, 0)}, DType.BF16, True),
    "a gradient of which pixels have no tap": ("conv_dgrad", {"stride": (2, 1), "dilation": (2, 1)}, DType.BF16, True),
    "no image": ("conv_wgrad", {"batch": 0}, DType.BF16, True),
    "many channels": ("conv", {"into": 256, "out": 256}, DType.BF16, True),
    "many channels of a gradient": ("conv_wgrad", {"into": 256, "out": 256}, DType.BF16, True),
    **{
        f"three axes, {taps}": (
            "conv",
            {"space": (2, 4, 4), "stride": stride, "dilation": (1, 1, 1), "pad": pad, "taps": taps},
            DType.BF16,
            True,
        )
        for taps, stride, pad in (
            ((3, 3, 3), (1, 1, 1), (1, 1, 1)),
            ((3, 1, 3), (1, 1, 1), (1, 0, 1)),
            ((1, 3, 3), (2, 1, 1), (0, 1, 1)),
            ((1, 3, 3), (1, 1, 1), (1, 1, 1)),
            ((3, 1, 1), (1, 1, 2), (1, 0, 0)),
        )
    },
}


@pytest.mark.parametrize("name", OTHERS)
def test_contractions_compute_others(name: str) -> None:
    kind, change, dtype, last = OTHERS[name]
    sizes: dict[str, Any] = {"batch": 1, "space": (4, 4), "groups": 2, "into": 32, "out": 32, **SQUARE}
    found = specs_of(kind, sizes | change, dtype, last)
    assert found and not any(isinstance(spec, GroupedConvolution | GroupedSums) for spec in found)
    assert isinstance(specs_of(kind, sizes)[0], GroupedConvolution | GroupedSums)


def test_tiles_are_variants() -> None:
    sizes = {"batch": 1, "space": (4, 4), "groups": 2, "into": 32, "out": 32, **SQUARE}
    for kind in KINDS:
        node, _ = convolution(kind, True, DType.BF16, sizes, 0)
        names = [name for name in variants(node) if name.startswith("tile=")]
        assert names, "a lock may choose tiles"
