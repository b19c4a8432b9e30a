"""Pads of the last axis on a GPU: one launch, whose indices have 32 bits if those of the result do."""

from __future__ import annotations

import numpy as np
import pytest
from gpu_kernels import simulator
from gpu_kernels.multi_tensor_nodes import value
from gpu_kernels.on_ptx_machine import on_machine
from gpu_kernels.sample_nodes import OPS

from dslc.compiler.codegen.cuda import compile as cuda_compile
from dslc.compiler.codegen.cuda.lower import lower
from dslc.compiler.ir.graph import Node
from dslc.compiler.ir.op import Builder
from dslc.compiler.ir.types import DType


def padded(shape: tuple[int, ...], low: tuple[int, ...], high: tuple[int, ...], dtype: DType) -> Node:
    none = (0,) * len(shape)
    x = value(dtype, shape)
    return Builder(name="here").node(OPS["pad"], x, low=low, high=high, interior=none, value=0.5)


@pytest.mark.parametrize("dtype", [DType.BF16, DType.F32])
@pytest.mark.parametrize(
    ("shape", "low", "high"), [((9, 45), (0, 0), (0, 3)), ((3, 2, 7), (0, 1, 2), (1, 0, 0)), ((5, 27), (0, 1), (3, 4))]
)
def test_a_pad_is_numpys(shape: tuple[int, ...], low: tuple[int, ...], high: tuple[int, ...], dtype: DType) -> None:
    x = simulator.held(np.random.default_rng(1).normal(size=shape), dtype)
    [got] = on_machine(padded(shape, low, high, dtype), [x])
    np.testing.assert_array_equal(got, np.pad(x, [*zip(low, high)], constant_values=0.5))


@pytest.mark.parametrize(("rows", "wide"), [(200_704, False), (5_000_000, True)])
def test_indices_have_the_bits_that_the_result_needs(rows: int, wide: bool) -> None:
    [launch] = lower(padded((rows, 230), (0, 0), (0, 2), DType.BF16)) or []
    ptx = cuda_compile.compiled(launch.code, "k", "sm_90").ptx.decode("ascii")
    assert ("mul.wide.u32" in ptx or "mul.hi.u64" in ptx) and ("mul.hi.u64" in ptx) == wide
