"""Graphs with a dropout, and their results by the simulator."""

from __future__ import annotations

from typing import Any

import numpy as np
from gpu_kernels import simulator
from gpu_kernels.simulation import simulated

from dslc.compiler.ir.graph import Graph, Input, Kind, Phase, Value, order
from dslc.compiler.ir.op import OPS, Builder
from dslc.compiler.ir.types import DType, TensorType

SCALARS = {"seed": 0x1234567890ABCDEF, "step": 7, "row": 3}


def value(name: str, dtype: DType, *shape: int) -> Input:
    kind = Kind.SCALAR if name in SCALARS else Kind.DATA
    return Input(name, kind, TensorType(dtype, shape))


def net(dtype: DType, rows: int, columns: int, p: float = 0.25) -> Graph:
    """dropout(relu(x + bias)) + r."""
    x, r, bias = value("x", dtype, rows, columns), value("r", dtype, rows, columns), value("bias", dtype, columns)
    scalars = [value(name, DType.I64) for name in SCALARS]
    b = Builder(name="here")
    inner = b(OPS["relu"], b(OPS["add"], x.value, bias.value))
    attrs = {"p": p, "key": 0xFEDCBA9876543210, "row_elements": columns}
    drawn = b(OPS["dropout"], inner, *(s.value for s in scalars), **attrs)
    return graph_with([x, r, bias, *scalars], b(OPS["add"], drawn, r.value))


def gradient(dtype: DType, shape: tuple[int, ...], over: tuple[int, ...], p: float = 0.25) -> Graph:
    """dx = (x + bias) * dropout(dy), and its sums."""
    x, dy, bias = value("x", dtype, *shape), value("dy", dtype, *shape), value("bias", dtype, *shape[-1:])
    scalars = [value(name, DType.I64) for name in SCALARS]
    b = Builder(name="here", phase=Phase.BACKWARD)
    attrs: dict[str, Any] = {"p": p, "key": 0xFEDCBA9876543210, "row_elements": int(np.prod(shape[1:]))}
    drawn = b(OPS["dropout"], dy.value, *(s.value for s in scalars), **attrs)
    body = (("add", (0, 1), ()), ("mul", (3, 2), ()))
    sums = b.node(OPS["fused_sums"], x.value, bias.value, drawn, body=body, summed=(4,), over=over, kept=(4,))
    return graph_with([x, dy, bias, *scalars], *sums.outputs)


def graph_with(inputs: list[Input], *results: Value) -> Graph:
    return Graph(tuple(inputs), order(results), {f"y{i}": v for i, v in enumerate(results)})


def given(graph: Graph) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(1)
    found: dict[str, Any] = {}
    for i in graph.inputs:
        type = i.value.type
        drawn = (
            np.asarray(SCALARS[i.name]) if i.name in SCALARS else simulator.held(rng.normal(size=type.ints), type.dtype)
        )
        found[i.name] = drawn if type.dtype is not DType.F64 else drawn.astype(np.float64)
    return found


def run(graph: Graph) -> list[np.ndarray]:
    """All results by the kernels' texts; a dropout alone by its meaning."""
    feeds = given(graph)
    known = {i.value: feeds[i.name] for i in graph.inputs}
    for node in graph.nodes:
        xs = [known[v] for v in node.inputs]
        found = simulated(node, xs)
        if found is None:
            assert node.op.name == "dropout"
            found = [simulator.held(node.op.meaning(xs, node.attrs)[0], node.types[0].dtype)]
        known.update(zip(node.outputs, found))
    return [known[v] for v in graph.outputs.values()]
