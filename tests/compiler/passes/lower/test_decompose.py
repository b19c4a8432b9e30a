"""Batchnorm in parts, and sums that compute their inputs themselves: the same numbers, fewer bytes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from graphs.batchnorm_net import batchnorm_feeds, batchnorm_graph
from graphs.random_graphs import assert_same_bits, evaluate, feeds_of

from dslc.compiler import pipeline
from dslc.compiler.check.model import check_file
from dslc.compiler.ir.graph import Graph, Input, Kind, order
from dslc.compiler.ir.op import OPS, Builder
from dslc.compiler.ir.types import DType, TensorType
from dslc.compiler.ir.verify import verify_graph
from dslc.compiler.options import Options
from dslc.compiler.passes.fuse import body as bodies
from dslc.compiler.passes.fuse.duplicate import duplicate
from dslc.compiler.passes.fuse.horizontal import horizontal
from dslc.compiler.passes.fuse.pointwise import fuse_graph
from dslc.compiler.passes.fuse.recompute_inputs import recompute_inputs
from dslc.compiler.passes.fuse.reduction_outputs import reduction_outputs
from dslc.compiler.passes.lower.channels_last import channels_last
from dslc.compiler.passes.lower.decompose import decompose
from dslc.compiler.passes.lower.simplify import simplify_graph


@pytest.mark.parametrize("last", [False, True])
def test_the_parts_compute_the_norm(last: bool, tmp_path: Path) -> None:
    graph = batchnorm_graph(tmp_path, "f64")
    turned = channels_last(graph, lambda node: last)
    parts = simplify_graph(decompose(turned))
    verify_graph(parts)
    assert not any(n.op.name.startswith("batchnorm") for n in parts.nodes)
    feeds = batchnorm_feeds(graph)
    wanted, got = evaluate(graph, feeds), evaluate(parts, feeds)
    for key, value in wanted.items():
        np.testing.assert_allclose(got[key], value, rtol=1e-8, atol=1e-10, err_msg=key)


@pytest.mark.parametrize("target", ["cpu", "sm_90"])
def test_a_layer_called_twice_moves_its_statistics_twice(target: str, tmp_path: Path) -> None:
    """In the finished graph of each target; in the second call the shift is what the first call left."""
    path = tmp_path / "net.nn"
    path.write_text(
        "nn 1\ndim B in 1..8 = 4\nmodel Net(a: [B, 6, 4, 4], b: [B, 6, 4, 4]) -> [B, 6] {\n"
        "  layer bn = batchnorm(momentum=0.5)\n  return mean(relu(bn(a)) * bn(b), over=[2, 3])\n}\n"
        "train Net() {\n  loss = mean(output)\n  optimizer = sgd(lr=0.1)\n}\n"
    )
    options = Options(target="cpu,sm_90", precision="f32")
    program, _ = pipeline.compile_entry(check_file(str(path)), "train_step", {"B": 4}, options, target=target)
    graph = program.graph
    assert any(n.op.name == "batchnorm" for n in graph.nodes) == (target == "cpu")
    feeds = batchnorm_feeds(graph)
    feeds["bn.running_mean"], feeds["bn.running_var"] = np.zeros(6, "f4"), np.ones(6, "f4")
    found = evaluate(graph, feeds)
    axes = (0, 2, 3)
    mean = 0.25 * feeds["a"].mean(axes) + 0.5 * feeds["b"].mean(axes)
    var = 0.25 + 0.25 * feeds["a"].var(axes, ddof=1) + 0.5 * feeds["b"].var(axes, ddof=1)
    np.testing.assert_allclose(found["update bn.running_mean"], mean, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(found["update bn.running_var"], var, rtol=1e-5)


def _images(graph: Graph) -> int:
    """Elements of images that nodes read and write."""
    return sum(
        np.prod(t.ints) for n in graph.nodes for t in (*n.input_types, *n.types) if t.rank == 4 and t.ints[0] == 4
    )


def test_sums_take_their_inputs_in_with_the_same_bits(tmp_path: Path) -> None:
    graph = simplify_graph(decompose(channels_last(batchnorm_graph(tmp_path, "f32"), lambda node: True)))
    fused = fuse_graph(graph)
    absorbed = duplicate(fused)
    verify_graph(absorbed)
    assert duplicate(absorbed) is absorbed
    feeds = batchnorm_feeds(graph)
    assert_same_bits(evaluate(fused, feeds), evaluate(absorbed, feeds))
    assert _images(absorbed) < _images(fused)


def test_what_is_read_anyhow_is_computed_again_with_the_same_bits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The masks of relu in the backward pass come of what batchnorm reads."""
    monkeypatch.setattr(bodies, "SMALL_BYTES", 128)  # bytes; the images here are small
    graph = simplify_graph(decompose(channels_last(batchnorm_graph(tmp_path, "f32"), lambda node: True)))
    absorbed = duplicate(fuse_graph(graph))
    found = recompute_inputs(absorbed)
    verify_graph(found)
    assert recompute_inputs(found) is found
    feeds = batchnorm_feeds(graph)
    assert_same_bits(evaluate(graph, feeds), evaluate(found, feeds))
    # of three norms before a relu of their own, sums and gradient each read one image less
    assert _images(absorbed) - _images(found) == 3 * 2 * 4 * 8 * 8 * 8


