"""Reductions that read elements at computed places, in rows so long that a thread holds several vectors of them."""

from __future__ import annotations

import numpy as np
import pytest
from gpu_kernels.on_ptx_machine import on_machine
from gpu_kernels.sample_nodes import node_of, tolerance, wanted
from op_samples.every import SAMPLES


@pytest.mark.parametrize("dtype", ["f32", "bf16"])
@pytest.mark.parametrize("name", ["adaptive_avgpool", "adaptive_maxpool"])
def test_windows_of_hundreds_of_elements(name: str, dtype: str) -> None:
    [number] = [n for n, sample in enumerate(SAMPLES[name]) if sample.inputs[0].shape == (1, 1, 38, 31)]
    node, xs = node_of(name, number, dtype)
    rtol, atol = tolerance(name, dtype)
    for found, expected in zip(on_machine(node, xs), wanted(node, xs, dtype) or (), strict=True):
        np.testing.assert_allclose(found, expected, rtol, atol)
