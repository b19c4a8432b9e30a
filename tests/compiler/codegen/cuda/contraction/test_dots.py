"""Stacks of products of a row and a column are sums along lines, as compiled; against f64."""

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
     ((5, 1, 3), (1, 3, 1), (False, False))],
)  # fmt: skip
def test_each_is_the_sum_of_two_lines(
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


def test_products_with_more_rows_keep_their_tiles() -> None:
    node = Builder(name="here").node(
        OPS["matmul"], value(DType.F32, (6, 2, 20)), value(DType.F32, (6, 20, 1)), transpose_a=False, transpose_b=False
    )
    assert tiled_problem(node) is not None
