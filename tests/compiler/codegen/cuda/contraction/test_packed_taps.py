"""First layers in 16 bits and in TF32 as compiled: sums over taps with their few channels on tensor cores."""

from __future__ import annotations

import re
from itertools import product
from pathlib import Path
from random import Random
from typing import Any, Final

import numpy as np
import pytest
from gpu_kernels.convolutions import ROUNDING, convolution, drawn_windows
from gpu_kernels.on_ptx_machine import on_machine
from gpu_kernels.sample_nodes import OPS
from op_laws.evaluation import apply, values_of
from thinning import taken

from dslc.compiler.check.model import check_file
from dslc.compiler.codegen.cuda.contraction import packed_taps as kernels
from dslc.compiler.codegen.cuda.contraction.direct import packed_taps_kernel
from dslc.compiler.codegen.cuda.contraction.kernel import AddParts
from dslc.compiler.codegen.cuda.contraction.lower import first_of
from dslc.compiler.codegen.cuda.contraction.packed_taps import PackedConv, PackedSums
from dslc.compiler.codegen.cuda.libraries.library import NoCall
from dslc.compiler.codegen.cuda.libraries.registry import library_call
from dslc.compiler.codegen.cuda.lower import lower
from dslc.compiler.ir.graph import Node
from dslc.compiler.ir.op import Builder
from dslc.compiler.ir.types import DType
from dslc.compiler.ops.spatial import few_channels as rule
from dslc.compiler.options import Options
from dslc.compiler.pipeline import compile_entry

KINDS: Final = ("conv", "conv_wgrad")
DTYPES: Final = (DType.BF16, DType.F16, DType.F32)  # f32: its factors are rounded to TF32


