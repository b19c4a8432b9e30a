"""Sums that are joined have the bits of the sums, run by the simulator."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gpu_kernels import simulator
from gpu_kernels.simulation import simulated

from dslc.compiler.codegen.cuda import compile as cuda_compile
from dslc.compiler.codegen.cuda.lower import lower
from dslc.compiler.ir.graph import Graph, Input, Kind, order
from dslc.compiler.ir.op import OPS, Builder
from dslc.compiler.ir.types import DType, TensorType
from dslc.compiler.passes.fuse.horizontal.horizontal_reductions import horizontal_reductions


def joined(shape: tuple[int, ...], over: tuple[int, ...], dtype: DType, ops: tuple[str, ...]) -> tuple[Graph, Graph]:
    """Sums or means of as many tensors, by themselves and together."""
    inputs = [Input(f"x{i}", Kind.DATA, TensorType(dtype, shape)) for i in range(len(ops))]
    b = Builder(name="here")
    found = [b(OPS[op], x.value, over=over, keep=False) for op, x in zip(ops, inputs)]
    graph = Graph(tuple(inputs), order(found), {f"y{i}": v for i, v in enumerate(found)})
    return graph, horizontal_reductions(graph)


def run(graph: Graph) -> list[np.ndarray]:
    rng = np.random.default_rng(1)
    known: dict[Any, np.ndarray] = {
        i.value: simulator.held(rng.normal(size=i.value.type.ints), i.value.type.dtype) for i in graph.inputs
    }
    for node in graph.nodes:
        found = simulated(node, [known[v] for v in node.inputs])
        assert found is not None
        known.update(zip(node.outputs, found))
    return [known[v] for v in graph.outputs.values()]


@pytest.mark.parametrize("dtype", [DType.F32, DType.BF16, DType.F64])
@pytest.mark.parametrize(
    ("shape", "over"),
    [((64, 512), (0,)), ((64,), (0,)), ((128, 20), (0,)), ((7, 300), (1,)), ((8, 6, 10), (0, 2)), ((1200, 100), (0,))],
)
def test_the_bits_are_those_of_the_sums(dtype: DType, shape: tuple[int, ...], over: tuple[int, ...]) -> None:
    ops = ("sum", "sum", "sum") if dtype is DType.BF16 else ("mean", "sum", "mean")
    apart, together = joined(shape, over, dtype, ops)
    assert len(together.nodes) == 1
    for one, other in zip(run(apart), run(together), strict=True):
        assert one.tobytes() == other.tobytes()


@pytest.mark.parametrize("dtype", [DType.F32, DType.BF16])
def test_registers_hold_four_sums(dtype: DType) -> None:
    _, together = joined((128, 512), (0,), dtype, ("sum",) * 4)
    [launch] = lower(together.nodes[0]) or []
    assert ".local" not in cuda_compile.compiled(launch.code, launch.symbol, "sm_90").ptx.decode("ascii")
