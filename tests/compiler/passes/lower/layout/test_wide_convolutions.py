"""Convolutions of odd and narrow channels in a form for tensor cores: the same numbers, in f64."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from graphs.random_graphs import evaluate, feeds_of

from dslc.compiler import pipeline
from dslc.compiler.check.model import check_file
from dslc.compiler.codegen.cuda.contraction.kernel import Mma
from dslc.compiler.codegen.cuda.lower import lower
from dslc.compiler.ir.graph import Graph, Input, Kind, Node, order
from dslc.compiler.ir.op import OPS, Builder
from dslc.compiler.ir.types import DType, TensorType
from dslc.compiler.ir.verify.graph import verify_graph
from dslc.compiler.ops.attrs import int_attr
from dslc.compiler.ops.spatial import few_channels
from dslc.compiler.ops.spatial.channels_last import last_type, to_last
from dslc.compiler.ops.spatial.few_channels import packs_taps
from dslc.compiler.options import Options
from dslc.compiler.passes.lower.layout import wide_convolutions
from dslc.compiler.passes.lower.layout.channels_last import Rule, channels_last
from dslc.compiler.passes.lower.layout.wide_convolutions import widened
from dslc.compiler.passes.lower.simplify.simplify import simplify_graph

_NET = """nn 1
dim B in 1..8 = 2
model Net(x: [B, {channels}, {space}]) -> [B, _, {unknown}] {{
  return x |> {layers}
}}
train Net(y: [B]) {{
  loss = mean(mean(output * output, over=[{axes}]) * y)
  optimizer = sgd(lr=0.5)
}}
"""


def _graphs(tmp_path: Path, channels: int, space: str, layers: str) -> tuple[Graph, Graph]:
    rank = space.count(",") + 1
    unknown, axes = ", ".join("_" * rank), ", ".join(map(str, range(1, rank + 2)))
    path = tmp_path / "net.nn"
    path.write_text(_NET.format(channels=channels, space=space, layers=layers, unknown=unknown, axes=axes))
    options = Options(provider="reference", precision="f64")
    program, _ = pipeline.compile_entry(check_file(str(path)), "train_step", {"B": 2}, options, after="precision")
    turned = simplify_graph(channels_last(program.graph, Rule(lambda node: True)))
    verify_graph(turned)
    return program.graph, turned


def _groups(graph: Graph) -> set[int]:
    return {int_attr(n.attrs, "groups") for n in graph.nodes if n.op.name.startswith("conv")}


def _no_convolution(graph: Graph) -> bool:
    return not any(n.op.name.startswith("conv") for n in graph.nodes) and _products(graph) >= 3


def _kinds(graph: Graph, kind: str) -> bool:
    return any(n.op.name.startswith(kind) for n in graph.nodes)


def _products(graph: Graph) -> int:
    return sum(n.op.name == "matmul" for n in graph.nodes)


CASES: list[tuple[int, str, str, Callable[[Graph], bool]]] = [
    (13, "6, 7", "conv(11, 1) as a |> tanh |> conv(8, 1) as b", _no_convolution),
    (16, "6, 7", "conv(8, 1) as a |> tanh |> conv(8, 1) as b", lambda g: not _products(g)),
    (12, "9", "conv(7, 1) as a |> tanh |> conv(7, 3, pad=1) as b", lambda g: _products(g) >= 2),
    (8, "4, 3, 5", "conv(16, 1) as a |> tanh |> conv(8, 1) as b", _no_convolution),
    (13, "6, 7", "conv(9, 1, stride=2) as a", lambda g: not _products(g)),
    (13, "6, 7", "conv(9, 1, pad=1) as a", lambda g: not _products(g)),
    (8, "6, 7", "conv(8, 3, pad=1, groups=4) as a |> tanh |> conv(16, 3, stride=2, pad=1, groups=2) as b",
     lambda g: _groups(g) == {1}),
    (160, "5, 4", "conv(160, 3, pad=2, dilation=2, groups=20) as a", lambda g: _groups(g) == {4}),  # 5 of 8 channels
    (96, "7", "conv(48, 3, groups=12) as a", lambda g: _groups(g) == {2}),  # 6 groups of 8 to 4 channels
    (12, "4, 3, 5", "conv(24, 3, pad=1, groups=3) as a", lambda g: _groups(g) == {1}),
    (12, "6, 7", "conv(12, 3, pad=1, groups=12) as a", lambda g: _groups(g) == {12}),  # depthwise
    (64, "6, 7", "conv(64, 3, pad=1, groups=4) as a", lambda g: _groups(g) == {4}),  # wide enough
    (8, "6, 7", "conv_transpose(12, 3, stride=2, groups=4) as a", lambda g: _groups(g) == {1}),
    (9, "5, 5", "conv(16, 1) as a |> tanh |> conv(24, 5) as b", _no_convolution),  # the window is the image
    (9, "4, 4, 4", "conv(16, 1) as a |> conv(24, 4, stride=3) as b |> conv(9, 1) as c", _no_convolution),
    (16, "1, 1", "conv(8, 1) as a |> tanh |> conv(24, 1) as b", _no_convolution),  # of one place
    (16, "1, 1", "conv_transpose(24, 4) as a |> tanh |> conv(8, 4) as b", _no_convolution),
    (9, "6, 8", "conv(11, 1) as a |> tanh |> conv(16, 2, stride=2) as b", lambda g: not _kinds(g, "conv_dgrad")),
    (16, "4, 3, 2", "conv_transpose(11, 2, stride=2) as a", lambda g: not _kinds(g, "conv_dgrad")),
    (9, "6, 8", "conv(11, 1) as a |> tanh |> conv(16, 2, stride=2, pad=1) as b", lambda g: _kinds(g, "conv_dgrad")),
    (9, "7, 8", "conv(11, 1) as a |> tanh |> conv(16, 2, stride=2) as b", lambda g: not _kinds(g, "conv_dgrad")),
    (3, "11, 7", "conv(11, 1) as a |> tanh |> conv(5, 4, stride=4) as b", lambda g: not _kinds(g, "conv_dgrad")),
    (9, "7, 8", "conv(11, 1) as a |> tanh |> conv(16, 2, stride=2, dilation=2) as b",
     lambda g: _kinds(g, "conv_dgrad")),
]  # fmt: skip


@pytest.mark.parametrize(
    ("channels", "space", "layers", "form"), CASES, ids=[f"{c}: {layers}" for c, _, layers, _ in CASES]
)
def test_a_step_computes_the_same(
    channels: int, space: str, layers: str, form: Callable[[Graph], bool], tmp_path: Path
) -> None:
    graph, turned = _graphs(tmp_path, channels, space, layers)
    assert form(turned)
    feeds = feeds_of(graph, 3)
    wanted, got = evaluate(graph, feeds), evaluate(turned, feeds)
    assert wanted.keys() == got.keys() and len(wanted) > 2
    for key, value in wanted.items():
        np.testing.assert_allclose(got[key], value, rtol=1e-9, atol=1e-11, err_msg=key)


def test_what_reads_a_product_of_one_place_can_fuse_with_it(tmp_path: Path) -> None:
    """No reshape comes between."""
    _, turned = _graphs(tmp_path, 16, "1, 1", "conv(8, 1) as a |> tanh")
    [first] = [n for n in turned.nodes if n.op.name == "matmul" and n.types[0].ints == (2, 1, 1, 8)]
    assert "add" in {n.op.name for n in turned.readers()[first.out]}


@pytest.mark.parametrize(("channels", "out"), [(12, 20), (16, 3), (11, 8), (3, 16), (7, 1)])
@pytest.mark.parametrize("space", ["9", "6, 7", "4, 3, 5"])
def test_odd_channels_are_filled_up_where_that_pays(
    channels: int, out: int, space: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    layers = f"tanh |> conv({channels}, 1) as a |> conv({out}, 3, pad=1, dilation=1) as b"
    plain = _runs(_graphs(tmp_path, channels, space, layers)[1])
    monkeypatch.setattr(wide_convolutions, "_MIN_FILLED", 1)
    graph, turned = _graphs(tmp_path, channels, space, layers)
    assert all(_runs(turned)) and (not all(plain) or channels % 4 == out % 4 == 0)
    feeds = feeds_of(graph, 3)
    wanted, got = evaluate(graph, feeds), evaluate(turned, feeds)
    for key, value in wanted.items():
        np.testing.assert_allclose(got[key], value, rtol=1e-9, atol=1e-11, err_msg=key)


@pytest.mark.parametrize(("channels", "out"), [(16, 3), (1, 16)])
def test_few_channels_stay_few(channels: int, out: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They have kernels of their own, which read no zeros."""
    monkeypatch.setattr(wide_convolutions, "_MIN_FILLED", 1)
    monkeypatch.setattr(few_channels, "_MIN_PLACES", 1)
    layers = f"conv({channels}, 3, pad=1) as a |> tanh |> conv({out}, 3, pad=1) as b"
    _, turned = _graphs(tmp_path, 8, "6, 7", layers)
    assert len(_runs(turned)) == 5 and _runs(turned).count(False) >= 3 and not _kinds(turned, "pad")


