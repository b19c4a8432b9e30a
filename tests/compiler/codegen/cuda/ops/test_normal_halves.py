"""Normal numbers of 16 bits, as compiled: those in f64, rounded to f32 and then to 16 bits, bit for bit."""

from __future__ import annotations

import numpy as np
import pytest
from gpu_kernels import simulator
from gpu_kernels.multi_tensor_nodes import value
from gpu_kernels.on_ptx_machine import on_machine
from gpu_kernels.sample_nodes import OPS

from dslc.compiler.ir.op import Builder
from dslc.compiler.ir.types import DType
from dslc.compiler.ops.random import philox

pytestmark = pytest.mark.slow
KEY, SEED = 77, 5


@pytest.mark.parametrize(("mean", "std"), [(0.0, 1.0), (0.1, 0.02), (-3.0, 1e-3)])
@pytest.mark.parametrize("dtype", [DType.F16, DType.BF16])
def test_bits(dtype: DType, mean: float, std: float) -> None:
    """Of so many f16, some are too near to the middle of two for f32."""
    count = 4097
    attrs = {"shape": (count,), "dtype": dtype, "key": KEY, "mean": mean, "std": std}
    node = Builder(name="w").node(OPS["init_normal"], value(DType.I64, ()), **attrs)
    [got] = on_machine(node, [np.array(SEED, np.int64)])
    drawn = philox.normal(0, count, key=KEY, seed=SEED, step=0)
    wanted = simulator.held(np.float32(mean) + np.float32(std) * drawn, dtype)
    np.testing.assert_array_equal(np.asarray(got).view(np.uint32), wanted.view(np.uint32))
