"""Convolutions between few channels and many, and their gradients, as compiled, thread by thread, against f64."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from random import Random
from typing import Any, Final

import numpy as np
import pytest
from gpu_kernels.convolutions import DTYPES, KINDS, ROUNDING, convolution, drawn_windows
from gpu_kernels.on_ptx_machine import on_machine
from gpu_kernels.sample_nodes import OPS
from op_laws.evaluation import apply, values_of
from real_gpu.vendor_cases import convolution as node_of_sizes
from thinning import taken

from dslc.compiler.codegen.cuda.contraction import few_channels as kernels
from dslc.compiler.codegen.cuda.contraction import few_channels_sums as sums_kernel
from dslc.compiler.codegen.cuda.contraction.direct import few_channels_kernel, prefers_direct
from dslc.compiler.codegen.cuda.contraction.few_channels import FromFew, ToFew
from dslc.compiler.codegen.cuda.contraction.few_channels_sums import FewSums
from dslc.compiler.codegen.cuda.contraction.kernel import AddParts, Contract
from dslc.compiler.codegen.cuda.contraction.lower import FEW_CHANNELS
from dslc.compiler.codegen.cuda.lower import lower
from dslc.compiler.codegen.cuda.variants import lower_variant, variants
from dslc.compiler.ir.choice import Choice
from dslc.compiler.ir.graph import Node
from dslc.compiler.ir.op import Builder
from dslc.compiler.ir.types import DType, TensorType
from dslc.compiler.ops.spatial import few_channels as rule
from dslc.compiler.ops.spatial.few_channels import is_of_few_channels

WAYS: Final = ("to", "from")


@pytest.fixture(autouse=True)
def of_small_images(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also few places have the kernels, blocks compute several pieces, first layers may be large, and no gradient for
    weights is faster by tiles."""
    monkeypatch.setattr(rule, "_MIN_PLACES", 1)
    monkeypatch.setattr(rule, "_MOST_FIRST", 1000)
    monkeypatch.setattr(rule, "_MOST_FIRST_STRIDE", 8)
    monkeypatch.setattr(kernels, "_MOST_BLOCKS", 2)
    monkeypatch.setattr(sums_kernel, "_START", -1.0)


def right(kind: str, last: bool, dtype: DType, sizes: dict[str, Any], seed: int = 0) -> None:
    """The kernels' result, within some roundings of the reference in f64, and the same bits twice."""
    node, xs = convolution(kind, last, dtype, sizes, seed)
    to_few = (sizes["out"] < sizes["into"]) == (kind == "conv")
    wanted_specs = [FewSums, AddParts] if kind == "conv_wgrad" else [ToFew if to_few else FromFew]
    assert [type(launch.spec) for launch in lower(node) or []] == wanted_specs
    [wanted] = apply(node.op, [v.astype(np.float64) for v in xs], dict(node.attrs))
    [got] = on_machine(node, xs)
    scale = np.abs(wanted).max(initial=1.0)
    assert np.abs(got.astype(np.float64) - wanted).max(initial=0.0) <= 2 * ROUNDING[dtype] * scale


def channels(rng: Random, way: str) -> dict[str, int]:
    few, many = rng.randint(1, 4), rng.choice((5, 8, 16, 20, 40))
    return {"into": many, "out": few} if way == "to" else {"into": few, "out": many}


@pytest.mark.parametrize(("kind", "way", "last", "dtype"), taken(product(KINDS, WAYS, (False, True), DTYPES), 5))
def test_the_kernels_agree_with_the_reference(
    kind: str, way: str, last: bool, dtype: DType, fuzz_seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rule, "_MOST_ON_CORES", 1 << 20)  # in 16 bits, tiles compute what has more weights
    rng = Random(f"{fuzz_seed} {kind} {way} {last} {dtype}")
    drawn = (drawn_windows(rng, rng.choice((1, 1, 2, 3))) | channels(rng, way) for _ in range(100))
    # first layers whose taps are packed have kernels of their own: test_packed_taps.py
    sizes = next(each for each in drawn if not rule.packs_taps(convolution(kind, last, dtype, each, fuzz_seed)[0]))
    right(kind, last, dtype, sizes, fuzz_seed)


