"""Lines that are sorted by bytes: all dtypes, equal elements, nan, zeros of both signs, lines of any length."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from cpu_kernels.native import Native
from op_laws.evaluation import apply, values_of

from dslc.compiler.codegen.cpu.ops.radix_sort import FEWEST, RadixSort
from dslc.compiler.ir.op import Builder, Op
from dslc.compiler.ops.index.ordering import topk
from dslc.compiler.ops.index.sort import sort


def _check(op: Op, x: np.ndarray, **attrs: Any) -> RadixSort | None:
    """Compares values bit by bit, and places; the same with other cuts of the tasks. Returns the kernel."""
    native = Native(Builder().node(op, *values_of([x]), **attrs))
    found = native.run([x])
    for got, want in zip(found, apply(op, [x], attrs), strict=True):
        assert got.dtype == want.dtype and got.tobytes() == np.ascontiguousarray(want).tobytes()
    assert [y.tobytes() for y in native.run([x], 3)] == [y.tobytes() for y in found]
    [launch] = native.launches
    return launch.spec if isinstance(launch.spec, RadixSort) else None


def _numbers(dtype: str, *shape: int) -> np.ndarray:
    rng = np.random.default_rng(len(shape) + shape[-1])
    if dtype[0] == "f":
        x = rng.standard_normal(shape).astype(dtype)
        some = rng.random(shape)
        x[some < 0.3] = np.round(x[some < 0.3])  # equal elements, zeros of both signs among them
        x[some > 0.95], x[some > 0.97] = np.nan, -np.nan
        x[some > 0.98], x[some > 0.99] = np.inf, -np.inf
        return x
    info = np.iinfo(dtype)
    return rng.integers(info.min, info.max, shape, dtype, endpoint=True)


@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("dtype", ["f4", "f8", "i1", "i4", "i8", "u1", "u2", "u4", "u8"])
def test_a_sort_is_stable_in_all_dtypes(dtype: str, descending: bool) -> None:
    assert _check(sort, _numbers(dtype, 3, 130), axis=1, descending=descending) is not None


@pytest.mark.parametrize("axis", [0, 1])
def test_axes_before_the_last(axis: int) -> None:
    assert _check(sort, _numbers("f4", 70, 90, 3), axis=axis, descending=False) is not None


def test_a_byte_that_is_the_same_in_all_elements_moves_nothing() -> None:
    for x in (np.full((2, 100), 7, "i4"), np.arange(200, dtype="i4").reshape(2, 100) % 13, np.ones((1, 65), "f4")):
        assert _check(sort, x, axis=1, descending=False) is not None


def test_a_line_that_does_not_fit_the_stack_has_scratch_memory() -> None:
    spec = _check(sort, _numbers("f4", 2, 9000), axis=1, descending=True)
    assert spec is not None and spec.bytes == 2 * 2 * 9000 * 8
    spec = _check(sort, _numbers("f4", 2, 8000), axis=1, descending=True)
    assert spec is not None and not spec.bytes


def test_short_lines_and_few_elements_have_a_heap() -> None:
    assert _check(sort, _numbers("f4", 9, FEWEST - 1), axis=1, descending=False) is None
    assert _check(topk, _numbers("f4", 5, 300), axis=1, k=4, largest=True) is None
    assert _check(topk, _numbers("f4", 5, 300), axis=1, k=20, largest=True) is None


@pytest.mark.parametrize("largest", [False, True])
def test_the_first_of_many_are_those_of_the_sorted_line(largest: bool) -> None:
    spec = _check(topk, _numbers("f4", 5, 300), axis=1, k=100, largest=largest)
    assert spec is not None and spec.k == 100
