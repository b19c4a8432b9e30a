"""recompute_inputs: a node computes an input again from values that it reads in any case; the same bits."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from graphs.batchnorm_net import batchnorm_feeds, batchnorm_graph, image_elements
from graphs.random_graphs import assert_same_bits, evaluate

from dslc.compiler.ir.graph import Graph, Input, Kind, order
from dslc.compiler.ir.op import OPS, Builder
from dslc.compiler.ir.types import DType, TensorType
from dslc.compiler.ir.verify import verify_graph
from dslc.compiler.ops.constant import constant
from dslc.compiler.passes.fuse import body as bodies
from dslc.compiler.passes.fuse.duplicate import duplicate
from dslc.compiler.passes.fuse.pointwise import fuse_graph
from dslc.compiler.passes.fuse.recompute_inputs import recompute_inputs
from dslc.compiler.passes.lower.channels_last import channels_last
from dslc.compiler.passes.lower.decompose import decompose
from dslc.compiler.passes.lower.simplify import simplify_graph


def test_a_value_with_loaded_inputs_is_recomputed_with_the_same_bits(
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
    assert image_elements(absorbed) - image_elements(found) == 3 * 2 * 4 * 8 * 8 * 8


def test_a_mask_put_together_is_computed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bodies, "SMALL_BYTES", 16)
    x, b = Input("x", Kind.DATA, TensorType(DType.F32, (8, 4))), Builder(name="a")
    body = (("gt", (0, 1), ()), ("lt", (0, 2), ()), ("logical_and", (3, 4), ()), ("logical_not", (5,), ()))
    low, high, zero = (constant(b, value, x.value) for value in (0.25, 0.75, 0.0))
    mask = b(OPS["fused"], x.value, low, high, body=body)
    kept = b(OPS["where"], mask, x.value, zero)
    graph = Graph((x,), order([mask, kept]), {"result.mask": mask, "result.kept": kept})
    found = recompute_inputs(graph)
    verify_graph(found)
    assert mask not in found.outputs["result.kept"].producer.inputs  # type: ignore[union-attr]
    feeds = {"x": np.random.default_rng(0).random((8, 4), np.float32)}
    wanted, got = evaluate(graph, feeds), evaluate(found, feeds)
    assert all(np.array_equal(got[k], v) for k, v in wanted.items())
