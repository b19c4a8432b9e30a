"""Contractions as calls of libraries: which nodes become one, and that the call says what the node means."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from places import MODELS
from thinning import thinned

from dslc.base.errors import BuildError
from dslc.cli.commands.build import _contractions
from dslc.compiler import pipeline
from dslc.compiler.artifact.plan import plan_of
from dslc.compiler.build_result import BuildResult
from dslc.compiler.cached_build import facts_of
from dslc.compiler.check.model import check_file
from dslc.compiler.codegen.cuda.libraries.cublaslt import VendorGemm
from dslc.compiler.codegen.cuda.libraries.cudnn import VendorConv
from dslc.compiler.codegen.cuda.libraries.library import MIN_WORK, WORKSPACE, NoCall
from dslc.compiler.codegen.cuda.libraries.registry import LIBRARIES, library_call
from dslc.compiler.codegen.launch import Launch, Scratch
from dslc.compiler.codegen.targets import target_of
from dslc.compiler.ir.choice import Choice
from dslc.compiler.ir.graph import Input, Kind, Node
from dslc.compiler.ir.op import Builder
from dslc.compiler.ir.types import DType, TensorType
from dslc.compiler.ops import registry
from dslc.compiler.ops.spatial.channels_last import to_first, to_last
from dslc.compiler.options import Options
from dslc.compiler.report.contractions import census
from dslc.runtime.artifact.instructions import Gemm, GraphOp
from dslc.runtime.artifact.plan import Plan
from dslc.runtime.artifact.plan_check import BlobInfo, check


def node(name: str, *shapes: tuple[int, ...], dtype: DType = DType.BF16, **attrs: Any) -> Node:
    values = [Input(f"x{i}", Kind.DATA, TensorType(dtype, s)).value for i, s in enumerate(shapes)]
    return Builder(name="sample").node(registry.ops()[name], *values, **attrs)


def matmul(a: tuple[int, ...], b: tuple[int, ...], ta: bool = False, tb: bool = False, **kind: Any) -> Node:
    return node("matmul", a, b, transpose_a=ta, transpose_b=tb, **kind)


def convolution(name: str, x: tuple[int, ...], w: tuple[int, ...], last: bool, **given: Any) -> Node:
    """``x`` and ``w`` with channels first; the op's own tensors follow from them."""
    axes = len(x) - 2
    attrs = {"stride": (1,) * axes, "pad": (0,) * axes, "dilation": (1,) * axes, "groups": 1}
    attrs |= {k: v for k, v in given.items() if k != "dtype"}
    dtype = given.get("dtype", DType.BF16)
    y = node("conv", x, w, dtype=dtype, **attrs).types[0].ints
    pair, size = {"conv": ((x, w), None), "conv_dgrad": ((y, w), x), "conv_wgrad": ((x, y), w)}[name]
    if size is not None:
        attrs["size"] = size[2:]
    if last:
        return node(f"{name}_last", *(tuple(s[a] for a in to_last(len(s))) for s in pair), dtype=dtype, **attrs)
    return node(name, *pair, dtype=dtype, **attrs)


def called(made: Node) -> Any:
    """The call; on the architecture on which small convolutions are calls, too."""
    found = library_call(made, "sm_80")
    assert isinstance(found, Launch), found
    assert found.reads == made.inputs and found.writes == (made.out, Scratch(0, found.spec.room))
    return found.spec


