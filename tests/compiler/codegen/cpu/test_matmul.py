"""Matrix products as kernels: numpy's values in f64 within the bound of the sum, and the same bits for any cut."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from cpu_kernels.kernels import ALLOWED, Loaded, compile_kernel, guarded, runnable_levels
from thinning import thinned

from dslc.compiler.codegen.cpu.contraction.dot import Dot
from dslc.compiler.codegen.cpu.contraction.kernel import Contraction
from dslc.compiler.codegen.cpu.contraction.lower import steps_of
from dslc.compiler.codegen.cpu.contraction.matmul import Matmul
from dslc.compiler.codegen.cpu.contraction.steps import Steps
from dslc.compiler.codegen.cpu.kernel_spec import tasks_of
from dslc.compiler.ir.graph import Input, Kind
from dslc.compiler.ir.op import Builder
from dslc.compiler.ir.types import DType, TensorType
from dslc.compiler.ops.elementwise.activation import relu
from dslc.compiler.ops.products.linear import matmul

NUMPY = {DType.F32: np.float32, DType.F64: np.float64}
Case = tuple[tuple[int, ...], tuple[int, ...], bool, bool]

CASES: list[Case] = [
    ((1, 1), (1, 1), False, False),
    ((1, 400), (120, 400), False, True),
    ((1, 784), (512, 784), False, True),
    ((3, 77), (203, 77), False, True),
    ((5, 3, 40), (5, 9, 40), False, True),
    ((400, 1), (1, 7), False, False),
    ((5, 7), (7, 3), False, False),
    ((13, 17), (17, 16), False, False),
    ((33, 31), (65, 31), False, True),
    ((31, 33), (31, 47), True, False),
    ((9, 35), (50, 9), True, True),
    ((64, 400), (120, 400), False, True),
    ((64, 120), (120, 400), False, False),
    ((64, 120), (64, 400), True, False),
    ((150, 700), (700, 130), False, False),  # rows cut into units, sums into blocks
    ((145, 1300), (90, 1300), False, True),
    ((3000, 20), (3000, 9), True, False),  # few elements of long sums: in parts
    ((200, 300), (200, 70), True, False),  # units copy rows that are far apart along the sum
    ((900, 805), (900, 24), True, False),  # the same in blocks
    ((3000, 260), (3000, 30), True, False),  # the same in parts
    ((2, 150, 261), (2, 150, 33), True, False),
    ((4, 6, 5), (4, 5, 7), False, False),
    ((2, 3, 6, 5), (5, 7), False, False),
    ((6, 5), (3, 5, 7), False, False),
    ((2, 1, 6, 5), (3, 5, 7), False, False),
    ((3, 1, 5, 6), (1, 4, 7, 5), True, True),
    ((2, 6, 5), (7, 5), False, True),
]


def _matrix(x: np.ndarray, swap: bool) -> np.ndarray:
    return x.swapaxes(-1, -2) if swap else x


def _check(case: Case, dtype: DType, rng: np.random.Generator, level: str | None = None) -> np.ndarray:
    a, b, ta, tb = case
    x, y = (rng.standard_normal(shape).astype(NUMPY[dtype]) for shape in (a, b))
    left, right = _matrix(x, ta).astype(np.float64), _matrix(y, tb).astype(np.float64)
    exact, size = np.matmul(left, right), np.matmul(np.abs(left), np.abs(right))
    loaded = Loaded(Matmul(dtype, a, b, ta, tb).steps(), level)
    assert loaded.foreign <= ALLOWED
    out, around = guarded(exact.shape, NUMPY[dtype])
    loaded.run([x, y], [out])
    error = np.abs(out - exact)
    # each of k sums and products rounds once; numpy's f64 may err as much
    assert (error <= (left.shape[-1] + 2) * np.finfo(NUMPY[dtype]).eps * size).all(), (case, error.max())
    assert np.isnan(around[:32]).all() and np.isnan(around[-32:]).all()
    for slices in (2, 7):
        again = np.full_like(out, np.nan)
        loaded.run([x, y], [again], slices)
        assert again.tobytes() == out.tobytes(), slices
    return out


@pytest.mark.parametrize(("case", "dtype"), thinned(((case, dtype) for case in CASES for dtype in NUMPY), 3), ids=str)
def test_products(case: Case, dtype: DType) -> None:
    _check(case, dtype, np.random.default_rng(0))


@pytest.mark.parametrize("case", [CASES[3], CASES[8], CASES[9], CASES[15], CASES[16]], ids=str)
def test_levels_give_the_same_bits(case: Case) -> None:
    found = {_check(case, DType.F32, np.random.default_rng(1), level).tobytes() for level in runnable_levels()}
    assert len(found) == 1


@pytest.mark.parametrize("a, b", [((0, 3), (3, 4)), ((2, 0, 3), (3, 4)), ((4, 3), (3, 0))])
def test_nothing_to_write(a: tuple[int, ...], b: tuple[int, ...]) -> None:
    assert Matmul(DType.F32, a, b, False, False).steps() == Steps(())


def test_empty_sums_are_zero() -> None:
    out, around = guarded((3, 5, 4), np.float32)
    Loaded(Matmul(DType.F32, (3, 5, 0), (0, 4), False, False).steps()).run(
        [np.empty((3, 5, 0)), np.empty((0, 4))], [out]
    )
    assert (out == 0).all() and np.isnan(around[:32]).all() and np.isnan(around[-32:]).all()


def test_nan_and_inf_reach_their_row_and_column_alone() -> None:
    x, y = np.ones((20, 37), np.float32), np.ones((37, 40), np.float32)
    x[3, 36], y[0, 39] = np.nan, np.inf
    out = np.zeros((20, 40), np.float32)
    Loaded(Matmul(DType.F32, x.shape, y.shape, False, False).steps()).run([x, y], [out])
    assert np.isnan(out[3]).all() and np.isposinf(np.delete(out[:, 39], 3)).all()
    assert (np.delete(out, 3, 0)[:, :39] == 37).all()


def test_random_products(fuzz_count: Callable[[int], int], fuzz_seed: int) -> None:
    rng = np.random.default_rng(fuzz_seed)
    for _ in range(fuzz_count(80)):
        m, n, k = (int(2 ** rng.uniform(0, 7.5)) for _ in range(3))
        ta, tb = (bool(x) for x in rng.integers(0, 2, 2))
        lead = tuple(int(x) for x in rng.integers(1, 4, rng.integers(0, 3)))
        a = lead[int(rng.integers(0, len(lead) + 1)) :] + ((k, m) if ta else (m, k))
        b = tuple(1 if rng.random() < 0.3 else x for x in lead) + ((n, k) if tb else (k, n))
        _check((a, b, ta, tb), DType.F32 if rng.random() < 0.7 else DType.F64, rng)


@pytest.mark.parametrize("level", ["x86_64_v3", "x86_64_v4", "armv8_2"])
def test_every_level_compiles_soon(level: str, allowed: Callable[[float, float], bool]) -> None:
    for step in Matmul(DType.F32, (145, 1300), (90, 1300), False, True).steps().steps:
        data, seconds, foreign = compile_kernel(step.code, level)
        assert data[:4] == b"\x7fELF" and foreign <= ALLOWED
        assert allowed(seconds, 1.0)  # 0.15 on a machine with nothing else to do


def test_few_rows_are_not_packed() -> None:
    [step] = Matmul(DType.F32, (1, 400), (120, 400), False, True).steps().steps
    assert isinstance(step.kernel, Dot)


@pytest.mark.parametrize("rows", [64, 700])
def test_many_rows_are_packed_for_a_long_sum(rows: int) -> None:
    *_, step = Matmul(DType.F32, (rows, 2600), (650, 2600), False, True).steps().steps
    assert isinstance(step.kernel, Contraction)


def test_units_of_many_rows_and_a_long_sum_read_them_a_few_times() -> None:
    """Each unit reads its rows from memory: 21 narrow units would read 28 MB as often."""
    *_, step = Matmul(DType.F32, (700, 10_000), (10_000, 650), False, False).steps().steps
    assert isinstance(step.kernel, Contraction) and step.kernel.lane_block >= 256
    *_, short = Matmul(DType.F32, (700, 500), (500, 650), False, False).steps().steps
    assert isinstance(short.kernel, Contraction) and short.kernel.lane_block < 650  # all of the panels stay near


def test_rows_that_are_far_apart_along_the_sum_are_copied_once_by_units() -> None:
    """A gradient of weights reads its first operand transposed: each inner index is on a page of its own."""
    *_, step = Matmul(DType.F32, (700, 10_000), (700, 650), True, False).steps().steps
    assert isinstance(step.kernel, Contraction) and step.kernel.near
    assert step.kernel.k_block == 512 and step.kernel.grid == (1, 209)
    *_, double = Matmul(DType.F64, (700, 10_000), (700, 650), True, False).steps().steps
    assert isinstance(double.kernel, Contraction) and double.kernel.k_block == 256  # as many bytes of the stack
    for a, b in (((700, 200), (700, 650)), ((100, 10_000), (100, 650)), ((700, 10_000), (700, 16))):
        *_, step = Matmul(DType.F32, a, b, True, False).steps().steps
        assert not (isinstance(step.kernel, Contraction) and step.kernel.near), (a, b)


def test_a_packed_side_is_not_far() -> None:
    """A product with weights ``[k, n]`` reads panels of them: its sums have large blocks."""
    *_, step = Matmul(DType.F32, (394, 768), (768, 3072), False, False).steps().steps
    assert isinstance(step.kernel, Contraction) and step.kernel.panel and step.kernel.k_block == 512
    *_, few = Matmul(DType.F32, (20, 650), (650, 2600), False, False).steps().steps
    assert isinstance(few.kernel, Contraction) and not few.kernel.panel and few.kernel.k_block == 64


def test_tasks_depend_on_shapes_and_there_are_enough() -> None:
    *_, step = Matmul(DType.F32, (2048, 384), (384, 128), False, False).steps().steps
    assert tasks_of(step.kernel) >= 8
    assert math.prod(tasks_of(s.kernel) for s in Matmul(DType.F32, (4, 4), (4, 4), False, False).steps().steps) == 1


def test_nodes_become_these_kernels() -> None:
    a, b = (2, 3, 5, 6), (1, 4, 5)
    inputs = [Input(n, Kind.DATA, TensorType(DType.F64, s)).value for n, s in (("a", a), ("b", b))]
    node = Builder().node(matmul, *inputs, transpose_a=True, transpose_b=True)
    assert steps_of(node) == Matmul(DType.F64, a, b, True, True).steps()
    assert steps_of(Builder().node(relu, inputs[0])) is None
