"""Few long rows of which an index is asked are split, too: the first of equal elements is found among all parts."""

from __future__ import annotations

import numpy as np
import pytest
from gpu_kernels.sample_nodes import OPS, wanted
from gpu_kernels.simulation import simulated

from dslc.compiler.codegen.cuda.lower import lower
from dslc.compiler.ir.graph import Input, Kind
from dslc.compiler.ir.op import Builder
from dslc.compiler.ir.types import DType, TensorType


@pytest.mark.parametrize("special", [None, np.nan, np.inf])
@pytest.mark.parametrize(("shape", "axis"), [((1, 1 << 17), 1), ((3, 43_700), 1), ((1 << 14, 8), 0)])
@pytest.mark.parametrize("op", ["argmax", "argmin"])
def test_the_first_extreme_of_all_parts(op: str, shape: tuple[int, ...], axis: int, special: float | None) -> None:
    x = np.random.default_rng(3).integers(-50, 50, shape).astype(np.float32)  # with ties
    if special is not None:
        x.reshape(-1)[[77, x.size - 5, x.size // 2]] = special
    node = Builder(name="here").node(OPS[op], Input("x", Kind.DATA, TensorType(DType.F32, shape)).value, axis=axis)
    assert len(lower(node) or []) > 1
    [found], expected = simulated(node, [x]) or [None], wanted(node, [x], "f32")
    assert expected is not None
    np.testing.assert_array_equal(found, expected[0])


@pytest.mark.parametrize("top", [1, 3])
def test_the_rank_of_a_target_is_that_among_all_parts(top: int) -> None:
    x = np.random.default_rng(4).integers(-500, 500, (4, 1 << 15)).astype(np.float32)
    order = np.argsort(-x, axis=1, kind="stable")
    target = np.array([order[0, 0], order[1, 2], order[2, 1], order[3, 7]], np.int32)
    types = [TensorType(DType.F32, x.shape), TensorType(DType.I32, target.shape)]
    values = [Input(f"x{i}", Kind.DATA, type).value for i, type in enumerate(types)]
    node = Builder(name="here").node(OPS["in_top_k"], *values, axis=1, top=top)
    assert len(lower(node) or []) > 1
    [found] = simulated(node, [x, target]) or [None]
    np.testing.assert_array_equal(found, [True, top == 3, top == 3, False])