@pytest.fixture(autouse=True)
def of_small_images(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also few places have the kernels, and blocks compute several tiles."""
    monkeypatch.setattr(rule, "_MIN_PLACES", 1)
    monkeypatch.setattr(rule, "_MOST_FIRST", 0)
    monkeypatch.setattr(rule, "_MOST_ON_CORES", 0)
    monkeypatch.setattr(kernels, "_MULTIPROCESSORS", 1)


def layer(kind: str, dtype: DType, sizes: dict[str, Any], seed: int = 0) -> tuple[Node, list[np.ndarray[Any, Any]]]:
    node, xs = convolution(kind, True, dtype, sizes, seed)
    return node.replaced(attrs={**node.attrs, "tf32": True}) if dtype is DType.F32 else node, xs


def in_tf32(x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """f32 numbers rounded to the 10 bits of TF32, halves to even."""
    bits = x.view(np.uint32)
    return ((bits + 0xFFF + (bits >> 13 & 1)) & 0xFFFFE000).view(np.float32)


def right(kind: str, dtype: DType, sizes: dict[str, Any], seed: int = 0) -> None:
    """The kernels' result, within some roundings of the reference in f64: in TF32, of the rounded factors."""
    node, xs = layer(kind, dtype, sizes, seed)
    wanted_specs = [PackedConv] if kind == "conv" else [PackedSums, AddParts]
    assert [type(launch.spec) for launch in lower(node) or []] == wanted_specs
    factors = [in_tf32(v) if dtype is DType.F32 else v for v in xs]
    attrs = {name: value for name, value in node.attrs.items() if name != "tf32"}
    [wanted] = apply(node.op, [v.astype(np.float64) for v in factors], attrs)
    [got] = on_machine(node, xs)
    scale = np.abs(wanted).max(initial=1.0)
    assert np.abs(got.astype(np.float64) - wanted).max(initial=0.0) <= 2 * ROUNDING[dtype] * scale


@pytest.mark.parametrize(("kind", "dtype", "few"), taken(product(KINDS, DTYPES, (1, 2, 3, 4)), 4))
def test_the_kernels_agree_with_the_reference(kind: str, dtype: DType, few: int, fuzz_seed: int) -> None:
    rng = Random(f"{fuzz_seed} {kind} {dtype} {few}")
    right(kind, dtype, next(each for each in (drawn(rng, few) for _ in range(50)) if packs(each, dtype)), fuzz_seed)


def drawn(rng: Random, few: int) -> dict[str, Any]:
    sizes = drawn_windows(rng, rng.choice((1, 2, 2, 3)))
    *space, width = sizes["space"]
    changed = {"dilation": (1,) * len(sizes["taps"]), "space": (*space, width + rng.choice((2, 20)))}
    return sizes | changed | {"into": few, "out": rng.choice((16, 24, 40, 72))}


def packs(sizes: dict[str, Any], dtype: DType) -> bool:
    return packed_taps_kernel(layer("conv", dtype, sizes)[0]) is not None


#: First layers of published models, small.
NAMED: Final = {
    "resnet": {"taps": (7, 7), "stride": (2, 2), "pad": (3, 3), "dilation": (1, 1), "space": (37, 35), "out": 40},
    "mobilenet": {"taps": (3, 3), "stride": (2, 2), "pad": (1, 1), "dilation": (1, 1), "space": (24, 40), "out": 32},
    "unet": {"taps": (3, 3), "stride": (1, 1), "pad": (1, 1), "dilation": (1, 1), "space": (9, 33), "out": 48},
    "alexnet": {"taps": (11, 11), "stride": (4, 4), "pad": (2, 2), "dilation": (1, 1), "space": (19, 23), "out": 80},
    "video": {"taps": (3, 3, 3), "stride": (1, 2, 2), "pad": (1, 1, 1), "dilation": (1, 1, 1), "space": (4, 9, 17),
              "out": 16},
    "sound": {"taps": (80,), "stride": (4,), "pad": (38,), "dilation": (1,), "space": (900,), "out": 32},
}  # fmt: skip


@pytest.mark.parametrize(("kind", "name", "dtype"), taken(product(KINDS, NAMED, (DType.BF16, DType.F32)), 6))
def test_first_layers_of_published_models(kind: str, name: str, dtype: DType) -> None:
    sizes = {"batch": 2, "into": 1 if name == "sound" else 3, **NAMED[name]}
    # alexnet: 121 chunks of a window; both: more places than a tile has room for
    if name in ("alexnet", "video") and dtype is DType.F32:
        assert not packs(sizes, dtype)
    else:
        right(kind, dtype, sizes)


#: Channels, taps along both axes, and strides. Windows of 11 have room in TF32 if a chunk has several taps.
WINDOWS: Final = [
    (few, taps, stride)
    for few, taps, stride in product((1, 2, 3, 4), (3, 5, 7, 11), (1, 2, 4))
    if taps < 11 or few < 3
    if few < 3 or stride < 4
]


@pytest.mark.parametrize(("kind", "few", "taps", "stride"), taken(((k, *w) for k, w in product(KINDS, WINDOWS)), 12))
def test_windows_in_tf32(kind: str, few: int, taps: int, stride: int, fuzz_seed: int) -> None:
    rng = Random(f"{fuzz_seed} {kind} {few} {taps} {stride}")
    pad = rng.randint(0, taps // 2)
    space = tuple(max(1, taps - 2 * pad) + stride * rng.randint(0, 3) + odd for odd in (1, 12))
    sizes = {"into": few, "taps": (taps, taps), "stride": (stride, stride), "pad": (pad, pad), "dilation": (1, 1)}
    out, batch = (8, 1) if taps > 7 else (rng.choice((8, 24, 72)), 2)
    right(kind, DType.F32, {**sizes, "space": space, "out": out, "batch": batch}, fuzz_seed)


def test_windows_side_by_side_are_in_different_banks() -> None:
    """Eight windows begin at chunks of different banks of shared memory, of 16 bytes each: ldmatrix reads them at
    once."""
    for (few, taps, stride), dtype in product(WINDOWS, DTYPES):
        sizes = {"into": few, "taps": (taps, taps), "stride": (stride, stride), "pad": (1, 1), "dilation": (1, 1)}
        spec = packed_taps_kernel(layer("conv", dtype, {**sizes, "space": (64, 64), "out": 32, "batch": 1})[0])
        assert isinstance(spec, PackedConv)
        line = int(re.search(r"LINE = (\d+)", spec.code.text)[1])
        begins = [divmod(place * stride, spec.pair) for place in range(8)]
        step = spec.pair // spec.copies
        places = [tap // step * line + chunk // spec.phases for chunk, tap in begins]
        assert len({place % 8 for place in places}) == 8, (few, taps, stride, dtype)


@pytest.mark.parametrize(("kind", "dtype"), list(product(KINDS, (DType.BF16, DType.F32))))
def test_blocks_go_on_with_further_tiles(kind: str, dtype: DType) -> None:
    """Also with windows that begin between the runs of a tile."""
    few = 3 if dtype is DType.BF16 else 2
    sizes = {"batch": 2, "into": few, "out": 16, "taps": (3, 3), "stride": (1, 1), "pad": (1, 1), "dilation": (1, 1)}
    spec = packed_taps_kernel(layer(kind, dtype, sizes | {"space": (17, 20)})[0])
    assert spec is not None and spec.copies == 2 and spec.geometry.grid[0] < 2 * 3 * 2
    right(kind, dtype, sizes | {"space": (17, 20)})


def test_steps_after_a_sum_in_tf32() -> None:
    """They have the bits of f32 arithmetic after the sum."""
    sizes = {"batch": 1, "into": 3, "out": 24, "taps": (3, 3), "stride": (2, 2), "pad": (1, 1), "dilation": (1, 1)}
    plain, xs = layer("conv", DType.F32, sizes | {"space": (9, 11)})
    bias = np.linspace(-1, 1, 24, dtype=np.float32).reshape(1, 1, 1, 24)
    each = tuple(sorted((name, value) for name, value in plain.attrs.items() if name != "tf32"))
    attrs: dict[str, Any] = {"product": "conv_last", "each": each, "body": (("add", (0, 1), ()), ("relu", (2,), ()))}
    node = Builder(name="here").node(OPS["contraction"], *plain.inputs, *values_of([bias]), **attrs, tf32=True)
    [launch] = lower(node) or []
    assert isinstance(launch.spec, PackedConv) and launch.spec.epilogue is not None
    [sums], [got] = on_machine(plain, xs), on_machine(node, [*xs, bias])
    np.testing.assert_array_equal(got, np.maximum(sums + bias, np.float32(0)))


def test_a_gradient_of_large_windows_in_tf32_has_fewer_channels_at_a_time() -> None:
    """So that two tiles of the image and of the result's gradient have room."""
    sizes = {"into": 3, "out": 64, "taps": (7, 7), "pad": (3, 3), "dilation": (1, 1), "space": (64, 64), "batch": 1}
    for stride, cols in ((2, 64), (3, 32)):
        spec = packed_taps_kernel(layer("conv_wgrad", DType.F32, {**sizes, "stride": (stride, stride)})[0])
        assert isinstance(spec, PackedSums) and spec.cols == cols and spec.possible


def test_other_convolutions_have_none() -> None:
    def found(last: bool = True, dtype: DType = DType.BF16, tf32: bool = False, **changed: Any) -> object:
        node, _ = convolution("conv", last, dtype, {"batch": 1, "into": 3, **NAMED["resnet"], **changed}, 0)
        return packed_taps_kernel(node.replaced(attrs={**node.attrs, **({"tf32": True} if tf32 else {})}))

    assert isinstance(found(), PackedConv) and isinstance(found(dtype=DType.F32, tf32=True), PackedConv)
    assert found(dtype=DType.F32) is found(last=False) is found(into=5) is found(out=20) is None
    assert found(dilation=(1, 2)) is found(stride=(7, 7), pad=(0, 0)) is found(taps=(1, 1)) is None


_NET: Final = """nn 1
dim B in 1..64 = 64
model Net(x: [B, 3, 64, 64]) -> [B, 10] {
  return x |> conv(32, 3, stride=2, pad=1) |> relu |> mean(over=[2, 3]) |> linear(10)
}
train Net(label: i32[B]) {
  loss = mean(cross_entropy(output, label))
  optimizer = sgd(lr=0.1)
}
"""


@pytest.mark.parametrize(("precision", "found"), [("bf16", True), ("tf32", True), ("f32", False)])
def test_what_a_build_takes(precision: str, found: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No library computes what these kernels do."""
    monkeypatch.undo()
    path = tmp_path / "net.nn"
    path.write_text(_NET)
    options = Options(target="sm_90", provider="vendor", precision=precision)
    program, _ = compile_entry(check_file(str(path)), "train_step", {"B": 64}, options)
    firsts = [node for node in map(first_of, program.graph.nodes) if node.op.name.startswith("conv")]
    assert len(firsts) == 2
    for node in firsts:
        spec = (lower(node) or [])[0].spec
        assert isinstance(spec, PackedConv | PackedSums) is found
        assert not found or library_call(node, "sm_90") == NoCall("few channels")
