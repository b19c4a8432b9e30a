"""Products of few rows as compiled, next to f64: sums of any length, with what reads them in the same kernel."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from gpu_kernels import simulator
from gpu_kernels.on_ptx_machine import on_machine
from gpu_kernels.sample_nodes import OPS

from dslc.compiler.codegen.cuda.contraction import few_rows
from dslc.compiler.codegen.cuda.contraction.few_rows import FewRows
from dslc.compiler.codegen.cuda.lower import lower
from dslc.compiler.codegen.cuda.target import Cuda
from dslc.compiler.ir.graph import Input, Kind, Node
from dslc.compiler.ir.op import Builder
from dslc.compiler.ir.types import DType, TensorType
from dslc.compiler.ops.compound.contraction import with_epilogue

BIAS_GELU_ADD = (("add", (0, 1), ()), ("gelu", (3,), (("approximate", True),)), ("add", (4, 2), ()))


def value(dtype: DType, *shape: int) -> Any:
    return Input("x", Kind.DATA, TensorType(dtype, shape)).value


def product(dtype: DType, lead: tuple[int, ...], columns: int, inner: int) -> Node:
    operands = value(dtype, *lead, inner), value(dtype, columns, inner)
    return Builder().node(OPS["matmul"], *operands, transpose_a=False, transpose_b=True)


def with_rest(first: Node, body: Any, *others: Any, dtype: DType | None = None) -> Node:
    last = Builder().node(OPS["fused"], first.out, *others, body=body)
    assert dtype is None or last.types[0].dtype is dtype
    return with_epilogue(first, last, others, body)


def inputs(node: Node) -> list[np.ndarray]:
    rng = np.random.default_rng(4)
    drawn = [rng.normal(size=t.ints).astype(np.float32) for t in node.input_types]
    return [simulator.held(x, t.dtype) for x, t in zip(drawn, node.input_types)]


@pytest.fixture(autouse=True)
def any_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(few_rows, "_FEWEST_WEIGHTS", 0)


def check(node: Node, wanted: np.ndarray) -> FewRows:
    launches = lower(node)
    assert launches is not None
    [launch] = launches
    assert isinstance(launch.spec, FewRows)
    [found] = on_machine(node, inputs(node))
    near = {DType.F32: 2e-6, DType.BF16: 2**-8, DType.F16: 2**-11}[node.types[0].dtype]
    np.testing.assert_allclose(found, wanted, rtol=near, atol=near)
    return launch.spec


@pytest.mark.parametrize(
    ("dtype", "lead", "columns", "inner"),
    [
        (DType.BF16, (1, 1), 19, 40),
        (DType.BF16, (2, 1), 11, 776),
        (DType.F16, (3,), 9, 520),
        (DType.F32, (1, 8), 5, 132),
        (DType.BF16, (8,), 3, 2056),
    ],
)
def test_a_product_is_that_of_f64(dtype: DType, lead: tuple[int, ...], columns: int, inner: int) -> None:
    node = product(dtype, lead, columns, inner)
    a, b = (np.asarray(x, np.float64) for x in inputs(node))
    spec = check(node, a @ b.T)
    assert spec.geometry.grid[0] * (few_rows._THREADS // 32 // spec.down) * spec.per_warp >= columns


def test_many_columns_are_several_of_a_warp(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(few_rows, "_BUSY_WARPS", 2)
    for rows, columns in ((1, 17), (2, 17), (5, 11)):
        node = product(DType.BF16, (rows,), columns, 24)
        a, b = (np.asarray(x, np.float64) for x in inputs(node))
        assert check(node, a @ b.T).per_warp == {1: 4, 2: 4, 5: 2}[rows]


@pytest.mark.parametrize("rows", [1, 3])
def test_what_reads_the_product_is_computed_in_f32(rows: int) -> None:
    first = product(DType.BF16, (rows, 1), 12, 264)
    node = with_rest(first, BIAS_GELU_ADD, value(DType.BF16, 12), value(DType.BF16, rows, 1, 12))
    a, b, bias, more = (np.asarray(x, np.float64) for x in inputs(node))
    x = a @ b.T + bias
    check(node, 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))) + more)
    wide = with_rest(first, (("cast", (0,), (("dtype", DType.F32),)),), dtype=DType.F32)
    spec = check(wide, a @ b.T)
    assert spec.result is DType.F32


@pytest.mark.parametrize(("dtype", "columns", "inner", "each"), [
    (DType.BF16, 96, 4, 4), (DType.BF16, 20, 6, 2), (DType.F16, 5, 7, 1), (DType.F32, 9, 30, 2),
    (DType.BF16, 3, 300, 4),
])  # fmt: skip
def test_few_weights_with_what_reads_the_product(
    monkeypatch: pytest.MonkeyPatch, dtype: DType, columns: int, inner: int, each: int
) -> None:
    """Rows need not be whole loads; alone, such a product has no kernel of this kind."""
    monkeypatch.setattr(few_rows, "_FEWEST_WEIGHTS", 1 << 16)
    first = product(dtype, (2, 1, 1), columns, inner)
    node = with_rest(first, (("add", (0, 1), ()), ("sigmoid", (2,), ())), value(dtype, 1, 1, 1, columns))
    a, b, bias = (np.asarray(x, np.float64) for x in inputs(node))
    spec = check(node, 1 / (1 + np.exp(-(a @ b.T + bias))))
    assert spec.each == each and few_rows.few_rows(first) is None


def test_products_that_other_kernels_compute() -> None:
    kept = (product(DType.BF16, (9,), 64, 64), product(DType.F64, (1,), 64, 64), product(DType.BF16, (1,), 64, 60))
    a, b = value(DType.BF16, 1, 64), value(DType.BF16, 64, 64)
    turned = Builder().node(OPS["matmul"], a, b, transpose_a=False, transpose_b=False)
    first = product(DType.BF16, (1,), 64, 64)
    sign = with_rest(first, (("sign", (0,), ()),))
    for node in (*kept, turned, sign):
        assert not any(isinstance(launch.spec, FewRows) for launch in lower(node) or [])


def test_libraries_leave_them_to_the_own_kernel() -> None:
    node = product(DType.BF16, (1, 1), 1024, 1024)
    [launch] = Cuda("sm_90", vendor=True).lower(node) or []
    assert isinstance(launch.spec, FewRows)
    assert "few rows" in str(Cuda("sm_90").why_no_library(node)) and Cuda("sm_90").library(node) == "cublaslt"
    many = product(DType.BF16, (9, 1), 1024, 1024)
    [launch] = Cuda("sm_90", vendor=True).lower(many) or []
    assert not isinstance(launch.spec, FewRows)
