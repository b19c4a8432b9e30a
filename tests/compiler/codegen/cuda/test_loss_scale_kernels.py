"""A training step in f16 as its kernels on a GPU compute it, in the simulator: what it skips, and what it updates."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gpu_kernels.simulation import simulated
from op_laws.evaluation import apply

from dslc.compiler import pipeline
from dslc.compiler.check.model import check_file
from dslc.compiler.ir.graph import Graph, Kind
from dslc.compiler.options import Options
from dslc.runtime.artifact.dtypes import numpy_dtype
from dslc.runtime.artifact.reserved import GOOD_STEPS, LOSS_SCALE, SCALING, SKIPPED_STEPS

MODEL = """nn 1
dim B in 1..64 = 4
model Net(x: [B, 5]) -> [B, 3] {{
  return x |> linear(7) as a |> batchnorm as n |> relu |> linear(3) as head
}}
train Net(label: i32[B]) {{
  loss      = cross_entropy(output, label)
  optimizer = {optimizer}
}}
"""


def graph_of(folder: Path, optimizer: str) -> Graph:
    (folder / "net.nn").write_text(MODEL.format(optimizer=optimizer))
    options = Options(target="sm_90", precision="f16", provider="own")
    program, _ = pipeline.compile_entry(check_file(folder / "net.nn"), "train_step", {"B": 4}, options)
    return program.graph


def feeds_of(graph: Graph, scale: float) -> dict[str, Any]:
    rng = np.random.default_rng(4)
    feeds: dict[str, Any] = {"step": np.int64(6), "lr": np.float32(0.1), "label": np.arange(4, dtype=np.int32) % 3}
    feeds |= {LOSS_SCALE: np.float32(scale), GOOD_STEPS: np.int32(1999), SKIPPED_STEPS: np.int64(2)}
    for source in graph.inputs:
        if source.name not in feeds:
            assert source.kind is not Kind.SCALAR, source.name
            drawn = np.abs(rng.normal(size=source.value.type.ints)).astype(np.float32)
            feeds[source.name] = drawn
    return feeds


def step(graph: Graph, feeds: dict[str, Any], kernels: bool) -> tuple[dict[str, Any], dict[str, Any], set[str]]:
    """Outputs, new states, and the ops that ran as printed kernels; the others by their meanings."""
    known = {i.value: np.asarray(feeds[i.name]) for i in graph.inputs}
    printed: set[str] = set()
    for node in graph.nodes:
        xs = [known[v] for v in node.inputs]
        found = simulated(node, xs) if kernels and not node.op.view else None
        printed |= set() if found is None else {node.op.name}
        with np.errstate(all="ignore"):
            found = apply(node.op, xs, node.attrs) if found is None else found
            for value, y in zip(node.outputs, found, strict=True):
                known[value] = np.asarray(y).astype(numpy_dtype(value.type.dtype.value))
    return (
        {name: known[v] for name, v in graph.outputs.items()},
        {source.name: known[v] for source, v in graph.updates},
        printed,
    )


@pytest.mark.parametrize("optimizer", ["sgd(lr=0.1, momentum=0.9, clip_norm=1.0)", "adamw(lr=0.1)"])
def test_a_step_in_f16(tmp_path: Path, optimizer: str) -> None:
    graph = graph_of(tmp_path, optimizer)
    feeds = feeds_of(graph, 1024.0)
    outputs, states, printed = step(graph, feeds, kernels=True)
    expected, wanted, _ = step(graph, feeds, kernels=False)
    assert {"nonfinite", "fused", "fused_rows"} <= printed
    assert outputs["nonfinite"].tolist() == [0] * 6 and int(outputs["skipped_steps"]) == 2
    assert float(outputs["loss_scale"]) == 1024 and float(outputs["loss"]) == pytest.approx(
        float(expected["loss"]), rel=1e-2
    )
    assert (float(states[LOSS_SCALE]), int(states[GOOD_STEPS])) == (2048, 0), "the 2,000th update"
    for name in states:
        if name not in SCALING:
            np.testing.assert_allclose(states[name], wanted[name], rtol=5e-2, atol=2e-2, err_msg=name)
            assert np.abs(states[name] - feeds[name]).max() > 0, name


@pytest.mark.parametrize("optimizer", ["sgd(lr=0.1, momentum=0.9, clip_norm=1.0)", "adamw(lr=0.1)"])
def test_a_step_in_f16_that_overflows(tmp_path: Path, optimizer: str) -> None:
    graph = graph_of(tmp_path, optimizer)
    feeds = feeds_of(graph, 2.0**24)
    outputs, states, _ = step(graph, feeds, kernels=True)
    assert np.isfinite(outputs["loss"]) and outputs["nonfinite"].any() and int(outputs["skipped_steps"]) == 3
    assert (float(states[LOSS_SCALE]), int(states[GOOD_STEPS]), int(states[SKIPPED_STEPS])) == (2.0**23, 0, 3)
    for name in states.keys() - set(SCALING):
        assert np.array_equal(states[name], feeds[name]), name
