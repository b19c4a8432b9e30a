"""The kernels of the sums over paths, as compiled, agree with their meaning."""

import numpy as np
import pytest
from gpu_kernels.on_ptx_machine import on_machine, threads_of
from gpu_kernels.sample_nodes import node_of, wanted
from op_samples.every import SAMPLES
from thinning import taken

CASES = [
    (op, number, dtype)
    for op in ("path_loss", "path_loss_grad", "path_scan")
    for number in range(len(SAMPLES[op]))
    for dtype in ("f32", "f64", "bf16")
]


@pytest.mark.parametrize(("op", "number", "dtype"), taken(CASES, 4))
def test_the_kernel_agrees_with_the_meaning(op: str, number: int, dtype: str) -> None:
    node, xs = node_of(op, number, dtype)
    assert threads_of(node) or not xs[0].size
    error = {"f64": 1e-12, "f32": 2e-6, "bf16": 8e-3}[dtype]
    for found, expected in zip(on_machine(node, xs), wanted(node, xs, dtype), strict=True):
        np.testing.assert_allclose(found, expected, rtol=error, atol=error)