def _runs(graph: Graph) -> list[bool]:
    """Of each convolution, whether all its tensors have whole runs of channels, 16 bytes in f32."""
    found = [n for n in graph.nodes if n.op.name.startswith("conv")]
    assert {n.op.name for n in found} >= {"conv_last", "conv_dgrad_last", "conv_wgrad_last"}
    return [all(t.ints[-1] % 4 == 0 for t in (*n.input_types, *n.types)) for n in found]


@pytest.mark.parametrize(("dtype", "channels"), [(DType.BF16, 8), (DType.F16, 8), (DType.F32, 4)])
def test_colours_are_filled_up_to_sixteen_bytes(dtype: DType, channels: int) -> None:
    image, weight = (Input(n, Kind.DATA, TensorType(dtype, s)) for n, s in (("x", (2, 3, 9, 9)), ("w", (8, 3, 3, 3))))
    attrs = {"stride": (1, 1), "pad": (1, 1), "dilation": (1, 1), "groups": 1}
    b = Builder(name="here")
    node = b.node(OPS["conv"], image.value, weight.value, **attrs)
    last = [b(OPS["transpose"], x.value, perm=(0, 2, 3, 1)) for x in (image, weight)]
    found = widened(b, node, last)
    assert found is not None and isinstance(found.producer, Node)
    assert [t.ints[-1] for t in found.producer.input_types] == [channels, channels]


