"""inline: nodes compute their inputs themselves; the same bits, fewer bytes. ``test_drawn_masks.py`` tests those of
dropout."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gpu_kernels.dropout_graphs import SCALARS, gradient, graph_with, run, value
from graphs.batchnorm_net import batchnorm_feeds, batchnorm_graph, image_elements
from graphs.random_graphs import assert_same_bits, evaluate

from dslc.compiler.ir.graph import Graph, Input, Kind, Node, Phase, order
from dslc.compiler.ir.op import OPS, Builder
from dslc.compiler.ir.types import DType, TensorType
from dslc.compiler.ir.verify.graph import verify_graph
from dslc.compiler.ops.constants.constant import constant
from dslc.compiler.passes import queries
from dslc.compiler.passes.fuse.body import body_of
from dslc.compiler.passes.fuse.pointwise import inline as rules
from dslc.compiler.passes.fuse.pointwise.inline import inline
from dslc.compiler.passes.fuse.pointwise.pointwise import fuse_graph
from dslc.compiler.passes.lower.decompose import decompose
from dslc.compiler.passes.lower.layout.channels_last import Rule, channels_last
from dslc.compiler.passes.lower.simplify.simplify import simplify_graph


def never(node: Node) -> bool:
    """No kernel computes such a node."""
    return False


@pytest.mark.parametrize("free", [False, True], ids=["vanishing values", "free values, too"])
def test_nodes_take_their_inputs_in_with_the_same_bits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, free: bool
) -> None:
    """The sums of a batchnorm compute what only they and one more node read, and the masks of relu from what they
    read."""
    monkeypatch.setattr(queries, "SMALL_BYTES", 128)  # bytes; the images here are small
    graph = simplify_graph(decompose(channels_last(batchnorm_graph(tmp_path, "f32"), Rule(lambda node: True))))
    fused = fuse_graph(graph)
    monkeypatch.setattr(rules, "_MAX_FREE_STEPS", 0)
    vanishing = inline(fused, never)
    if free:
        monkeypatch.undo()
        monkeypatch.setattr(queries, "SMALL_BYTES", 128)
    found = inline(fused, never)
    verify_graph(found)
    assert inline(found, never) is found
    feeds = batchnorm_feeds(graph)
    assert_same_bits(evaluate(graph, feeds), evaluate(found, feeds))
    assert image_elements(vanishing) < image_elements(fused)
    # of three norms before a relu of their own, sums and gradient each read one image less
    assert image_elements(vanishing) - image_elements(found) == (3 * 2 * 4 * 8 * 8 * 8 if free else 0)


def test_a_mask_put_together_is_computed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queries, "SMALL_BYTES", 16)
    x, b = Input("x", Kind.DATA, TensorType(DType.F32, (8, 4))), Builder(name="a")
    body = (("gt", (0, 1), ()), ("lt", (0, 2), ()), ("logical_and", (3, 4), ()), ("logical_not", (5,), ()))
    low, high, zero = (constant(b, value, x.value) for value in (0.25, 0.75, 0.0))
    mask = b(OPS["fused"], x.value, low, high, body=body)
    kept = b(OPS["where"], mask, x.value, zero)
    graph = Graph((x,), order([mask, kept]), {"result.mask": mask, "result.kept": kept})
    found = inline(graph, never)
    verify_graph(found)
    assert mask not in found.outputs["result.kept"].producer.inputs  # type: ignore[union-attr]
    feeds = {"x": np.random.default_rng(0).random((8, 4), np.float32)}
    wanted, got = evaluate(graph, feeds), evaluate(found, feeds)
    assert all(np.array_equal(got[k], v) for k, v in wanted.items())


def test_a_chain_vanishes_into_all_of_its_readers() -> None:
    """Of two nodes in a row, both are computed by each of the two readers."""
    x, b = Input("x", Kind.DATA, TensorType(DType.F32, (64, 64))), Builder(name="a")
    first = b(OPS["fused"], x.value, body=(("exp", (0,), ()),))
    second = b(OPS["fused"], first, body=(("tanh", (0,), ()),))
    results = {name: b(OPS[name], second) for name in ("exp", "sigmoid")}
    graph = Graph((x,), order(list(results.values())), results)
    found = inline(graph, never)
    assert [[step[0] for step in body_of(n)] for n in found.nodes] == [
        ["exp", "tanh", "exp"],
        ["exp", "tanh", "sigmoid"],
    ]
    feeds = {"x": np.random.default_rng(0).random((64, 64), np.float32)}
    assert_same_bits(evaluate(graph, feeds), evaluate(found, feeds))


def test_a_value_of_many_bytes_does_not_vanish() -> None:
    """Two readers of a sum of four tensors would read eight, in place of six with the sum's result."""
    values = [Input(f"x{i}", Kind.DATA, TensorType(DType.F32, (64, 64))) for i in range(8)]
    b = Builder(name="a")
    for count, nodes in ((3, 2), (4, 3)):
        total = b(OPS["fused"], *(v.value for v in values[:count]), body=tuple(
            ("add", (0 if i == 1 else count + i - 2, i), ()) for i in range(1, count)
        ))  # fmt: skip
        results = {name: b(OPS[name], total) for name in ("exp", "tanh")}
        found = inline(Graph(tuple(values), order(list(results.values())), results), never)
        assert len(found.nodes) == nodes, count


