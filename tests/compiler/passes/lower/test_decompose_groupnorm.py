"""decompose: group norms of images with channels last in parts; the same numbers, and no images are transposed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from graphs.random_graphs import evaluate, feeds_of, graph_of, input_of

from dslc.compiler import pipeline
from dslc.compiler.check.model import check_file
from dslc.compiler.ir.graph import Graph, Kind
from dslc.compiler.ir.op import OPS, Builder
from dslc.compiler.ir.verify.graph import verify_graph
from dslc.compiler.options import Options
from dslc.compiler.passes.lower.decompose import decompose
from dslc.compiler.passes.lower.layout.channels_last import Rule, channels_last
from dslc.compiler.passes.lower.simplify.simplify import simplify_graph

_NET = """nn 1
dim B in 1..8 = 2
model Net(x: [B, 3, {space}]) -> [B, 4, {space}] {{
  y = x |> conv(32, 3, pad=1) as c1 |> {norm} as n1 |> silu |> conv(32, 3, pad=1) as c2
  return y + (y |> {norm} as n2 |> relu) |> conv(4, 1) as c3
}}
train Net(target: [B, 4, {space}]) {{
  loss = mse(output, target)
  optimizer = sgd(lr=0.1)
}}
"""
_NORMS = ["groupnorm(1)", "groupnorm(4)", "instancenorm(affine=true)", "groupnorm(8, affine=false)"]


def _graph(tmp_path: Path, norm: str, space: str, precision: str, after: str | None, entry: str) -> Graph:
    path = tmp_path / "net.nn"
    path.write_text(_NET.format(norm=norm, space=space))
    options = Options(target="sm_90", provider="vendor", precision=precision)
    return pipeline.compile_entry(check_file(str(path)), entry, {"B": 2}, options, after=after)[0].graph


@pytest.mark.parametrize("space", ["5, 4", "3, 4, 2"])
@pytest.mark.parametrize("norm", _NORMS)
def test_the_parts_compute_the_norm(norm: str, space: str, tmp_path: Path) -> None:
    graph = _graph(tmp_path, norm, space, "f64", "precision", "train_step")
    parts = simplify_graph(decompose(channels_last(graph, Rule(lambda node: True))))
    verify_graph(parts)
    assert not any(n.op.name.startswith("groupnorm") for n in parts.nodes)
    feeds = feeds_of(graph, 3)
    wanted, got = evaluate(graph, feeds), evaluate(parts, feeds)
    assert len(wanted) >= 8
    for key, value in wanted.items():
        np.testing.assert_allclose(got[key], value, rtol=1e-8, atol=1e-10, err_msg=key)


@pytest.mark.parametrize("entry", ["train_step", "predict"])
@pytest.mark.parametrize("precision", ["bf16", "tf32"])
@pytest.mark.parametrize("norm", _NORMS)
def test_a_planned_program_moves_no_image(norm: str, precision: str, entry: str, tmp_path: Path) -> None:
    """Weights are transposed, and images of few channels that come in or go out."""
    graph = _graph(tmp_path, norm, "16, 16", precision, None, entry)
    moved = [n.types[0].ints for n in graph.nodes if n.op.name == "transpose"]
    assert not [shape for shape in moved if shape[0] == 2 and 32 in shape[1:]]
    assert not any(n.op.name.startswith("groupnorm") for n in graph.nodes)


def test_an_offset_loses_no_digits() -> None:
    """Of f32 images: the sums are those of differences from an element of each group."""
    x = (np.random.default_rng(0).standard_normal((2, 6, 7, 8)) + 4096).astype("f4")
    image = input_of("x", Kind.DATA, *x.shape)
    weight, bias = input_of("w", Kind.PARAM, 8), input_of("b", Kind.PARAM, 8)
    norm = Builder().node(OPS["groupnorm_last"], image.value, weight.value, bias.value, groups=2, eps=1e-6)
    graph = decompose(graph_of([image, weight, bias], {f"result.{i}": v for i, v in enumerate(norm.outputs)}))
    found = evaluate(graph, {"x": x, "w": np.ones(8, "f4"), "b": np.zeros(8, "f4")})
    wide = x.astype("f8").reshape(2, 42, 2, 4)
    np.testing.assert_allclose(found["result.1"], wide.mean((1, 3)), rtol=1e-6)
    np.testing.assert_allclose(found["result.2"], 1 / np.sqrt(wide.var((1, 3)) + 1e-6), rtol=1e-5)