@pytest.mark.parametrize("dtype", [DType.BF16, DType.F32])
@pytest.mark.parametrize("kind", ["conv", "conv_wgrad"])
@pytest.mark.parametrize(("space", "window"), [((48, 48), (7, 7)), ((3, 48, 48), (1, 7, 7)), ((4800,), (31,))])
def test_the_image_of_a_first_layer_is_read_as_it_lies(
    space: tuple[int, ...], window: tuple[int, ...], kind: str, dtype: DType
) -> None:
    """Only the 45 channels of its result are filled up, to whole runs."""
    pad, ones = tuple(k // 2 for k in window), (1,) * len(space)
    attrs: dict[str, Any] = {"stride": ones, "pad": pad, "dilation": ones, "groups": 1}
    x, w, y = (2, 3, *space), (45, 3, *window), (2, 45, *space)
    shapes, attrs = ((x, w), attrs) if kind == "conv" else ((x, y), {**attrs, "size": window})
    values = [Input(str(n), Kind.DATA, TensorType(dtype, s)).value for n, s in enumerate(shapes)]
    b = Builder(name="here")
    node = b.node(OPS[kind], *values, **attrs)
    found = widened(b, node, [b(OPS["transpose"], v, perm=to_last(v.type.rank)) for v in values])
    assert found is not None and found.type == last_type(node.types[0])
    [made] = [n for n in order([found]) if n.op.name == f"{kind}_last"]
    assert made.inputs[0].type.ints == (2, *space, 3) and 48 in (*made.inputs[1].type.ints, made.types[0].ints[0])
    assert packs_taps(made, on_cores=True)


def test_a_first_layer_of_odd_results_computes_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(few_channels, "_MIN_PLACES", 1)
    graph, turned = _graphs(tmp_path, 3, "2, 9, 8", "conv(45, [1, 7, 7], stride=[1, 2, 2], pad=[0, 3, 3]) as a |> tanh")
    assert {n.inputs[0].type.ints[-1] for n in turned.nodes if n.op.name in ("conv_last", "conv_wgrad_last")} <= {3, 4}
    feeds = feeds_of(graph, 3)
    wanted, got = evaluate(graph, feeds), evaluate(turned, feeds)
    for key, value in wanted.items():
        np.testing.assert_allclose(got[key], value, rtol=1e-9, atol=1e-11, err_msg=key)


@pytest.mark.parametrize(("window", "stride", "width", "dtype", "is_left"), [
    (16, 16, 32, DType.BF16, True), (8, 8, 64, DType.F16, True),
    (16, 16, 32, DType.F32, False),
    (4, 4, 32, DType.BF16, False),  # lines of 12 elements
    (16, 8, 32, DType.BF16, False),  # windows share places
    (16, 16, 33, DType.BF16, False),  # lines of the image begin at other places
])  # fmt: skip
def test_patches_whose_lines_are_whole_runs_are_read_as_they_lie(
    window: int, stride: int, width: int, dtype: DType, is_left: bool
) -> None:
    """On tensor cores."""
    shapes = (2, 3, 32, width), (16, 3, window, window)
    image, weight = (Input(n, Kind.DATA, TensorType(dtype, s)) for n, s in zip("xw", shapes))
    attrs = {"stride": (stride,) * 2, "pad": (0, 0), "dilation": (1, 1), "groups": 1}
    b = Builder(name="here")
    node = b.node(OPS["conv"], image.value, weight.value, **attrs)
    last = [b(OPS["transpose"], x.value, perm=(0, 2, 3, 1)) for x in (image, weight)]
    assert (widened(b, node, last) is None) is is_left
    if is_left:
        made = b(OPS["conv_last"], *last, **attrs).producer
        assert isinstance(made, Node)
        assert isinstance((lower(made) or [])[0].spec, Mma)


@pytest.mark.parametrize(
    ("kind", "dtype", "groups", "each", "stride", "taps", "left"),
    [
        ("conv", DType.BF16, 32, 4, 1, 3, 8), ("conv", DType.F16, 16, 8, 2, 3, 8),
        ("conv_wgrad", DType.BF16, 32, 4, 2, 3, 8), ("conv_dgrad", DType.BF16, 32, 4, 1, 3, 8),
        ("conv_dgrad", DType.BF16, 32, 4, 2, 3, 8), ("conv_dgrad", DType.BF16, 32, 4, 4, 3, 2),
        ("conv", DType.F32, 32, 4, 1, 3, 2), ("conv", DType.BF16, 32, 4, 1, 1, 2), ("conv", DType.BF16, 32, 4, 1, 9, 2),
        ("conv", DType.BF16, 12, 6, 1, 3, 2),  # no whole runs of up to 16 channels
    ],
)  # fmt: skip
def test_channels_to_which_narrow_groups_are_merged(
    kind: str, dtype: DType, groups: int, each: int, stride: int, taps: int, left: int
) -> None:
    """In 16 bits 16, else up to 64."""
    channels, pad = groups * each, taps // 2
    attrs: dict[str, Any] = {"stride": (stride,) * 2, "pad": (pad,) * 2, "dilation": (1, 1), "groups": groups}
    x, w, y = (2, channels, 9, 9), (channels, each, taps, taps), (2, channels, *[8 // stride + 1] * 2)
    shapes = {"conv": (x, w), "conv_dgrad": (y, w), "conv_wgrad": (x, y)}[kind]
    attrs |= {"conv": {}, "conv_dgrad": {"size": (9, 9)}, "conv_wgrad": {"size": (taps, taps)}}[kind]
    values = [Input(str(n), Kind.DATA, TensorType(dtype, s)).value for n, s in enumerate(shapes)]
    b = Builder(name="here")
    node = b.node(OPS[kind], *values, **attrs)
    found = widened(b, node, [b(OPS["transpose"], v, perm=(0, 2, 3, 1)) for v in values])
    assert found is not None
    graph = Graph((), order([found]), {"y": found})
    assert _groups(graph) == {left}


@pytest.mark.parametrize(
    ("window", "stride", "left"),
    [
        ((1, 3, 3), (1, 2, 2), 8), ((3, 1, 1), (2, 1, 1), 8), ((1, 3, 3), (2, 1, 1), 2), ((3, 1, 1), (1, 1, 2), 2),
        ((3, 1, 3), (1, 1, 1), 2), ((3, 3, 3), (1, 1, 1), 2),
    ],
)  # fmt: skip
def test_groups_of_volumes_are_merged_as_those_of_images_if_windows_of_one_place_allow(
    window: tuple[int, ...], stride: tuple[int, ...], left: int
) -> None:
    attrs = {"stride": stride, "pad": tuple(k // 2 for k in window), "dilation": (1, 1, 1), "groups": 32}
    values = [Input(n, Kind.DATA, TensorType(DType.BF16, s)).value for n, s in (
        ("x", (2, 128, 5, 9, 9)), ("w", (128, 4, *window)))]  # fmt: skip
    b = Builder(name="here")
    node = b.node(OPS["conv"], *values, **attrs)
    found = widened(b, node, [b(OPS["transpose"], v, perm=to_last(5)) for v in values])
    assert found is not None and _groups(Graph((), order([found]), {"y": found})) == {left}


def test_a_weight_is_merged_once(tmp_path: Path) -> None:
    """For the convolution and for the gradient of its image."""
    _, turned = _graphs(tmp_path, 8, "6, 7", "tanh |> conv(8, 3, groups=4) as a |> tanh |> conv(8, 3, groups=2) as b")
    merged = [n for n in turned.nodes if n.op.name == "where" and _reads_weight(n)]
    assert len(merged) == 2


def _reads_weight(node: Node) -> bool:
    seen = list(node.inputs)
    while seen:
        value = seen.pop()
        if not isinstance(value.producer, Node):
            if value.producer.name.endswith("weight"):
                return True
            continue
        if value.producer.op.name in ("reshape", "transpose"):
            seen += value.producer.inputs
    return False
