"""Concat on a GPU: one launch for neighbours of one size; in the simulator, and as it compiles."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gpu_kernels import simulator
from gpu_kernels.on_ptx_machine import on_machine
from gpu_kernels.sample_nodes import OPS
from gpu_kernels.simulation import simulated

from dslc.compiler.codegen.cuda import compile as cuda_compile
from dslc.compiler.codegen.cuda.lower import lower
from dslc.compiler.codegen.cuda.ops.copies.boxes import Boxes
from dslc.compiler.codegen.cuda.ops.copies.concat import Concat
from dslc.compiler.ir.graph import Input, Kind, Node
from dslc.compiler.ir.op import Builder
from dslc.compiler.ir.types import DType, TensorType

#: Of several sizes: shapes, axis, elements that a thread copies at once of f32 and bf16.
MIXED: list[tuple[list[tuple[int, ...]], int, dict[DType, int]]] = [
    ([(6, 8), (6, 8), (6, 4), (6, 4), (6, 8)], 1, {DType.F32: 4, DType.BF16: 4}),
    ([(2, 3, 5), (2, 0, 5), (2, 4, 5), (2, 1, 5)], 1, {DType.F32: 1, DType.BF16: 1}),  # nothing in the middle
    ([(7, 64), (7, 0), (7, 32)], 1, {DType.F32: 4, DType.BF16: 8}),  # as a layer and those before it
    ([(40, 16), *((40, n) for n in range(1, 8))], 1, {DType.F32: 1, DType.BF16: 1}),
    ([(70, 33), (70, 61), (70, 3)], 1, {DType.F32: 1, DType.BF16: 1}),  # several blocks of single elements
    ([(3, 2, 4), (700, 2, 4), (1, 2, 4)], 0, {DType.F32: 4, DType.BF16: 8}),  # several blocks
]
CASES: list[tuple[list[tuple[int, ...]], int, list[int]]] = [
    # shapes, axis, how many tensors each launch takes
    ([(6, 8)] * 4, 1, [4]),
    ([(5, 3)] * 3, 1, [3]),  # no vectors
    ([(6, 1, 24)] * 50, 1, [50]),
    ([(600, 8), (600, 8)], 0, [2]),  # several blocks each
    ([(2, 3, 5), (2, 0, 5), (2, 3, 5)], 1, [2]),  # nothing in the middle
    ([(2, 3, 5), (2, 0, 5), (2, 4, 5)], 1, [1, 1]),  # two that are no whole vectors
    ([(2,)] * 502, 0, [500, 2]),
]


def node_of(shapes: list[tuple[int, ...]], axis: int, dtype: DType) -> Node:
    values = [Input(f"x{i}", Kind.DATA, TensorType(dtype, s)).value for i, s in enumerate(shapes)]
    return Builder(name="here").node(OPS["concat"], *values, axis=axis)


@pytest.mark.parametrize("dtype", [DType.F32, DType.BF16, DType.I64, DType.U8])
@pytest.mark.parametrize(("shapes", "axis", "together"), CASES)
def test_tensors_of_one_size_take_one_launch(
    shapes: list[tuple[int, ...]], axis: int, together: list[int], dtype: DType
) -> None:
    node, rng = node_of(shapes, axis, dtype), np.random.default_rng(5)
    xs: list[Any] = [rng.integers(0, 100, s) for s in shapes]
    xs = [simulator.held(x, dtype) if dtype.is_float else x for x in xs]
    assert [len(launch.reads) for launch in lower(node) or []] == together
    [got] = simulated(node, xs) or []
    assert np.array_equal(got, np.concatenate(xs, axis=axis))


@pytest.mark.parametrize("dtype", [DType.F32, DType.BF16])
@pytest.mark.parametrize(("shapes", "axis", "vectors"), MIXED)
def test_tensors_of_several_sizes_take_one_launch(
    shapes: list[tuple[int, ...]], axis: int, vectors: dict[DType, int], dtype: DType
) -> None:
    node = node_of(shapes, axis, dtype)
    [launch] = lower(node) or []
    assert isinstance(launch.spec, Boxes) and launch.spec.vector == vectors[dtype]
    xs = [simulator.held(np.random.default_rng(5).normal(size=s), dtype) for s in shapes]
    np.testing.assert_array_equal(on_machine(node, xs)[0], np.concatenate(xs, axis=axis))


def test_a_launch_takes_no_more_tensors_than_a_block_may_search() -> None:
    shapes = [(2, 1 + i % 2) for i in range(131)]
    assert [len(launch.reads) for launch in lower(node_of(shapes, 1, DType.F32)) or []] == [48, 48, 35]


def test_what_is_large_is_copied_by_itself() -> None:
    node = node_of([(1024, 1024)] * 3, 0, DType.F32)
    assert [len(launch.reads) for launch in lower(node) or []] == [1, 1, 1]


def test_it_moves_whole_vectors() -> None:
    [launch] = lower(node_of([(256, 1024)] * 4, 1, DType.BF16)) or []
    assert isinstance(launch.spec, Concat) and launch.spec.vector == 8
    ptx = cuda_compile.compiled(launch.spec, "k", "sm_90").ptx.decode("ascii")
    assert ".local" not in ptx and "st.global.v4" in ptx
