"""duplicate: sums compute their inputs themselves; the same numbers, fewer bytes."""

from __future__ import annotations

from pathlib import Path

from graphs.batchnorm_net import batchnorm_feeds, batchnorm_graph, image_elements
from graphs.random_graphs import assert_same_bits, evaluate

from dslc.compiler.ir.verify import verify_graph
from dslc.compiler.passes.fuse.duplicate import duplicate
from dslc.compiler.passes.fuse.pointwise import fuse_graph
from dslc.compiler.passes.lower.channels_last import channels_last
from dslc.compiler.passes.lower.decompose import decompose
from dslc.compiler.passes.lower.simplify import simplify_graph


def test_sums_take_their_inputs_in_with_the_same_bits(tmp_path: Path) -> None:
    graph = simplify_graph(decompose(channels_last(batchnorm_graph(tmp_path, "f32"), lambda node: True)))
    fused = fuse_graph(graph)
    absorbed = duplicate(fused)
    verify_graph(absorbed)
    assert duplicate(absorbed) is absorbed
    feeds = batchnorm_feeds(graph)
    assert_same_bits(evaluate(fused, feeds), evaluate(absorbed, feeds))
    assert image_elements(absorbed) < image_elements(fused)