@pytest.mark.parametrize("fits", [True, False])
@pytest.mark.parametrize("phase", [Phase.FORWARD, Phase.BACKWARD])
def test_the_places_of_a_maximum_are_counted_without_a_mask_in_memory(fits: bool, phase: Phase) -> None:
    """A sum along rows, and a pointwise node, compute which elements are the maximum, if a kernel can."""
    x, top = (Input(n, Kind.DATA, TensorType(DType.F32, s)) for n, s in (("x", (64, 1024)), ("top", (64, 1))))
    mask = Builder(name="max")(OPS["fused"], x.value, top.value, body=(
        ("eq", (0, 1), ()), ("cast", (2,), (("dtype", DType.F32),))
    ))  # fmt: skip
    b = Builder(name="max", phase=phase)
    results = {"ties": b(OPS["sum"], mask, over=(1,), keep=True), "shares": b(OPS["mul"], mask, top.value)}
    graph = Graph((x, top), order(list(results.values())), results)
    found = inline(graph, lambda node: fits)
    verify_graph(found)
    assert inline(found, lambda node: fits) is found
    if not fits:
        assert found is graph
        return
    assert sorted(n.op.name for n in found.nodes) == ["fused", "fused_rows"]
    assert all(node.phase is phase for node in found.nodes)
    feeds = {
        "x": np.random.default_rng(0).integers(0, 9, (64, 1024)).astype(np.float32),
        "top": np.full((64, 1), 8.0, np.float32),
    }
    assert_same_bits(evaluate(graph, feeds), evaluate(found, feeds))


def test_a_sum_of_a_large_mask_of_two_tensors_reads_it() -> None:
    """Two readers that compute it would read both tensors twice."""
    x, y = (Input(n, Kind.DATA, TensorType(DType.F32, (64, 1024))) for n in "xy")
    b = Builder(name="a")
    made = b(OPS["maximum"], x.value, y.value)
    results = {"total": b(OPS["sum"], made, over=(1,), keep=True), "other": b(OPS["neg"], made)}
    graph = Graph((x, y), order(list(results.values())), results)
    assert inline(graph, lambda node: True) is graph