#: Shapes of published models, small: what a thread holds depends on these taps, strides and dilations.
NAMED: Final = {
    "waveform critic": {"taps": (15,), "stride": (1,), "pad": (7,), "dilation": (1,), "space": (21,)},
    "tasnet": {"taps": (16,), "stride": (8,), "pad": (0,), "dilation": (1,), "space": (48,)},
    "generator": {"taps": (3, 3), "stride": (1, 1), "pad": (1, 1), "dilation": (1, 1), "space": (4, 9)},
    "dcgan": {"taps": (4, 4), "stride": (2, 2), "pad": (1, 1), "dilation": (1, 1), "space": (6, 8)},
    "mask": {"taps": (1, 1), "stride": (1, 1), "pad": (0, 0), "dilation": (1, 1), "space": (5, 7)},
    "volume": {"taps": (3, 3, 3), "stride": (1, 1, 1), "pad": (1, 1, 1), "dilation": (1, 1, 1), "space": (2, 3, 4)},
}


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "name"), taken(product(KINDS, NAMED), 1))
def test_threads_of_many_places(kind: str, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As of large images and long sound: a thread computes several neighbours."""
    monkeypatch.setattr(kernels, "_BUSY_THREADS", 1)
    monkeypatch.setattr(rule, "_MOST_ON_CORES", 1 << 20)  # in 16 bits, tiles compute what has more weights
    for way, last, dtype in product(WAYS, (False, True), (DType.F32, DType.BF16)):
        sizes = {"batch": 1, **NAMED[name], **({"into": 16, "out": 3} if way == "to" else {"into": 1, "out": 12})}
        spec = (lower(convolution(kind, last, dtype, sizes, 0)[0]) or [])[0].spec
        assert isinstance(spec, ToFew | FromFew | FewSums) and spec.pixels >= 4
        right(kind, last, dtype, sizes)


@pytest.mark.parametrize(("way", "last"), taken(product(WAYS, (False, True)), 2))
def test_a_block_goes_on_with_further_pieces(way: str, last: bool) -> None:
    few = {"into": 8, "out": 1} if way == "to" else {"into": 1, "out": 8}
    sizes = {"taps": (2,), "stride": (1,), "pad": (1,), "dilation": (1,), "space": (330,), "batch": 2, **few}
    spec = few_channels_kernel(convolution("conv", last, DType.F32, sizes, 0)[0])
    assert isinstance(spec, ToFew | FromFew) and spec.geometry.grid[0] * spec.rows < spec.items
    right("conv", last, DType.F32, sizes)


@pytest.mark.slow
def test_weights_that_exceed_shared_memory_come_in_turns() -> None:
    sizes = {"taps": (9, 9), "stride": (1, 1), "pad": (4, 4), "dilation": (1, 1), "space": (2, 3)}
    sizes |= {"batch": 1, "into": 40, "out": 4}
    for last in (False, True):
        spec = few_channels_kernel(convolution("conv", last, DType.F32, sizes, 0)[0])
        assert isinstance(spec, ToFew) and spec.kept < 40
        right("conv", last, DType.F32, sizes)


def product_of(rows: int, inner: int, columns: int, way: str, dtype: DType) -> tuple[Node, list[np.ndarray[Any, Any]]]:
    """x ``[rows, inner]`` times w ``[inner, columns]``, or ``turned`` the transpose of w; ``sums``: the transpose of x
    times dy ``[rows, columns]``."""
    shapes = {"plain": ((inner, columns),), "turned": ((columns, inner),), "sums": ((rows, columns),)}[way]
    rng = np.random.default_rng(rows)
    xs = [rng.normal(size=shape).astype(np.float32) for shape in ((rows, inner), *shapes)]
    xs = [(v.view(np.uint32) & np.uint32(0xFFFF0000)).view(np.float32) for v in xs]
    values = [replace(v, type=TensorType(dtype, v.type.shape)) for v in values_of(xs)]
    turned = {"transpose_a": way == "sums", "transpose_b": way == "turned"}
    return Builder(name="here").node(OPS["matmul"], *values, **turned), xs


@pytest.mark.parametrize(("way", "few", "dtype"), taken(
    product(("plain", "turned", "sums"), ("inner", "columns"), (DType.F32, DType.BF16)), 3
))  # fmt: skip
def test_products_of_few_columns(way: str, few: str, dtype: DType) -> None:
    node, xs = product_of(43, *((3, 12) if few == "inner" else (12, 3)), way, dtype)
    spec = (lower(node) or [])[0].spec
    assert type(spec) is (FewSums if way == "sums" else FromFew if few == "inner" else ToFew)
    [wanted] = apply(node.op, [v.astype(np.float64) for v in xs], dict(node.attrs))
    [got] = on_machine(node, xs)
    assert np.abs(got.astype(np.float64) - wanted).max() <= 2 * ROUNDING[dtype] * np.abs(wanted).max()


def test_products_of_few_rows_or_of_many_columns_are_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    for rows, columns, few in ((1 << 16, 3, True), (1 << 16, 5, False), (64, 3, False)):
        assert is_of_few_channels(product_of(rows, 64, columns, "turned", DType.BF16)[0]) is few


WAVE: Final = {"taps": (3,), "stride": (1,), "pad": (1,), "dilation": (1,), "space": (40,), "batch": 2}


@pytest.mark.parametrize(("into", "out", "dtype", "few"), [
    (1, 64, DType.F32, True), (64, 3, DType.BF16, True), (5, 64, DType.F32, False), (64, 5, DType.BF16, False),
])  # fmt: skip
def test_what_is_of_few_channels(into: int, out: int, dtype: DType, few: bool) -> None:
    for kind in KINDS:
        node, _ = convolution(kind, True, dtype, {**WAVE, "into": into, "out": out}, 0)
        assert is_of_few_channels(node) is few


def test_many_products_in_16_bits_are_for_tensor_cores() -> None:
    sizes = {**WAVE, "into": 3, "out": 60, "taps": (31,), "pad": (15,)}
    plain = convolution("conv", True, DType.F32, sizes, 0)[0]
    assert is_of_few_channels(plain) and not is_of_few_channels(plain, on_cores=True)
    assert not is_of_few_channels(plain.replaced(attrs={**plain.attrs, "tf32": True}))
    node, _ = convolution("conv", True, DType.BF16, sizes, 0)
    assert not is_of_few_channels(node) and FEW_CHANNELS in variants(node)
    [launch] = lower_variant(node, Choice("own", FEW_CHANNELS)) or []
    assert isinstance(launch.spec, FromFew)


def test_first_layers_of_long_strides_or_many_products_are_for_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    sizes = {**WAVE, "into": 1, "out": 64, "space": (4000,)}
    for taps, stride, few in ((3, 1, True), (16, 2, True), (16, 8, False), (45, 1, False)):
        node, _ = convolution("conv", True, DType.F32, {**sizes, "taps": (taps,), "stride": (stride,)}, 0)
        assert is_of_few_channels(node) is few


def test_tiles_are_variants_of_the_kernels() -> None:
    node, _ = convolution("conv", False, DType.F32, {**WAVE, "into": 16, "out": 1}, 0)
    default, *others = variants(node)
    assert default == "" and FEW_CHANNELS not in others and any(name.startswith("tile=") for name in others)
    for name in others:
        launches = lower_variant(node, Choice("own", name)) or []
        assert launches and not any(isinstance(launch.spec, ToFew) for launch in launches)


@pytest.mark.parametrize(("into", "out", "taps", "runs"), [(7, 16, (3,), 2), (12, 6, (1, 2), 1), (13, 13, (5,), 5)])
def test_sums_of_more_channels_are_of_runs(into: int, out: int, taps: tuple[int, ...], runs: int) -> None:
    """The last run overlaps the one before it, whose sums count."""
    ones, twos = (1,) * len(taps), (2,) * len(taps)
    sizes = {"taps": taps, "stride": ones, "pad": ones, "dilation": twos, "space": (9,) * len(taps), "batch": 2}
    node, xs = convolution("conv_wgrad", False, DType.F32, {**sizes, "into": into, "out": out}, 0)
    spec = few_channels_kernel(node)
    assert isinstance(spec, FewSums) and spec.runs == runs
    [wanted] = apply(node.op, [v.astype(np.float64) for v in xs], dict(node.attrs))
    [got] = on_machine(node, xs, variant=FEW_CHANNELS)
    assert np.abs(got.astype(np.float64) - wanted).max() <= 2 * ROUNDING[DType.F32] * np.abs(wanted).max()


@pytest.mark.parametrize(("x", "w", "sums"), [
    ((16, 16, 16384), (16, 16, 5), True), ((32, 16, 64, 64), (32, 16, 3, 3), True),
    ((8, 64, 128, 128), (3, 64, 7, 7), True), ((16, 64, 56, 56), (64, 64, 3, 3), False),
    ((8, 8, 128, 128), (64, 8, 1, 1), False), ((16, 128, 28, 28), (128, 128, 3, 3), False),
])  # fmt: skip
def test_gradients_for_weights_in_f32_take_the_faster_kernels(
    x: tuple[int, ...], w: tuple[int, ...], sums: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As measured on an H200."""
    monkeypatch.undo()
    node = node_of_sizes("conv_wgrad", x, w, "f32", pad=[k // 2 for k in w[2:]])
    assert prefers_direct(node) is sums
    assert type((lower(node) or [])[0].spec) is (FewSums if sums else Contract)


def test_parts_of_the_sum_fill_the_device() -> None:
    sizes = {**WAVE, "into": 1, "out": 64, "batch": 16, "space": (8192,), "taps": (15,), "pad": (7,)}
    spec = few_channels_kernel(convolution("conv_wgrad", True, DType.BF16, sizes, 0)[0])
    assert isinstance(spec, FewSums)
    assert (spec.lanes, spec.pixels, spec.width, spec.count) == (4, 8, 16, 256)
