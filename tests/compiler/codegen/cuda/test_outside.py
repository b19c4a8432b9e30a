"""The kernel that checks inputs on a GPU: its PTX, run thread by thread, and its cubin for each generation of GPUs."""

from __future__ import annotations

import numpy as np
import pytest
from gpu_kernels import ptx_machine

from dslc.compiler.codegen.cuda.compile import compiled
from dslc.compiler.codegen.cuda.outside import outside
from dslc.compiler.codegen.targets import ARCHITECTURES
from dslc.compiler.ir.types import DType
from dslc.runtime.artifact.dtypes import numpy_dtype
from dslc.runtime.artifact.reserved import CHECK_ARGUMENTS, CHECK_THREADS, check_symbol
from dslc.runtime.cuda.code import cubin_parameters

INTEGERS = [dtype for dtype in DType if dtype.is_int]
COUNT = 2 * CHECK_THREADS + 90  # some threads look at several values, others at one or none


def looked(dtype: DType, given: np.ndarray, low: int, last: int, blocks: int) -> bool:
    ptx = compiled(outside(dtype), check_symbol(dtype.value), "sm_90").ptx.decode("ascii")
    flag = np.zeros(1, np.uint32)
    numbers = (("i64", given.size), ("i64", low), ("i64", last))
    # several threads may write the same 1
    ptx_machine.run(ptx, (blocks, 1, 1), CHECK_THREADS, [given, flag], numbers, races=False)
    assert flag[0] in (0, 1)
    return bool(flag[0])


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
def test_one_value_outside_is_found_wherever_it_is(dtype: DType) -> None:
    least, greatest = dtype.limits
    low, last = (3, 90) if dtype.is_unsigned else (-5, 90)
    rng = np.random.default_rng(0)
    inside = rng.integers(low, last + 1, COUNT, numpy_dtype(dtype.value))
    inside[:2] = low, last
    for blocks in (1, 2, 4):  # of four, one has nothing to look at
        assert not looked(dtype, inside, low, last, blocks)
    wrong = [low - 1, last + 1, least, greatest]
    for number, at in enumerate((0, COUNT // 2, COUNT - 1, CHECK_THREADS)):
        given = inside.copy()
        given[at] = wrong[number]
        assert looked(dtype, given, low, last, 1 + number % 2)
        assert not looked(dtype, given[:at], low, last, 1)  # what comes after the last value is not read


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
def test_ranges_as_wide_as_an_i64(dtype: DType) -> None:
    least, greatest = dtype.limits
    ends = np.array([least, greatest], numpy_dtype(dtype.value))
    low, last = -(1 << 63), (1 << 63) - 1
    assert looked(dtype, ends, low, last, 1) == (dtype is DType.U64)
    assert not looked(dtype, ends[:1], low, last, 1) and looked(dtype, ends, low, -1, 1)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("dtype", ["i32", "i64", "u8"])
def test_its_arguments(dtype: str, architecture: str) -> None:
    symbol = check_symbol(dtype)
    cubin = compiled(outside(DType(dtype)), symbol, architecture).cubin
    assert cubin_parameters(cubin, symbol, dtype) == [*CHECK_ARGUMENTS]
