"""Pointwise convolutions between values with channels first: one product each, where transposes would take longer."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from graphs.random_graphs import evaluate, feeds_of, graph_of, input_of

from dslc.compiler import pipeline
from dslc.compiler.check.model import check_file
from dslc.compiler.cost import machine_of
from dslc.compiler.ir.graph import Graph, Kind, Value
from dslc.compiler.ir.op import OPS, Builder
from dslc.compiler.ir.types import DType
from dslc.compiler.ir.verify.graph import verify_graph
from dslc.compiler.options import Options
from dslc.compiler.passes.lower.layout.channels_last import Rule, channels_last
from dslc.compiler.passes.lower.simplify.simplify import simplify_graph

FIRST, LAST = (0, 3, 1, 2), (0, 2, 3, 1)
RULE = Rule(lambda node: True, machine_of("sm_90"))
PLAIN = {"stride": (1, 1), "pad": (0, 0), "dilation": (1, 1), "groups": 1}


def _conv(b: Builder, x: Value, w: Value, pad: int = 0) -> Value:
    return b(OPS["conv"], x, w, **{**PLAIN, "pad": (pad, pad)})


def _step(batch: int, channels: int, results: int, side: int, dtype: DType = DType.F16) -> Graph:
    """A convolution, an activation and both gradients."""
    x = input_of("x", Kind.DATA, batch, channels, side, side, dtype=dtype)
    w = input_of("w", Kind.DATA, results, channels, 1, 1, dtype=dtype)
    dy = input_of("dy", Kind.DATA, batch, results, side, side, dtype=dtype)
    b = Builder(name="here")
    y = b(OPS["relu"], _conv(b, x.value, w.value))
    dx = b(OPS["conv_dgrad"], dy.value, w.value, **PLAIN, size=(side, side))
    dw = b(OPS["conv_wgrad"], x.value, dy.value, **PLAIN, size=(1, 1))
    return graph_of([x, w, dy], {"y": y, "dx": dx, "dw": dw})


def _turned(graph: Graph) -> Graph:
    found = simplify_graph(channels_last(graph, RULE))
    verify_graph(found)
    return found


def _ops(graph: Graph) -> Counter[str]:
    return Counter(node.op.name for node in graph.nodes if node.op.name not in ("reshape", "relu"))


@pytest.mark.parametrize("batch", [1, 3])
def test_products_take_the_place_of_transposes(batch: int) -> None:
    graph = _step(batch, 8, 16, 4)
    turned = _turned(graph)
    gradient = {"conv_wgrad": 1} if batch > 1 else {"matmul": 1}  # the products of several images are added up first
    assert _ops(turned) == Counter({"matmul": 2}) + Counter(gradient)
    feeds = {name: np.round(value * 4) for name, value in feeds_of(graph, 3).items()}  # sums of halves are exact
    wanted, got = evaluate(graph, feeds), evaluate(turned, feeds)
    for name, value in wanted.items():
        np.testing.assert_array_equal(got[name], value, err_msg=name)


@pytest.mark.parametrize(
    ("sizes", "dtype"),
    [
        ((3, 8, 16, 5), DType.F16),  # 25 places are no whole runs
        ((3, 9, 16, 4), DType.F16),
        ((3, 8, 15, 4), DType.F16),
        ((3, 8, 16, 4), DType.F32),
        ((32, 4096, 4096, 16), DType.F16),  # libraries compute the weight's gradient so much faster
    ],
)
def test_channels_go_last_where_that_is_faster_or_runs_lack(sizes: tuple[int, int, int, int], dtype: DType) -> None:
    found = _ops(_turned(_step(*sizes, dtype)))
    assert found["transpose"] == 4, found


def _between(name: str) -> Graph:
    """A pointwise convolution among other nodes."""
    x = input_of("x", Kind.DATA, 2, 8, 16, 16, dtype=DType.F16)
    w = input_of("w", Kind.DATA, 8, 8, 1, 1, dtype=DType.F16)
    other = input_of("other", Kind.DATA, 8, 8, 3, 3, dtype=DType.F16)
    image = input_of("image", Kind.DATA, 2, 16, 16, 8, dtype=DType.F16)
    b = Builder(name="here")
    if name == "before":
        y = _conv(b, b(OPS["relu"], _conv(b, x.value, w.value)), other.value, 1)
    elif name == "after":
        y = _conv(b, b(OPS["relu"], _conv(b, x.value, other.value, 1)), w.value)
    elif name == "parallel":
        y = b(OPS["add"], _conv(b, x.value, other.value, 1), _conv(b, x.value, w.value))
    else:
        y = _conv(b, b(OPS["transpose"], image.value, perm=FIRST), w.value)
        y = b(OPS["transpose"], b(OPS["relu"], y), perm=LAST)
    read = {"before": (x, w, other), "after": (x, w, other), "parallel": (x, w, other)}.get(name, (image, w))
    return graph_of(list(read), {"y": y})


@pytest.mark.parametrize("name", ["before", "after", "parallel", "images with channels last"])
def test_what_needs_channels_last_decides_for_its_neighbours(name: str) -> None:
    found = _ops(_turned(_between(name)))
    assert found["conv_last"] == {"images with channels last": 1}.get(name, 2) and "matmul" not in found
    #: the image, the result, and the weight of 3 x 3
    assert found["transpose"] == {"images with channels last": 0}.get(name, 3)


def test_attention_reads_channels_last_as_they_are() -> None:
    """Its queries are ``[heads, places, features]``: the transposes before it join those of the layout."""
    x = input_of("x", Kind.DATA, 2, 16, 8, 8, dtype=DType.F16)
    w = input_of("w", Kind.DATA, 48, 16, 1, 1, dtype=DType.F16)
    b = Builder(name="here")
    split = b(OPS["reshape"], _conv(b, x.value, w.value), shape=(2, 3, 2, 8, 64))
    split = b(OPS["transpose"], split, perm=(1, 0, 2, 4, 3))
    parts = [
        b(OPS["reshape"], b(OPS["slice"], split, starts=(i, 0, 0, 0, 0), stops=(i + 1, 2, 2, 64, 8), steps=(1,) * 5),
          shape=(2, 2, 64, 8))
        for i in range(3)
    ]  # fmt: skip
    y = b.node(OPS["sdpa"], *parts, causal=False, scale=0.5).outputs[0]
    found = _ops(_turned(graph_of([x, w], {"y": y})))
    assert found["conv_last"] == 1 and "matmul" not in found


def test_an_inference_launches_one_product(tmp_path: Path) -> None:
    path = tmp_path / "net.nn"
    path.write_text(
        "nn 1\nmodel Net(x: [4, 32, 32, 32]) -> [4, 64, 32, 32] {\n  return conv(x, 64, 1, bias=false) as c\n}\n"
    )
    options = Options(provider="vendor", precision="bf16", target="sm_90")
    program, _ = pipeline.compile_entry(check_file(str(path)), "predict", {}, options)
    assert [n.op.name for n in program.graph.nodes if not n.op.view] == ["cast", "matmul", "cast"]
