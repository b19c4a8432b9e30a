"""row_bodies: neighbours of reductions and other ops in their kernels; the same bits, fewer nodes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from gpu_kernels import simulator
from gpu_kernels.simulation import simulated
from graphs.random_graphs import assert_same_bits, evaluate

from dslc.compiler.codegen.cuda.lower import lower
from dslc.compiler.ir.graph import Graph, Input, Kind, Node, Value, order
from dslc.compiler.ir.op import OPS, Builder
from dslc.compiler.ir.types import DType, TensorType
from dslc.compiler.ir.verify.graph import verify_graph
from dslc.compiler.passes.fuse.pointwise.inline import inline
from dslc.compiler.passes.fuse.pointwise.pointwise import fuse_graph
from dslc.compiler.passes.fuse.reduction.row_bodies import row_bodies

Made = Callable[[Builder, Value], Value]


def has_kernel(node: Node) -> bool:
    return lower(node) is not None


def graph_of(made: Made, *shape: int, dtype: DType = DType.BF16) -> Graph:
    x, b = Input("x", Kind.DATA, TensorType(dtype, shape)), Builder(name="a")
    y = made(b, x.value)
    return Graph((x,), order([y]), {"result.y": y})


def op(b: Builder, name: str, *inputs: Value, **attrs: Any) -> Value:
    return b(OPS[name], *inputs, **attrs)


def wide(b: Builder, x: Value) -> Value:
    return op(b, "cast", x, dtype=DType.F32)


def narrow(b: Builder, x: Value) -> Value:
    return op(b, "cast", x, dtype=DType.BF16)


def on_gpu(graph: Graph, feeds: dict[str, np.ndarray]) -> np.ndarray:
    known: dict[Any, np.ndarray] = {i.value: simulator.held(feeds[i.name], i.value.type.dtype) for i in graph.inputs}
    for node in graph.nodes:
        found = simulated(node, [known[v] for v in node.inputs])
        assert found is not None
        known.update(zip(node.outputs, found))
    return known[graph.outputs["result.y"]]


def variance(b: Builder, x: Value) -> Value:
    mean = op(b, "mean", wide(b, x), over=(1,), keep=True)
    apart = op(b, "sub", wide(b, x), mean)
    return narrow(b, op(b, "mean", op(b, "mul", apart, apart), over=(1,), keep=False))


CASES: dict[str, tuple[Made, int]] = {
    "softmax": (lambda b, x: narrow(b, op(b, "softmax", wide(b, x), axis=1)), 1),
    "softmax of columns": (lambda b, x: narrow(b, op(b, "softmax", wide(b, x), axis=0)), 1),
    "mean": (lambda b, x: narrow(b, op(b, "mean", wide(b, x), over=(0, 1), keep=False)), 1),
    "norm": (lambda b, x: narrow(b, op(b, "norm", wide(b, x), over=(1,), keep=True, p=2.0)), 1),
    "cumsum": (lambda b, x: narrow(b, op(b, "cumsum", wide(b, x), axis=1, reverse=False)), 1),
    "transpose": (lambda b, x: op(b, "exp", op(b, "transpose", op(b, "tanh", wide(b, x)), perm=(1, 0))), 1),
    "variance": (variance, 2),
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("shape", [(12, 40), (5, 2000), (600, 8), (3, 1)], ids=str)
def test_the_bits_are_those_of_separate_kernels(name: str, shape: tuple[int, int]) -> None:
    made, nodes = CASES[name]
    graph = fuse_graph(graph_of(made, *shape))
    found = row_bodies(inline(graph, has_kernel), has_kernel)
    verify_graph(found)
    assert len(found.nodes) == nodes and {n.op.name for n in found.nodes} == {"fused_rows"}
    assert row_bodies(found, has_kernel) is found
    if name == "cumsum" and shape == (5, 2000):
        return  # a kernel in CUDA C++, of which test_running.py has the bits
    feeds = {"x": np.random.default_rng(0).normal(size=shape)}
    assert on_gpu(graph, feeds).tobytes() == on_gpu(found, feeds).tobytes()


def test_what_is_read_elsewhere_stays() -> None:
    """A result of the program, and what a pointwise op of another shape reads."""
    x, b = Input("x", Kind.DATA, TensorType(DType.F32, (8, 64))), Builder(name="a")
    e = op(b, "exp", x.value)
    total = op(b, "sum", e, over=(1,), keep=True)
    graph = Graph((x,), order([e, op(b, "div", e, total)]), {"result.e": e, "result.y": op(b, "div", e, total)})
    assert not any(n.op.name == "fused_rows" for n in row_bodies(graph, has_kernel).nodes)


def test_costly_steps_are_not_computed_for_each_pass_over_a_row() -> None:
    def made(name: str, core: str) -> Graph:
        attrs: dict[str, Any] = {"axis": 1} if core == "softmax" else {"over": (1,), "keep": True}
        return graph_of(lambda b, x: op(b, core, op(b, name, x), **attrs), 8, 64, dtype=DType.F32)

    assert len(row_bodies(made("erf", "softmax"), has_kernel).nodes) == 2
    assert len(row_bodies(made("neg", "softmax"), has_kernel).nodes) == 1
    assert len(row_bodies(made("erf", "max"), has_kernel).nodes) == 1


def test_a_target_without_such_a_kernel_keeps_the_nodes() -> None:
    graph = fuse_graph(graph_of(CASES["softmax"][0], 4, 8))
    assert row_bodies(graph, lambda node: False) is graph
    feeds = {"x": np.random.default_rng(0).normal(size=(4, 8)).astype(np.float32)}
    plain = fuse_graph(graph_of(lambda b, x: op(b, "neg", op(b, "softmax", x, axis=1)), 4, 8, dtype=DType.F32))
    assert_same_bits(evaluate(plain, feeds), evaluate(row_bodies(plain, has_kernel), feeds))