def by_numpy(spec: Any, first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """What a library is asked for, read from the call alone."""
    if isinstance(spec, VendorGemm):
        a, b = first.reshape(spec.a), second.reshape(spec.b)
        a, b = (x.swapaxes(-1, -2) if t else x for x, t in ((a, spec.transpose_a), (b, spec.transpose_b)))
        return np.matmul(a, b).reshape(spec.out)
    assert isinstance(spec, VendorConv)
    rank = len(spec.out)
    turn = (lambda x: x.transpose(to_first(rank))) if spec.last else (lambda x: x)
    images = [turn(x.reshape(shape)) for x, shape in zip((first, second), spec.inputs)]
    attrs = {"stride": spec.stride, "pad": spec.pad, "dilation": spec.dilation, "groups": spec.groups}
    out = spec.out if not spec.last else tuple(spec.out[a] for a in to_first(rank))
    if spec.kind != "conv":
        attrs["size"] = out[2:]
    [y] = registry.ops()[spec.kind].meaning(images, attrs)
    assert y.shape == out
    return y.transpose(to_last(rank)) if spec.last else y


MATMULS = [
    matmul((128, 96), (96, 112)),
    matmul((96, 128), (96, 112), ta=True),
    matmul((128, 96), (112, 96), tb=True),
    matmul((96, 128), (112, 96), ta=True, tb=True, dtype=DType.F64),
    matmul((3, 5, 64, 96), (96, 112), dtype=DType.F32),
    matmul((3, 5, 64, 96), (1, 1, 112, 96), tb=True, dtype=DType.F32),
    matmul((6, 96, 64), (96, 112), ta=True),
    matmul((96, 112), (4, 112, 64)),
    matmul((2, 3, 64, 96), (2, 3, 96, 112)),
    matmul((1, 1, 96, 64), (2, 3, 112, 96), ta=True, tb=True),
]
CONVS = [
    convolution(name, *sizes, last, dtype=dtype, **given)
    for name in ("conv", "conv_dgrad", "conv_wgrad")
    for last, dtype in ((True, DType.BF16), (False, DType.F32), (True, DType.F32))
    for sizes, given in [
        (((4, 16, 13, 15), (24, 16, 3, 5)), {"stride": (2, 1), "pad": (1, 2)}),
        (((16, 16, 14, 15), (24, 16, 3, 3)), {"stride": (2, 3), "dilation": (2, 1), "pad": (0, 3)}),
        (((4, 32, 150), (64, 32, 5)), {"stride": (2,), "pad": (1,), "dilation": (2,)}),
        (((2, 16, 7, 8, 9), (24, 16, 3, 2, 3)), {"stride": (1, 2, 1), "dilation": (1, 2, 2), "pad": (0, 1, 2)}),
        (((2, 32, 7, 8, 9), (64, 32, 1, 3, 3)), {"stride": (1, 2, 1), "dilation": (3, 1, 2), "pad": (0, 1, 2)}),
        (((2, 32, 7, 8, 9), (64, 32, 3, 1, 1)), {"stride": (2, 1, 1), "dilation": (2, 1, 1), "pad": (1, 0, 0)}),
        (((4, 32, 150), (64, 32, 5)), {"stride": (2,), "pad": (1,)}),
        (((2, 16, 7, 8, 9), (24, 16, 3, 2, 3)), {"stride": (1, 1, 1), "dilation": (1, 2, 2), "pad": (0, 1, 2)}),
        (((2, 32, 7, 8, 9), (64, 32, 3, 1, 1)), {"stride": (2, 1, 1), "pad": (1, 0, 0)}),
    ]
    if dtype is DType.BF16 or name != "conv_dgrad" or 1 in (max(given["stride"]), max(given.get("dilation", (1,))))
]


@pytest.mark.parametrize("made", [*MATMULS, *CONVS], ids=str)
def test_a_call_means_what_its_node_means(made: Node) -> None:
    rng = np.random.default_rng(5)
    xs = [rng.standard_normal(t.ints) for t in made.input_types]
    [expected] = made.op.meaning(xs, made.attrs)
    got = by_numpy(called(made), *xs).reshape(expected.shape)
    np.testing.assert_allclose(got, expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", ["conv", "conv_dgrad", "conv_wgrad"])
@pytest.mark.parametrize("last", [True, False])
def test_windows_of_one_place_join_two_axes_in_f32(name: str, last: bool) -> None:
    """(3, 1, 1) sees depth and plane, (1, 1, 3) plane and width; padded axes stay, and all of them in 16 bits."""
    image, deep = (2, 32, 6, 7, 8), (64, 32, 3, 1, 1)

    def asked(window: tuple[int, ...], dtype: DType = DType.F32, **given: Any) -> VendorConv:
        found = LIBRARIES["cudnn"].call(convolution(name, image, window, last, dtype=dtype, **given))
        assert isinstance(found, VendorConv)
        return found

    spec = asked(deep, stride=(2, 1, 1), pad=(1, 0, 0))
    assert (spec.stride, spec.pad, spec.dilation) == ((2, 1), (1, 0), (1, 1)) and 56 in spec.inputs[0]
    spec = asked((64, 32, 1, 1, 3), stride=(1, 1, 2), pad=(0, 0, 1))
    assert (spec.stride, spec.pad) == ((1, 2), (0, 1)) and 42 in spec.inputs[0]
    for window, pad in ((deep, (1, 1, 0)), ((64, 32, 1, 3, 3), (0, 1, 1)), ((64, 32, 1, 3, 1), (0, 1, 0))):
        assert len(asked(window, pad=pad).out) == 5
    if last:
        assert len(asked(deep, DType.BF16, pad=(1, 0, 0)).out) == 5


@pytest.mark.parametrize(
    ("made", "why"),
    [
        (matmul((64, 64), (64, 64)), "few multiply-adds"),
        (matmul((0, 64), (64, 1 << 20)), "few multiply-adds"),
        (matmul((2, 1, 128, 96), (1, 3, 96, 128)), "stacks that broadcast both ways"),
        (matmul((1 << 16, 1 << 15), (1 << 15, 8)), "2^31 elements"),
        (convolution("conv", (2, 16, 32, 32), (24, 8, 3, 3), True, groups=2), "groups"),
        (
            convolution("conv", (2, 12, 32, 32), (24, 12, 3, 3), True),
            "12 to 24 channels in bf16, not both multiples of 8",
        ),
        (
            convolution("conv_wgrad", (2, 16, 32, 32), (20, 16, 3, 3), True),
            "16 to 20 channels in bf16, not both multiples of 8",
        ),
        (convolution("conv_dgrad", (2, 16, 32, 32), (24, 16, 3, 3), False), "channels first in bf16"),
        (convolution("conv", (2, 16, 32, 32), (24, 16, 3, 3), False, dtype=DType.F64), "f64"),
        (convolution("conv", (2, 8, 9, 9, 9, 9), (8, 8, 3, 3, 3, 3), True), "4 spatial axes"),
        (convolution("conv", (1, 8, 9, 9), (8, 8, 3, 3), True), "few multiply-adds"),
        (convolution("conv", (2, 8, 32, 32), (64, 8, 3, 3), True), "few channels"),
        (convolution("conv_wgrad", (8, 8, 64, 64), (64, 8, 4, 4), True, stride=(4, 4)), "patches of few channels"),
        (convolution("conv", (2, 4, 32, 32), (64, 4, 3, 3), True, dtype=DType.F32, tf32=True), "few channels"),
        (convolution("conv_wgrad", (2, 4, 64, 64), (64, 4, 3, 3), True, dtype=DType.F32, tf32=True), "few channels"),
        *[
            (convolution(kind, image, weight, False, dtype=DType.F32, **more), "cuDNN is slow for such windows in f32")
            for kind, image, weight, more in [
                ("conv", (2, 32, 32, 32), (64, 32, 3, 7), {}),
                ("conv", (2, 32, 16, 16, 16), (64, 32, 5, 5, 5), {}),
                ("conv_dgrad", (2, 32, 4096), (64, 32, 7), {}),
                ("conv_dgrad", (2, 32, 64, 64), (64, 32, 3, 3), {"stride": (2, 2), "dilation": (2, 2), "tf32": True}),
            ]
        ],
        (node("relu", (1024, 1024)), None),
    ],
    ids=str,
)
def test_what_has_own_kernels(made: Node, why: str | None) -> None:
    assert library_call(made, "sm_90") == NoCall(why)


#: Own kernels compute them, unless a measurement says otherwise.
OWN_BY_DEFAULT = [
    convolution(name, *sizes, True, dtype=dtype, **given)
    for name in ("conv", "conv_dgrad", "conv_wgrad")
    for sizes, given, dtype in [
        (((4, 32, 15, 16), (48, 8, 3, 3)), {"groups": 4, "stride": (2, 1), "pad": (1, 0)}, DType.BF16),
        (((4, 32, 7, 8, 9), (64, 16, 3, 3, 3)), {"groups": 2, "pad": (1, 1, 1)}, DType.F16),
        (((4, 48, 15, 16), (48, 1, 5, 5)), {"groups": 48, "pad": (2, 2)}, DType.F32),
        (((4, 12, 32, 32), (20, 12, 3, 3)), {"dilation": (2, 1)}, DType.BF16),
        (((4, 3, 32, 32), (48, 3, 3, 3)), {"pad": (1, 1)}, DType.F32),
    ]
]


@pytest.mark.parametrize("dtype", [DType.BF16, DType.F32])
def test_long_sums_of_odd_rows_are_divided_by_own_kernels(dtype: DType) -> None:
    """In 16 bits; SIMT kernels of a library, in f32, read rows of any length."""

    def why(rows: int, left: int, right: int, transposed: bool = True) -> object:
        first = (rows, left) if transposed else (left, rows)
        return library_call(matmul(first, (rows, right), transposed, dtype=dtype), "sm_90")

    odd = [why(12_288, 21, 64), why(12_288, 64, 21), why(8192, 36, 20), why(4096, 63, 65, transposed=False)]
    assert {isinstance(found, NoCall) and "long sum" in str(found.why) for found in odd} == {dtype is DType.BF16}
    assert not any(isinstance(why(*n), NoCall) for n in ((12_288, 24, 64), (64, 2049, 2051), (8192, 2049, 2051)))


@pytest.mark.parametrize(("rows", "left", "right", "own"), [
    (6144, 64, 128, True), (4096, 512, 8, True), (65_536, 32, 16, True), (6144, 256, 64, True), (12_288, 21, 64, True),
    (16_384, 128, 128, False), (4096, 256, 256, False), (65_536, 512, 8, False),
])  # fmt: skip
def test_long_sums_for_small_results_in_tf32_are_divided_by_own_kernels(
    rows: int, left: int, right: int, own: bool
) -> None:
    tf32, f32 = (
        library_call(matmul((rows, left), (rows, right), True, dtype=DType.F32, **more), "sm_90")
        for more in ({"tf32": True}, {})
    )
    assert isinstance(tf32, NoCall) is own and not isinstance(f32, NoCall)


@pytest.mark.parametrize("made", OWN_BY_DEFAULT, ids=str)
def test_a_measured_choice_may_name_a_library_that_is_not_the_default(made: Node) -> None:
    target = target_of("sm_90", vendor=True)
    assert isinstance(library_call(made, "sm_90"), NoCall) and target.library(made) == "cudnn"
    [launch] = target.lower(made, Choice("cudnn"))  # type: ignore[misc]
    rng = np.random.default_rng(5)
    xs = [rng.standard_normal(t.ints) for t in made.input_types]
    [expected] = made.op.meaning(xs, made.attrs)
    np.testing.assert_allclose(by_numpy(launch.spec, *xs).reshape(expected.shape), expected, rtol=1e-9, atol=1e-9)
    count, rows, columns, added = launch.spec.product
    products = 2 * count * rows * columns * added
    assert products == made.op.cost(made).flops or (products > made.op.cost(made).flops and "dgrad" in str(made))


@pytest.mark.parametrize(("x", "w", "tf32", "own"), [
    ((16, 16, 16384), (16, 16, 5), False, True), ((16, 64, 56, 56), (256, 64, 1, 1), False, True),
    ((16, 64, 28, 28), (128, 64, 3, 3), False, False), ((16, 256, 14, 14), (256, 256, 3, 3), False, False),
    ((128, 16, 54, 54), (64, 16, 3, 3), True, True), ((128, 16, 54, 54), (64, 16, 1, 1), True, False),
    ((128, 64, 27, 27), (256, 64, 3, 3), True, False),
])  # fmt: skip
def test_a_weight_gradient_in_f32_takes_what_was_faster(
    x: tuple[int, ...], w: tuple[int, ...], tf32: bool, own: bool
) -> None:
    """On an H200."""
    pad = tuple(k // 2 for k in w[2:])
    made = convolution("conv_wgrad", x, w, tf32, pad=pad, dtype=DType.F32, **({"tf32": True} if tf32 else {}))
    assert isinstance(library_call(made, "sm_90"), Launch) is not own


@pytest.mark.parametrize(("name", "images", "window", "stride", "own"), [
    ("conv", 1, 1, 1, True), ("conv", 1, 3, 1, True), ("conv", 2, 3, 2, True), ("conv_dgrad", 1, 3, 1, True),
    ("conv_wgrad", 1, 3, 1, True), ("conv_dgrad", 1, 3, 2, False), ("conv_wgrad", 2, 3, 1, False),
    ("conv", 8, 3, 1, False), ("conv", 8, 1, 1, False),
])  # fmt: skip
def test_own_kernels_compute_small_convolutions_of_16_bits(
    name: str, images: int, window: int, stride: int, own: bool
) -> None:
    """As measured on an H200. On others and in f32, cuDNN computes them."""
    image, weight = (images, 256, 14, 14), (256 if window > 1 else 1024, 256, window, window)
    how = {"stride": (stride, stride), "pad": (window // 2, window // 2)}
    made, wide = (convolution(name, image, weight, True, dtype=dtype, **how) for dtype in (DType.BF16, DType.F32))
    assert isinstance(library_call(made, "sm_90"), NoCall) is own
    assert isinstance(library_call(made, "sm_80"), Launch) and isinstance(library_call(wide, "sm_90"), Launch)


def test_a_small_convolution_with_a_large_result_is_a_call() -> None:
    made = convolution("conv", (1, 16, 200, 200), (96, 16, 1, 1), True)
    assert made.out.type.bytes > 4 << 20 and isinstance(library_call(made, "sm_90"), Launch)


def test_only_patches_of_few_channels_have_an_own_weight_gradient() -> None:
    for channels, stride in ((8, (2, 2)), (16, (4, 4))):
        made = convolution("conv_wgrad", (128, channels, 64, 64), (64, channels, 4, 4), True, stride=stride)
        assert isinstance(library_call(made, "sm_90"), Launch)


def test_the_work_counts_alike_in_all_three_convolutions() -> None:
    for channels in (16, 64, 72):
        for name in ("conv", "conv_dgrad", "conv_wgrad"):
            made = convolution(name, (1, channels, 32, 32), (16, channels, 1, 1), True)
            assert (library_call(made, "sm_90") == NoCall("few multiply-adds")) is (channels * 16 * 32 * 32 < MIN_WORK)


def programs(model: str, size: int, provider: str = "vendor", **options: Any) -> Any:
    checked = check_file(str(MODELS / model))
    options_ = Options(target="sm_90", provider=provider, **options)
    sizes = {d.name: d.default for d in checked.dims} | {checked.batch.name: size}  # type: ignore[union-attr]
    return pipeline.compile_entry(checked, "train_step", sizes, options_)[0]


@pytest.mark.parametrize(
    ("model", "size", "options"),
    thinned([("lenet.nn", 64, {"streams": 1}), ("resnet50.nn", 32, {"precision": "bf16", "streams": 1})], 2),
)
def test_plans_of_models(model: str, size: int, options: dict[str, Any]) -> None:
    program = programs(model, size, **options)
    plan = Plan.decode(plan_of(program).encode())
    calls, rest = census([program])
    gemms = [i for i in plan.instructions if isinstance(i, Gemm)]
    graphs = [i for i in plan.instructions if isinstance(i, GraphOp)]
    assert (len(gemms), len(graphs)) == (calls["cublaslt"], calls["cudnn"])
    assert graphs and all(i.engine == -1 and i.knobs == () for i in graphs)
    if model == "resnet50.nn":
        assert len(graphs) == 52 + 52 + 52
        assert [what for what in rest if what.startswith("conv")] == [
            "conv (few channels)",
            "conv_wgrad (few channels)",
        ]
    found = (library_call(node, "sm_90") for node in program.kernels)
    made = (each.spec for each in found if isinstance(each, Launch))
    wanted = Counter(each.room for each in made)
    given = Counter(plan.buffers[call.workspace].bytes for call in (*gemms, *graphs) if call.workspace is not None)
    assert given == wanted and max(given) <= WORKSPACE
    own = programs(model, size, "own", **options)
    assert not any(isinstance(i, Gemm | GraphOp) for i in plan_of(own).instructions)
    assert program.memory.work_bytes <= own.memory.work_bytes + WORKSPACE + 64  # all calls work in the same bytes
    blobs = {i.blob: BlobInfo("cubin", 1) for i in plan.instructions if hasattr(i, "blob")}
    state = max(b.end for b in plan.buffers if b.region == "state")
    check(plan, state, 0, program.memory.io_bytes, program.memory.work_bytes, blobs=blobs)


@pytest.mark.parametrize("made", [*MATMULS, *CONVS], ids=str)
def test_a_call_is_given_no_more_to_work_in_than_it_can_need(made: Node) -> None:
    spec = called(made)
    count, rows, columns, added = spec.product
    products = 2 * count * rows * columns * added
    # a gradient of an image with strides as a product: with the zeros between
    assert products == made.op.cost(made).flops or (products > made.op.cost(made).flops and spec.kind == "conv_dgrad")
    need = 4 * count * (rows * added + added * columns + rows * columns * (added // 32 + 1)) + (64 << 10)
    assert 64 << 10 <= spec.room <= min(WORKSPACE, need + 512)


@pytest.mark.parametrize("name", ["conv", "conv_dgrad", "conv_wgrad"])
@pytest.mark.parametrize("far", [{"w": (64, 256, 3, 3), "dilation": (12, 12), "pad": (12, 12)}, {"w": (64, 256, 5, 6)}])
def test_a_far_window_in_tf32_is_given_room_for_both_factors(name: str, far: dict[str, Any]) -> None:
    image = (8, 256, 65, 65)
    given = {"w": (64, 256, 3, 3), "dtype": DType.F32, "tf32": True, "last": True}
    spec = called(convolution(name, image, **given | far))
    assert spec.room == WORKSPACE + 4 * sum(map(prod, spec.inputs))
    assert called(convolution(name, image, **given)).room == WORKSPACE
    of_16_bits = called(convolution(name, image, **given | far | {"dtype": DType.BF16, "tf32": False}))
    assert of_16_bits.room == WORKSPACE


@pytest.mark.parametrize("length", [7, 11])
def test_cudnn_computes_windows_of_few_places_along_one_axis_in_f32(length: int) -> None:
    assert called(convolution("conv", (2, 32, 4096), (64, 32, length), False, dtype=DType.F32)).kind == "conv"


def test_a_larger_call_is_given_no_less() -> None:
    found = [called(matmul((2**i, 512), (512, 256))).room for i in range(4, 20)]
    assert found == sorted(found) and found[0] < 2 << 20 and found[-1] == WORKSPACE


def test_own_kernels_that_a_measurement_chose_are_counted_as_such() -> None:
    program = programs("lenet.nn", 64, streams=1)
    calls, rest = census([program])
    target = target_of("sm_90", vendor=True)
    [node, *_] = [n for n, ls in program.kernels.items() if isinstance(ls[0].spec, VendorConv | VendorGemm)]
    own = replace(program, kernels={**program.kernels, node: target.lower(node, Choice("own"))})
    fewer, more = census([own])
    assert fewer.total() == calls.total() - 1
    assert more - rest == Counter({f"{node.op.name.removesuffix('_last')} (measured)": 1})


def said_of(result: BuildResult) -> list[str]:
    return _contractions(facts_of(result)["contractions"])


def test_features_and_options(tmp_path: Path) -> None:
    from dslc.base.cache import Cache

    source = "nn 1\ndim B in 1..64 = 32\nmodel Net(x: [B, 256]) -> [B, 256] {\n  return x |> linear(256)\n}\n"
    path = tmp_path / "net.nn"
    path.write_text(source)
    checked = check_file(str(path))
    sizes = {"predict": {"B": (1, 32)}}
    options = Options(target="cpu,sm_90", provider="vendor", sizes=sizes)
    result = pipeline.build(checked, options, cache=Cache.open())
    assert result.header["required_features"] == ["cublaslt", "cuda", "native"]
    assert result.header["options"]["providers"] == "vendor"
    assert [p.vendor for p in result.programs] == [p.target == "sm_90" for p in result.programs]
    said = said_of(result)  # predict of 1 row and of 32; the same on the CPU is not counted
    assert said == ["contractions: 1 cuBLASLt; 1 own kernels: 1 contraction (few multiply-adds)"]
    own = pipeline.build(checked, replace(options, provider="own"), cache=Cache.open())
    assert own.header["required_features"] == ["cuda", "native"] and said_of(own) == []
    with pytest.raises(BuildError, match="needs a GPU target"):
        Options(provider="vendor").check()


@pytest.mark.slow
def test_random_products_are_calls_that_fit_the_plan() -> None:
    choose = random.Random(3)
    for _ in range(50):
        m, n, k, z = (choose.choice([1, 7, 32, 129, 300]) for _ in range(4))
        ta, tb = choose.random() < 0.5, choose.random() < 0.5
        stacks = choose.choice([((), ()), ((z,), (z,)), ((z,), ()), ((1,), (z,)), ((z,), (1,))])
        a = (*stacks[0], *((k, m) if ta else (m, k)))
        b = (*stacks[1], *((n, k) if tb else (k, n)))
        made = matmul(a, b, ta, tb, dtype=DType.F32)
        found = library_call(made, "sm_90")
        if isinstance(found, NoCall):
            small = found.why == "few multiply-adds" and prod(made.types[0].ints) * k < MIN_WORK
            vector = str(found.why).startswith(("few columns", "a stack of products of a vector"))
            assert small or (vector and 1 in (m, n, k))
            continue
        assert found is not None
        xs = [np.random.default_rng(1).standard_normal(s) for s in (a, b)]
        got = by_numpy(found.spec, *xs)
        np.testing.assert_allclose(got.reshape(made.types[0].ints), made.op.meaning(xs, made.attrs)[0], rtol=1e-9)
