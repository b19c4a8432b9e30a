"""Sums and what becomes of them in one node: the same bits, and statistics written over the old ones."""

from __future__ import annotations

from pathlib import Path

import pytest
from graphs.batchnorm_net import batchnorm_feeds, batchnorm_graph
from graphs.random_graphs import assert_same_bits, evaluate, feeds_of

from dslc.compiler import pipeline
from dslc.compiler.check.model import check_file
from dslc.compiler.ir.graph import Graph, Input, Kind, order
from dslc.compiler.ir.op import OPS, Builder
from dslc.compiler.ir.types import DType, TensorType
from dslc.compiler.ir.verify.graph import verify_graph
from dslc.compiler.ops.compound.fused_sums import fused_sums
from dslc.compiler.options import Options
from dslc.compiler.passes.fuse.horizontal.horizontal import horizontal
from dslc.compiler.passes.fuse.pointwise.inline import inline
from dslc.compiler.passes.fuse.pointwise.pointwise import fuse_graph
from dslc.compiler.passes.fuse.reduction.reduction_epilogue import reduction_epilogue
from dslc.compiler.passes.lower.decompose import decompose
from dslc.compiler.passes.lower.layout.channels_last import Rule, channels_last
from dslc.compiler.passes.lower.simplify.simplify import simplify_graph


@pytest.mark.parametrize("last", [False, True])
def test_statistics_come_with_the_sums(last: bool, tmp_path: Path) -> None:
    graph = simplify_graph(decompose(channels_last(batchnorm_graph(tmp_path, "f32"), Rule(lambda node: last))))
    before = inline(horizontal(fuse_graph(graph)), lambda _: True)
    found = reduction_epilogue(before)
    verify_graph(found)
    assert reduction_epilogue(found) is found
    finished = [n for n in found.nodes if n.op.name == "finished_sums"]
    assert finished and len(found.nodes) == len(before.nodes) - len(finished)
    feeds = batchnorm_feeds(graph)
    assert_same_bits(evaluate(before, feeds), evaluate(found, feeds))


@pytest.mark.parametrize("early", [True, False])
def test_not_where_something_comes_later(early: bool) -> None:
    """Two sums, of which the later one may have what reads both."""
    x = Input("x", Kind.DATA, TensorType(DType.F32, (40, 8)))
    b = Builder(name="layer")
    attrs = {"body": (), "summed": (0,), "over": (0,)}
    first = b.node(fused_sums, x.value, **attrs).outputs[0]
    second = b.node(fused_sums, b(OPS["neg"], x.value), **attrs).outputs[0]
    results = {"y": b(OPS["add"], first, second), "z": b(OPS["neg"], first if early else second)}
    graph = Graph((x,), order([*results.values()]), results)
    found = reduction_epilogue(graph)
    verify_graph(found)
    assert [n.op.name for n in found.nodes].count("finished_sums") == (2 if early else 1)
    feeds = feeds_of(graph, 0)
    assert_same_bits(evaluate(graph, feeds), evaluate(found, feeds))


def test_running_statistics_are_written_in_place(tmp_path: Path) -> None:
    """No copy of theirs is left at the end of the step."""
    batchnorm_graph(tmp_path, "f32")
    [source] = tmp_path.glob("*.nn")
    checked = check_file(source)
    sizes = {d.name: d.default for d in checked.dims}
    program, _ = pipeline.compile_entry(checked, "train_step", sizes, Options(target="sm_90", provider="own"))
    assert any(n.op.name == "finished_sums" for n in program.graph.nodes)
    assert program.memory is not None and program.memory.moves == ()