def test_sums_draw_across_their_rows() -> None:
    """Nothing in memory is as large as what is dropped, and a thread's neighbours lie down the columns."""
    x, bias = value("x", DType.F32, 8, 1), value("bias", DType.F32, 64)
    scalars = [value(name, DType.I64) for name in SCALARS]
    b = Builder(name="here")
    attrs: dict[str, Any] = {"p": 0.25, "key": 77, "row_elements": 64}
    drawn = b(OPS["dropout"], b(OPS["mul"], x.value, bias.value), *(s.value for s in scalars), **attrs)
    graph = graph_with([x, bias, *scalars], b(OPS["fused_sums"], drawn, body=(), summed=(0,), over=(0,)))
    body = (("mul", (0, 1), ()), ("dropout", (5, 2, 3, 4), tuple(sorted(attrs.items()))))
    given = [v.value for v in (x, bias, *scalars)]
    whole = graph_with([x, bias, *scalars], b(OPS["fused_sums"], *given, body=body, summed=(6,), over=(0,)))
    [one], [other] = run(graph), run(whole)
    np.testing.assert_allclose(one, other, rtol=1e-6, atol=1e-6)  # in another order: there are no columns to read
    assert [n.op.name for n in inline(graph, never).nodes] == ["mul", "fused_sums"]


@pytest.mark.parametrize("shape", [(40, 6), (40, 7)])
def test_sums_of_narrow_rows_do_not_draw(shape: tuple[int, int]) -> None:
    """A draw would serve one element or two."""
    graph = gradient(DType.F32, shape, (0,))
    assert inline(graph, never) is graph


def test_a_decision_waits_until_its_readers_are_known() -> None:
    """A sum of three tensors has two readers, one of which vanishes into two nodes: three nodes would read nine
    tensors."""
    values = [Input(f"x{i}", Kind.DATA, TensorType(DType.F32, (64, 64))) for i in range(3)]
    b = Builder(name="a")
    total = b(OPS["fused"], *(v.value for v in values), body=(("add", (0, 1), ()), ("add", (3, 2), ())))
    root = b(OPS["sqrt"], total)
    results = {"tanh": b(OPS["tanh"], total), "exp": b(OPS["exp"], root), "sigmoid": b(OPS["sigmoid"], root)}
    found = inline(Graph(tuple(values), order(list(results.values())), results), never)
    assert sorted(len(body_of(n)) for n in found.nodes) == [1, 2, 2, 2]


def test_a_mask_of_two_readers_is_drawn_once() -> None:
    x, scalars = value("x", DType.F32, 64, 64), [value(name, DType.I64) for name in SCALARS]
    b = Builder(name="here")
    attrs: dict[str, Any] = {"p": 0.25, "key": 77, "row_elements": 64}
    drawn = b(OPS["dropout"], x.value, *(s.value for s in scalars), **attrs)
    graph = graph_with([x, *scalars], b(OPS["exp"], drawn), b(OPS["tanh"], drawn))
    assert inline(graph, never) is graph


def test_a_dropout_does_not_compute_its_seed() -> None:
    x, scalars = value("x", DType.F32), [value(name, DType.I64) for name in SCALARS]
    b = Builder(name="here")
    seed, step, row = (s.value for s in scalars)
    drawn = b(OPS["dropout"], x.value, b(OPS["neg"], seed), step, row, p=0.25, key=77, row_elements=1)
    graph = graph_with([x, *scalars], drawn)
    assert inline(graph, never) is graph


def test_a_small_tensor_is_cast_by_each_of_its_readers() -> None:
    """The mean and the squares of the differences from it, as of a large tensor: no tensor of f32 lies in memory."""
    x, b = Input("x", Kind.DATA, TensorType(DType.BF16, (3, 5))), Builder(name="a")
    wide = b(OPS["cast"], x.value, dtype=DType.F32)
    mean = b(OPS["mean"], wide, over=(1,), keep=True)
    apart = b(OPS["fused"], wide, mean, body=(("sub", (0, 1), ()), ("mul", (2, 2), ())))
    result = b(OPS["mean"], apart, over=(1,), keep=False)
    found = inline(Graph((x,), order([result]), {"result.y": result}), lambda node: True)
    verify_graph(found)
    assert [node.op.name for node in found.nodes] == ["fused_rows", "fused", "mean"]  # row_bodies joins the last two
    assert all(x.value in node.inputs for node in found.nodes[:2])
