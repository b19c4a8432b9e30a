"""reduction_outputs: sums also write the values that they add up, if other nodes read them; the same bits."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from graphs.batchnorm_net import batchnorm_feeds, batchnorm_graph, image_elements
from graphs.random_graphs import assert_same_bits, evaluate, feeds_of

from dslc.compiler.ir.graph import Graph, Input, Kind, order
from dslc.compiler.ir.op import OPS, Builder
from dslc.compiler.ir.types import DType, TensorType
from dslc.compiler.ir.verify.graph import verify_graph
from dslc.compiler.passes import queries
from dslc.compiler.passes.fuse.horizontal.horizontal_reductions import horizontal_reductions
from dslc.compiler.passes.fuse.pointwise.inline import inline
from dslc.compiler.passes.fuse.pointwise.pointwise import fuse_graph
from dslc.compiler.passes.fuse.reduction.reduction_outputs import reduction_outputs
from dslc.compiler.passes.lower.decompose import decompose
from dslc.compiler.passes.lower.layout.channels_last import Rule, channels_last
from dslc.compiler.passes.lower.simplify.simplify import simplify_graph


def test_sums_write_what_they_add_up_where_others_want_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After the sum of a block and its relu the gradient takes two paths, and passes a norm."""
    monkeypatch.setattr(queries, "SMALL_BYTES", 128)
    graph = simplify_graph(decompose(channels_last(batchnorm_graph(tmp_path, "f32"), Rule(lambda node: True))))
    absorbed = inline(fuse_graph(graph), lambda _: True)
    found = reduction_outputs(absorbed)
    verify_graph(found)
    assert reduction_outputs(found) is found
    feeds = batchnorm_feeds(graph)
    assert_same_bits(evaluate(graph, feeds), evaluate(found, feeds))
    keeping = [n for n in found.nodes if "kept" in n.attrs]
    assert keeping and len(found.nodes) == len(absorbed.nodes) - len(keeping)
    assert image_elements(absorbed) - image_elements(found) == len(keeping) * 4 * 8 * 8 * 8


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


@pytest.mark.parametrize(
    ("name", "attrs"), [("sum_to", {"shape": (40, 1, 600)}), ("sum", {"over": (1,), "keep": True})]
)
def test_a_sum_that_keeps_the_axes_that_it_reduces(name: str, attrs: dict[str, object]) -> None:
    """The gradient of a value per channel of each image, as in squeeze-and-excitation."""
    x = Input("x", Kind.DATA, TensorType(DType.F32, (40, 9, 600)))
    b = Builder(name="layer")
    squared = b(OPS["mul"], x.value, x.value)
    results = {"total": b(OPS["exp"], b(OPS[name], squared, **attrs))}
    graph = Graph((x,), order([*results.values()]), results)
    found = reduction_outputs(graph)
    assert [node.op.name for node in found.nodes] == ["fused_sums", "reshape", "exp"]
    verify_graph(found)
    feeds = feeds_of(graph, 0)
    np.testing.assert_allclose(evaluate(found, feeds)["total"], evaluate(graph, feeds)["total"], rtol=1e-5)
    assert reduction_outputs(found) is found
    assert reduction_outputs(graph, lambda node: True) is graph, "a kernel of rows computes both"


def test_a_sum_that_keeps_axes_leaves_an_exponential_to_a_kernel_of_its_own() -> None:
    x = Input("x", Kind.DATA, TensorType(DType.F32, (40, 9, 600)))
    b = Builder(name="layer")
    graph = Graph((x,), order([total := b(OPS["sum_to"], b(OPS["silu"], x.value), shape=(40, 1, 600))]), {"y": total})
    assert reduction_outputs(graph) is graph


def test_a_sum_that_keeps_axes_leaves_an_operand_that_others_read() -> None:
    x = Input("x", Kind.DATA, TensorType(DType.F32, (40, 600)))
    b = Builder(name="layer")
    doubled = b(OPS["add"], x.value, x.value)
    results = {"y": doubled, "total": b(OPS["sum_to"], doubled, shape=(1, 600))}
    graph = Graph((x,), order([*results.values()]), results)
    assert reduction_outputs(graph) is graph


@pytest.mark.parametrize("dtype", [DType.B1, DType.I8, DType.I32, DType.U8, DType.I64, DType.U64])
def test_a_sum_that_widens_its_operand_stays_a_sum(dtype: DType) -> None:
    """Integers are summed in i64, u64 in u64; a ``fused_sums`` has the dtype of its operand."""
    x = Input("x", Kind.DATA, TensorType(dtype, (300, 400)))
    b = Builder(name="count")
    computed = b(OPS["logical_not" if dtype is DType.B1 else "abs"], x.value)
    results = {"total": b(OPS["sum"], computed, over=(1,), keep=False)}
    graph = Graph((x,), order([*results.values()]), results)
    for found in (reduction_outputs(graph), horizontal_reductions(graph)):
        verify_graph(found)
        feeds = feeds_of(graph, 3)
        assert_same_bits(evaluate(graph, feeds), evaluate(found, feeds))
    widens = graph.nodes[-1].types[0].dtype is not dtype
    assert (reduction_outputs(graph) is graph) == widens


@pytest.mark.parametrize("dtype", [DType.B1, DType.I32])
def test_sums_that_widen_are_not_merged(dtype: DType) -> None:
    x = Input("x", Kind.DATA, TensorType(dtype, (300, 400)))
    b = Builder(name="counts")
    op = OPS["logical_not" if dtype is DType.B1 else "abs"]
    results = {f"total{i}": b(OPS["sum"], y, over=(1,), keep=False) for i, y in enumerate((x.value, b(op, x.value)))}
    graph = Graph((x,), order([*results.values()]), results)
    found = horizontal_reductions(graph)
    verify_graph(found)
    feeds = feeds_of(graph, 3)
    assert_same_bits(evaluate(graph, feeds), evaluate(found, feeds))