def test_sums_write_what_they_add_up_where_others_want_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Behind the sum of a block and its relu the gradient goes two ways, and through a norm."""
    monkeypatch.setattr(bodies, "SMALL_BYTES", 128)
    graph = simplify_graph(decompose(channels_last(batchnorm_graph(tmp_path, "f32"), lambda node: True)))
    absorbed = duplicate(fuse_graph(graph))
    found = reduction_outputs(absorbed)
    verify_graph(found)
    assert reduction_outputs(found) is found
    feeds = batchnorm_feeds(graph)
    assert_same_bits(evaluate(graph, feeds), evaluate(found, feeds))
    keeping = [n for n in found.nodes if "kept" in n.attrs]
    assert keeping and len(found.nodes) == len(absorbed.nodes) - len(keeping)
    assert _images(absorbed) - _images(found) == len(keeping) * 4 * 8 * 8 * 8


@pytest.mark.parametrize(("name", "attrs"), [("sum_to", {"shape": (600,)}), ("sum", {"over": (0, 1), "keep": False})])
def test_a_bias_gradient_comes_with_what_it_is_the_sum_of(name: str, attrs: dict[str, object]) -> None:
    x = Input("x", Kind.DATA, TensorType(DType.F32, (2, 40, 600)))
    b = Builder(name="layer")
    doubled = b(OPS["add"], x.value, x.value)
    results = {"y": doubled, "total": b(OPS[name], doubled, **attrs), "other": b(OPS["neg"], doubled)}  # type: ignore[arg-type]
    graph = Graph((x,), order([*results.values()]), results)
    found = reduction_outputs(graph)
    verify_graph(found)
    assert sorted(n.op.name for n in found.nodes) == ["fused_sums", "neg"] and reduction_outputs(found) is found
    feeds = feeds_of(graph, 3)
    assert_same_bits(evaluate(graph, feeds), evaluate(found, feeds))


def test_what_nobody_else_wants_is_not_written() -> None:
    x = Input("x", Kind.DATA, TensorType(DType.F32, (40, 600)))
    b = Builder(name="norm")
    results = {"total": b(OPS["sum"], b(OPS["mul"], x.value, x.value), over=(0, 1), keep=False)}
    found = reduction_outputs(Graph((x,), order([*results.values()]), results))
    verify_graph(found)
    [node] = found.nodes
    assert node.op.name == "fused_sums" and "kept" not in node.attrs and len(node.outputs) == 1


def test_sums_that_hold_places_of_axes_stay() -> None:
    x = Input("x", Kind.DATA, TensorType(DType.F32, (40, 600)))
    b = Builder(name="layer")
    doubled = b(OPS["add"], x.value, x.value)
    results = {"y": doubled, "total": b(OPS["sum_to"], doubled, shape=(1, 600))}
    graph = Graph((x,), order([*results.values()]), results)
    assert reduction_outputs(graph) is graph


def test_small_nodes_join_with_the_same_bits(tmp_path: Path) -> None:
    graph = fuse_graph(simplify_graph(decompose(channels_last(batchnorm_graph(tmp_path, "f32"), lambda node: True))))
    joined = horizontal(graph)
    verify_graph(joined)
    assert horizontal(joined) is joined
    feeds = batchnorm_feeds(graph)
    assert_same_bits(evaluate(graph, feeds), evaluate(joined, feeds))
    # forward, one node a norm for the new statistics; backward, one for the two means and the scale
    vectors = [n for n in joined.nodes if n.op.name == "fused" and n.types[0].rank == 1 and len(n.outputs) > 1]
    assert len(vectors) >= 5 and len(joined.nodes) < len(graph.nodes) - 20
    assert max(len(n.outputs) for n in vectors) >= 4
