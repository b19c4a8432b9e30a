"""The runtime's own kernel: its PTX, run thread by thread and assembled for each generation of GPUs."""

from __future__ import annotations

import numpy as np
import pytest
from gpu_kernels import ptx_machine

from dslc.compiler.toolchain.nvjitlink import cubin_of
from dslc.runtime.cuda.sums.addition import UNIT, ptx


@pytest.mark.parametrize("dtype", ["f32", "f64"])
def test_bits_are_those_of_numpy(dtype: str) -> None:
    kind = np.float32 if dtype == "f32" else np.float64
    count = 7 * UNIT // kind().itemsize
    rng = np.random.default_rng(0)
    bits = rng.integers(0, 256, (2, count * kind().itemsize), np.uint8)
    left, right = (np.nan_to_num(row.view(kind), nan=1.5) for row in bits)  # infinities and subnormals among them
    left[:3], right[:3] = (np.finfo(kind).smallest_subnormal, np.inf, -0.0), (np.finfo(kind).tiny / -2, 1, -0.0)
    with np.errstate(all="ignore"):
        expected = left + right
    assert not np.isnan(expected).any()
    for blocks in (1, 2, 9):  # threads add several units, one, or none
        total = np.zeros(count, kind)
        ptx_machine.run(ptx(dtype)[0], blocks, 2, [total, left, right], [("i64", 7)])
        assert total.tobytes() == expected.tobytes()
    ptx_machine.run(ptx(dtype)[0], 2, 2, [left, left, right], [("i64", 7)])  # in place
    assert left.tobytes() == expected.tobytes()


@pytest.mark.parametrize("architecture", ["sm_80", "sm_90", "sm_100", "sm_120"])
@pytest.mark.parametrize("dtype", ["f32", "f64"])
def test_it_is_accepted_for_each_architecture(dtype: str, architecture: str) -> None:
    assert cubin_of(ptx(dtype)[0].encode(), architecture).startswith(b"\x7fELF")
