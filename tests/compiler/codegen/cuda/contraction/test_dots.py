"""Stacks of products of a vector are sums along lines, or products of elements, as compiled; against f64."""

import numpy as np
import pytest
from gpu_kernels import simulator
from gpu_kernels.multi_tensor_nodes import value
from gpu_kernels.on_ptx_machine import on_machine
from gpu_kernels.sample_nodes import OPS

from dslc.compiler.codegen.cuda.contraction.lower import tiled_problem
from dslc.compiler.codegen.cuda.lower import lower
from dslc.compiler.ir.op import Builder
from dslc.compiler.ir.types import DType


@pytest.mark.parametrize("dtype", [DType.F32, DType.BF16])
@pytest.mark.parametrize(
    ("a", "b", "turned"),
    [((6, 1, 20), (6, 20, 1), (False, False)), ((3, 2, 35, 1), (2, 1, 35), (True, True)),
     ((5, 1, 3), (1, 3, 1), (False, False)),
     ((6, 1, 20), (6, 20, 9), (False, False)), ((3, 1, 1, 40), (3, 2, 16, 40), (False, True)),
     ((2, 3, 20, 1), (2, 3, 20, 16), (True, False)), ((4, 33, 40), (4, 40, 1), (False, False)),
     ((4, 40, 33), (1, 1, 40), (True, True)), ((3, 2, 5, 1), (3, 2, 1, 8), (False, False)),
     ((3, 1, 5), (1, 7, 1), (True, True))],
)  # fmt: skip
def test_each_is_a_sum_of_two_lines_or_a_product(
    a: tuple[int, ...], b: tuple[int, ...], turned: tuple[bool, bool], dtype: DType
) -> None:
    rng = np.random.default_rng(0)
    xs = [simulator.held(rng.normal(size=shape), dtype) for shape in (a, b)]
    attrs = {"transpose_a": turned[0], "transpose_b": turned[1]}
    node = Builder(name="here").node(OPS["matmul"], value(dtype, a), value(dtype, b), **attrs)
    assert len(lower(node) or []) == 1 and tiled_problem(node) is None
    lines = [np.swapaxes(x, -1, -2) if turn else x for x, turn in zip(xs, turned)]
    wanted = np.matmul(*(x.astype(np.float64) for x in lines))
    error = 2**-8 if dtype is DType.BF16 else 1e-6
    np.testing.assert_allclose(on_machine(node, xs)[0], wanted, rtol=error, atol=error)


@pytest.mark.parametrize(
    ("a", "b"),
    [((6, 2, 20), (6, 20, 3)), ((6, 1, 20), (20, 9)), ((6, 1, 20), (1, 20, 9)), ((5, 20), (6, 20, 1)),
     ((3, 1, 1, 20), (1, 4, 20, 9))],
)  # fmt: skip
def test_others_keep_their_tiles(a: tuple[int, ...], b: tuple[int, ...]) -> None:
    """Those of several rows and columns, and those that multiply a matrix by several vectors."""
    factors = value(DType.F32, a), value(DType.F32, b)
    node = Builder(name="here").node(OPS["matmul"], *factors, transpose_a=False, transpose_b=False)
    assert tiled_problem(node) is not None
