"""Bits in place of values that are only compared: the same results, and which nodes read what."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from graphs.batchnorm_net import batchnorm_feeds, batchnorm_graph
from graphs.random_graphs import evaluate

from dslc.compiler.ir.graph import Graph, Input, Kind, Node, order
from dslc.compiler.ir.op import OPS, Builder
from dslc.compiler.ir.types import DType, TensorType
from dslc.compiler.ir.verify.graph import verify_graph
from dslc.compiler.ops.constants.constant import constant
from dslc.compiler.passes import queries
from dslc.compiler.passes.fuse.pointwise.bitmask import _stretch, bitmask
from dslc.compiler.passes.fuse.pointwise.inline import inline
from dslc.compiler.passes.fuse.pointwise.pointwise import fuse_graph
from dslc.compiler.passes.fuse.reduction.reduction_outputs import reduction_outputs
from dslc.compiler.passes.lower.decompose import decompose
from dslc.compiler.passes.lower.layout.channels_last import Rule, channels_last
from dslc.compiler.passes.lower.simplify.simplify import simplify_graph


def names(node: Node) -> list[str]:
    return [name for name, _, _ in node.attrs.get("body", ())]  # type: ignore[union-attr,misc]


@pytest.mark.parametrize("last", [False, True])
def test_gradients_of_a_block_read_bits(last: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The end of a block is compared with zero by sums that also write what they add up."""
    monkeypatch.setattr(queries, "SMALL_BYTES", 128)
    graph = simplify_graph(decompose(channels_last(batchnorm_graph(tmp_path, "f32"), Rule(lambda node: last))))
    before = reduction_outputs(inline(fuse_graph(graph), lambda _: True))
    found = bitmask(before)
    verify_graph(found)
    assert bitmask(found) is found
    asking = [n for n in found.nodes if "unpack_bits" in names(n)]
    packing = [n for n in found.nodes if "pack_bits" in names(n)]
    # sums along rows of f32 would have another order
    assert any("kept" in n.attrs for n in asking) == last == bool(packing)
    assert len(found.nodes) == len(before.nodes)
    feeds = batchnorm_feeds(graph)
    wanted, got = evaluate(before, feeds), evaluate(found, feeds)
    assert wanted.keys() == got.keys() and all(np.array_equal(got[k], v, equal_nan=True) for k, v in wanted.items())


@pytest.mark.parametrize(
    ("shape", "also", "asked"),
    [((4, 6, 16), False, True), ((4, 6, 16), True, False), ((3, 5, 7), False, False), ((300, 2, 4), False, True)],
)
def test_only_what_is_compared_and_nothing_more(
    shape: tuple[int, ...], also: bool, asked: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not where the node reads the value for something else, too, nor where bytes would not be whole."""
    monkeypatch.setattr(queries, "SMALL_BYTES", 0)
    b = Builder(name="layer")
    x, dy = (Input(n, Kind.DATA, TensorType(DType.F32, shape)) for n in ("x", "dy"))
    y = b(OPS["relu"], b(OPS["add"], x.value, x.value))
    zero = constant(b, 0.0, y)
    dx = b(OPS["where"], b(OPS["le"], y, zero), zero, b(OPS["mul"], dy.value, y) if also else dy.value)
    # what both read stands between them, so that they are two nodes
    between = b(OPS["sum"], y, over=(0, 1, 2), keep=False)
    results = {"dx": b(OPS["mul"], dx, between), "y": y}
    graph = fuse_graph(Graph((x, dy), order([*results.values()]), results))
    found = bitmask(graph)
    verify_graph(found)
    assert any("unpack_bits" in names(n) for n in found.nodes) == asked
    feeds = {"x": np.linspace(-1, 1, int(np.prod(shape)), dtype=np.float32).reshape(shape)}
    feeds["x"][0, 0, 0], feeds["dy"] = np.nan, np.ones(shape, np.float32)
    wanted, got = evaluate(graph, feeds), evaluate(found, feeds)
    assert all(np.array_equal(got[k], v, equal_nan=True) for k, v in wanted.items())


def test_one_op_may_give_its_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    """An op that nothing is fused with becomes the first step of a node of two results."""
    monkeypatch.setattr(queries, "SMALL_BYTES", 0)
    b, shape = Builder(name="layer"), (4, 16)
    x, dy = (Input(n, Kind.DATA, TensorType(DType.F32, shape)) for n in ("x", "dy"))
    y = b(OPS["relu"], x.value)
    body = (
        ("full", (), (("dtype", DType.F32), ("shape", ()), ("value", 0.0))),
        ("le", (0, 2), ()),
        ("where", (3, 2, 1), ()),
    )
    dx = b(OPS["fused"], y, dy.value, body=body)
    graph = Graph((x, dy), order([y, dx]), {"y": y, "dx": dx})
    found = bitmask(graph)
    verify_graph(found)
    assert any("pack_bits" in names(n) for n in found.nodes)
    feeds = {"x": np.linspace(-1, 1, 64, dtype=np.float32).reshape(shape), "dy": np.ones(shape, np.float32)}
    wanted, got = evaluate(graph, feeds), evaluate(found, feeds)
    assert all(np.array_equal(got[k], v) for k, v in wanted.items())


def test_the_stretch_of_a_row(fuzz_count: Callable[[int], int], fuzz_seed: int) -> None:
    """Against every number of last axes: all of them summed or none, each input broadcast on all of them or on none."""
    rng, found = random.Random(fuzz_seed), set()
    for _ in range(fuzz_count(2000)):
        rank = rng.randint(1, 5)
        shape = tuple(rng.randint(2, 4) for _ in range(rank))
        over = tuple(sorted(rng.sample(range(rank), rng.randint(1, rank))))
        inputs = []
        for _ in range(rng.randint(1, 3)):
            sizes = tuple(1 if rng.random() < 0.3 else size for size in shape)
            inputs.append(TensorType(DType.F32, sizes[rng.choice((0, 0, rng.randint(0, rank))) :]))
        sums = SimpleNamespace(attrs={"over": over}, input_types=inputs)
        best = 1
        for count in range(1, rank + 1):
            axes = range(rank - count, rank)
            wide = [(1,) * (rank - t.rank) + t.ints for t in inputs if t.rank]
            alike = [{axis in over for axis in axes}, *({x[axis] == 1 for axis in axes} for x in wide)]
            if all(len(each) == 1 for each in alike):
                best = math.prod(shape[axis] for axis in axes)
        assert _stretch(sums, shape) == best, (shape, over, inputs)  # type: ignore[arg-type]
        found.add(best)
    assert len(found) > 5  # 200 cases give about 15
