"""put_rows on a GPU: rows written in place, and into a copy; ids that are equal or do not exist."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gpu_kernels import simulator
from gpu_kernels.on_ptx_machine import on_machine, run_launches
from gpu_kernels.sample_nodes import node_of, wanted

from dslc.compiler.codegen.cuda.lower import lower
from dslc.compiler.ir.graph import Input, Kind, Node
from dslc.compiler.ir.op import Builder
from dslc.compiler.ir.types import DType, TensorType
from dslc.compiler.ops.compound.strided_attention import View
from dslc.compiler.ops.index.put_rows import put


def value(dtype: DType, *shape: int) -> Any:
    return Input("x", Kind.DATA, TensorType(dtype, shape)).value


def cache(source: DType, rows: int = 3) -> Node:
    """Keys and values of ``rows`` tokens, two parts of three of one tensor, put into two caches."""
    views = [View((rows, 2, 8), (48, 8, 1), start) for start in (16, 32)]
    qkv, tables = value(source, rows, 48), [value(DType.F32, 300, 2, 8) for _ in views]
    return put(Builder(name="here"), tables, [(qkv, view) for view in views], value(DType.I32, rows))


@pytest.mark.parametrize("dtype", ["f32", "bf16", "f64"])
@pytest.mark.parametrize("number", range(5))
def test_samples(number: int, dtype: str) -> None:
    node, xs = node_of("put_rows", number, dtype)
    for found, known in zip(on_machine(node, xs), wanted(node, xs, dtype) or [], strict=True):
        np.testing.assert_array_equal(found, known)


@pytest.mark.parametrize("source", [DType.BF16, DType.F32])
@pytest.mark.parametrize("ids", [(7, 299, 0), (4, 9, 4), (5, 300, 1)])
def test_in_place_only_the_rows_are_written(source: DType, ids: tuple[int, ...]) -> None:
    node, rng = cache(source), np.random.default_rng(3)
    tables = [rng.normal(size=(300, 2, 8)).astype(np.float32) for _ in range(2)]
    qkv = simulator.held(rng.normal(size=(3, 48)).astype(np.float32), source)
    known = node.op.meaning([*tables, qkv, qkv, np.array(ids, np.int32)], node.attrs)
    memory: dict[Any, np.ndarray] = {node.inputs[i]: tables[i].reshape(-1).copy() for i in range(2)}
    memory |= {node.outputs[i]: memory[node.inputs[i]] for i in range(2)}
    memory[node.inputs[2]] = simulator.memory(qkv.reshape(-1), source)
    memory[node.inputs[4]] = np.array(ids, np.int32)
    launches = lower(node)
    assert launches is not None
    [launch] = launches
    run_launches(launches, memory)
    for number in range(2):
        np.testing.assert_array_equal(memory[node.outputs[number]].reshape(300, 2, 8), known[number])
    assert launch.spec.vector == 4 and launch.spec.geometry.grid == (5, 2, 1)
