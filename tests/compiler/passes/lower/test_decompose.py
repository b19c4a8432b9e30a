"""decompose: batch norms in parts; the same numbers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from graphs.batchnorm_net import batchnorm_feeds, batchnorm_graph
from graphs.random_graphs import evaluate

from dslc.compiler import pipeline
from dslc.compiler.check.model import check_file
from dslc.compiler.ir.verify.graph import verify_graph
from dslc.compiler.options import Options
from dslc.compiler.passes.lower.decompose import decompose
from dslc.compiler.passes.lower.layout.channels_last import Rule, channels_last
from dslc.compiler.passes.lower.simplify.simplify import simplify_graph


@pytest.mark.parametrize("last", [False, True])
def test_the_parts_compute_the_norm(last: bool, tmp_path: Path) -> None:
    graph = batchnorm_graph(tmp_path, "f64")
    turned = channels_last(graph, Rule(lambda node: last))
    parts = simplify_graph(decompose(turned))
    verify_graph(parts)
    assert not any(n.op.name.startswith("batchnorm") for n in parts.nodes)
    feeds = batchnorm_feeds(graph)
    wanted, got = evaluate(graph, feeds), evaluate(parts, feeds)
    for key, value in wanted.items():
        np.testing.assert_allclose(got[key], value, rtol=1e-8, atol=1e-10, err_msg=key)


@pytest.mark.parametrize("target", ["cpu", "sm_90"])
def test_a_layer_called_twice_moves_its_statistics_twice(target: str, tmp_path: Path) -> None:
    """In the finished graph of each target; the second call's shift is the value after the first call."""
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
