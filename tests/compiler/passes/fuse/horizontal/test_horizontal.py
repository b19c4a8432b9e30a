"""horizontal: small nodes become one node; the same bits."""

from __future__ import annotations

from pathlib import Path

from graphs.batchnorm_net import batchnorm_feeds, batchnorm_graph
from graphs.random_graphs import assert_same_bits, evaluate

from dslc.compiler.ir.verify.graph import verify_graph
from dslc.compiler.passes.fuse.horizontal.horizontal import horizontal
from dslc.compiler.passes.fuse.pointwise.pointwise import fuse_graph
from dslc.compiler.passes.lower.decompose import decompose
from dslc.compiler.passes.lower.layout.channels_last import Rule, channels_last
from dslc.compiler.passes.lower.simplify.simplify import simplify_graph


def test_small_nodes_join_with_the_same_bits(tmp_path: Path) -> None:
    graph = fuse_graph(
        simplify_graph(decompose(channels_last(batchnorm_graph(tmp_path, "f32"), Rule(lambda node: True))))
    )
    joined = horizontal(graph)
    verify_graph(joined)
    assert horizontal(joined) is joined
    feeds = batchnorm_feeds(graph)
    assert_same_bits(evaluate(graph, feeds), evaluate(joined, feeds))
    # forward, one node a norm for the new statistics; backward, one for the two means and the scale
    vectors = [n for n in joined.nodes if n.op.name == "fused" and n.types[0].rank == 1 and len(n.outputs) > 1]
    assert len(vectors) >= 5 and len(joined.nodes) < len(graph.nodes) - 20
    assert max(len(n.outputs) for n in vectors) >= 4
