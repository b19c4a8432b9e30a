"""A kernel with two large results writes the bits of the two kernels that it stands for, run by the simulator."""

from __future__ import annotations

import numpy as np
import pytest
from gpu_kernels import simulator
from gpu_kernels.simulation import simulated

from dslc.compiler.ir.graph import Graph, Input, Kind, Node, Phase, Value, order
from dslc.compiler.ir.op import OPS, Builder
from dslc.compiler.ir.types import DType, TensorType
from dslc.compiler.passes.fuse.pointwise.pointwise import fuse_graph
from dslc.compiler.passes.fuse.pointwise.recompute_outputs import recompute_outputs


def _step(shape: tuple[int, ...], dtype: DType) -> tuple[Graph, list[Input]]:
    """Of x and dy: a product of both by channel, and relu(x * scale + bias) once more, for a product of matrices."""
    channels = shape[-1]
    tensors = [Input(n, Kind.DATA, TensorType(dtype, shape)) for n in ("x", "dy")]
    vectors = [Input(n, Kind.DATA, TensorType(DType.F32, (channels,))) for n in ("scale", "bias", "slope")]
    x, dy = (t.value for t in tensors)
    scale, bias, slope = (v.value for v in vectors)
    back, again = Builder(name="b", phase=Phase.BACKWARD), Builder(name="a", phase=Phase.MIRROR)

    def wide(b: Builder, v: Value) -> Value:
        return v if dtype is DType.F32 else b(OPS["cast"], v, dtype=DType.F32)

    def narrow(b: Builder, v: Value) -> Value:
        return v if dtype is DType.F32 else b(OPS["cast"], v, dtype=dtype)

    copy = narrow(again, again(OPS["add"], again(OPS["mul"], wide(again, x), scale), bias))
    copy = again(OPS["relu"], copy)
    away = back(OPS["sub"], wide(back, dy), back(OPS["mul"], wide(back, x), slope))
    dx = narrow(back, back(OPS["mul"], away, scale))
    rows = back(OPS["reshape"], copy, shape=(x.type.elements // channels, channels))
    product = back(OPS["matmul"], rows, rows, transpose_a=True, transpose_b=False)
    outputs = {"result.dx": dx, "result.w": product}
    return Graph((*tensors, *vectors), order(outputs.values()), outputs), [*tensors, *vectors]


@pytest.mark.parametrize("dtype", [DType.BF16, DType.F32])
@pytest.mark.parametrize("shape", [(4, 14, 14, 64), (3, 37, 331)])
def test_two_results_are_those_of_two_kernels(shape: tuple[int, ...], dtype: DType) -> None:
    graph, inputs = _step(shape, dtype)
    apart = fuse_graph(graph)
    together = recompute_outputs(apart)
    [both] = [n for n in together.nodes if len(n.outputs) == 2]
    assert both.op.name == "fused"
    rng = np.random.default_rng(1)
    arrays = {i.name: simulator.held(rng.standard_normal(i.value.type.ints).astype(np.float32), i.value.type.dtype)
              for i in inputs}  # fmt: skip

    def run(node: Node) -> list[np.ndarray]:
        named = {i.value: arrays[i.name] for i in inputs}
        found = simulated(node, [named[v] for v in node.inputs])
        assert found is not None, "no region"
        return found

    expected = [run(n)[0] for n in apart.nodes if n.op.name == "fused"]
    got = run(both)
    assert len(expected) == 2 and {x.tobytes() for x in got} == {x.tobytes() for x in expected}
    assert got[0].tobytes() != got[1].tobytes()
