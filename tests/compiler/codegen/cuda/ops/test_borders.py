"""The kernels of border and border_grad, as compiled, agree with their meaning."""

import numpy as np
import pytest
from gpu_kernels.multi_tensor_nodes import value
from gpu_kernels.on_ptx_machine import on_machine
from gpu_kernels.sample_nodes import OPS, node_of, wanted
from op_samples.every import SAMPLES

from dslc.compiler.codegen.cuda.lower import lower
from dslc.compiler.ir.op import Builder
from dslc.compiler.ir.types import DType


@pytest.mark.parametrize("dtype", ["f32", "bf16"])
@pytest.mark.parametrize(
    ("op", "number"), [(op, n) for op in ("border", "border_grad") for n in range(len(SAMPLES[op]))]
)
def test_the_kernels_agree_with_the_meaning(op: str, number: int, dtype: str) -> None:
    node, xs = node_of(op, number, dtype)
    error = {"f32": 1e-6, "bf16": 8e-3}[dtype] if op == "border_grad" else 0
    for found, expected in zip(on_machine(node, xs), wanted(node, xs, dtype), strict=True):
        np.testing.assert_allclose(found, expected, rtol=error, atol=error)


@pytest.mark.parametrize(
    ("mode", "wide", "launches"), [("reflect", 30, 1), ("circular", 30, 1), ("replicate", 2, 1), ("replicate", 30, 2)]
)
def test_all_axes_are_padded_at_once(mode: str, wide: int, launches: int) -> None:
    """Of the gradient, as long as few elements are looked for."""
    ends = {"low": (0, wide, 1), "high": (0, wide, 1), "mode": mode}
    b = Builder(name="here")
    assert len(lower(b.node(OPS["border"], value(DType.BF16, (4, 64, 64)), **ends)) or []) == 1
    dy = value(DType.BF16, (4, 64 + 2 * wide, 66))
    assert len(lower(b.node(OPS["border_grad"], dy, **ends)) or []) == launches
