"""Kernels of every integer dtype, on both targets: at the limits of the dtype they give what the op means in numpy."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from cpu_kernels.native import Native
from gpu_kernels.on_ptx_machine import on_machine
from gpu_kernels.sample_nodes import OPS
from op_laws.evaluation import apply
from thinning import thinned

from dslc.compiler.ir.graph import Input, Kind, Node
from dslc.compiler.ir.op import Builder
from dslc.compiler.ir.types import DType, TensorType
from dslc.runtime.artifact.dtypes import name_of, numpy_dtype

INTEGERS = [d for d in DType if d.is_int]
COUNT = 37
PAIRS = (
    "add", "sub", "mul", "minimum", "maximum", "lt", "ge", "eq", "floordiv", "mod", "bitwise_and", "bitwise_or",
    "bitwise_xor", "bitwise_left_shift", "bitwise_right_shift",
)  # fmt: skip
LINES: dict[str, dict[str, Any]] = {
    **{name: {"over": (1,), "keep": False} for name in ("sum", "prod", "max", "min")},
    "argmax": {"axis": 1}, "argmin": {"axis": 1}, "cumsum": {"axis": 1, "reverse": False},
    "topk": {"axis": 1, "k": 5, "largest": True}, "sort": {"axis": 1, "descending": False},
}  # fmt: skip
FLOATS = np.array(
    [0.0, -0.0, 0.9, -0.9, 1.5, -1.5, 127.9, 128.0, 255.9, 256.0, -128.9, -129.0, 32767.5, 65535.9, 65536.0, 2**31,
     -(2**31), 2**32 - 256, 2**32, 2**63, -(2**63), 2**63 * 1.5, 2**64, 1e30, -1e30, np.inf, -np.inf, np.nan]
)  # fmt: skip


def node(name: str, xs: list[np.ndarray], **attrs: Any) -> Node:
    types = [TensorType(DType(name_of(x.dtype)), x.shape) for x in xs]
    return Builder(name="here").node(OPS[name], *(Input("x", Kind.DATA, t, None).value for t in types), **attrs)


def ends(dtype: DType, count: int, seed: int = 0) -> np.ndarray:
    """The limits, their neighbours, 0, 1 and powers of two, in random order."""
    low, high = dtype.limits
    powers = [sign * 2**bit for bit in range(64) for sign in (1, -1) if low <= sign * 2**bit <= high]
    known = [low, low + 1, high, high - 1, 0, 1, 2, 3, 7, *powers]
    drawn = np.random.default_rng(seed).integers(0, len(known), count)
    return np.array([known[i] for i in drawn], numpy_dtype(dtype.value))


def cases() -> Iterator[tuple[str, DType, list[np.ndarray], dict[str, Any]]]:
    for dtype in INTEGERS:
        x, y = ends(dtype, COUNT), ends(dtype, COUNT, 1)
        for name in PAIRS:
            yield name, dtype, [x, y], {}
        for name, attrs in LINES.items():
            yield name, dtype, [ends(dtype, 3 * COUNT).reshape(3, COUNT)], attrs
        for other in DType:
            if other.is_int or other in (DType.F32, DType.F64, DType.B1):
                yield "cast", dtype, [x], {"dtype": other}
        for source in (np.float32, np.float64):
            yield "cast", dtype, [FLOATS.astype(source)], {"dtype": dtype}
        table = np.arange(36, dtype=np.float32).reshape(6, 6)
        ids = np.concatenate([ends(dtype, 20), np.arange(5).astype(x.dtype)])
        yield "gather_rows", dtype, [table, ids], {}
        yield "take", dtype, [table, ids], {"axis": 1}
        yield "gather", dtype, [table, np.resize(ids, (6, 7))], {"axis": 1}
        yield "scatter_rows_add", dtype, [np.ones((25, 3), np.float32), ids], {"count": 6}
        yield "scatter_rows_add", dtype, [ends(dtype, 25 * 3).reshape(25, 3), ids], {"count": 6}
        yield "one_hot", dtype, [ids], {"count": 6, "dtype": DType.F32}
        lines = np.resize(ids, (2, 70))
        for how in ("prod", "max"):
            values = ends(dtype, 140).reshape(2, 70)
            yield "scatter_reduce", dtype, [values[:, :5], values, lines], {"axis": 1, "how": how}
        yield "scatter_reduce", dtype, [table[:2], np.ones((2, 70), np.float32), lines], {"axis": 1, "how": "prod"}


CASES = list(cases())


def wanted(made: Node, xs: list[np.ndarray]) -> list[np.ndarray]:
    with np.errstate(all="ignore"):
        return [np.asarray(y) for y in apply(made.op, xs, made.attrs)]


@pytest.mark.parametrize(("name", "dtype", "xs", "attrs"), thinned(CASES, 4))
def test_on_the_cpu(name: str, dtype: DType, xs: list[np.ndarray], attrs: dict[str, Any]) -> None:
    made = node(name, xs, **attrs)
    for got, want in zip(Native(made).run(xs), wanted(made, xs), strict=True):
        assert got.dtype == want.dtype
        np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize(("name", "dtype", "xs", "attrs"), thinned(CASES, 16))
def test_on_a_gpu(name: str, dtype: DType, xs: list[np.ndarray], attrs: dict[str, Any]) -> None:
    made = node(name, xs, **attrs)
    for got, want in zip(on_machine(made, xs), wanted(made, xs), strict=True):
        assert got.dtype == want.dtype
        np.testing.assert_array_equal(got, want)
