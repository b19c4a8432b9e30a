"""The runtime's kernel for what two shards give: its PTX, run thread by thread and assembled for each generation."""

from __future__ import annotations

import numpy as np
import pytest
from gpu_kernels import ptx_machine
from numpy.typing import NDArray

from dslc.compiler.toolchain.nvjitlink import cubin_of
from dslc.runtime.cuda.sums.gathering import gathering_ptx, table_of
from dslc.runtime.session.calls.terms import Run

DTYPES = ["bf16", "f16", "f32"]


def widened(dtype: str, array: NDArray[np.generic]) -> NDArray[np.float32]:
    """The numbers of an array of the storage dtype."""
    if dtype == "bf16":
        return np.array([int(bits) << 16 for bits in array], np.uint32).view(np.float32)
    return array.astype(np.float32)


@pytest.mark.parametrize("dtype", DTYPES)
def test_sums_of_widened_terms_at_their_places(dtype: str) -> None:
    storage = {"bf16": np.uint16, "f16": np.float16, "f32": np.float32}[dtype]
    item, rng = np.dtype(storage).itemsize, np.random.default_rng(0)
    count = 96
    sides = [rng.normal(size=count).astype(np.float32) * 10.0 ** rng.integers(-6, 5, count) for _ in range(2)]
    if dtype == "bf16":
        left, right = ((side.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16) for side in sides)
    else:
        left, right = (side.astype(storage) for side in sides)
    left[:4] = {"bf16": [0x0001, 0x7F80, 0x8000, 0xFF80]}.get(dtype, [6e-8, np.inf, -0.0, -np.inf])
    right[:4] = {"bf16": [0x8002, 0x3F80, 0x8000, 0x3F80]}.get(dtype, [-6e-8, 1, -0.0, 1])
    expected = widened(dtype, left) + widened(dtype, right)
    runs = [Run(0, 256, 32), Run(32 * item, 0, 24), Run(64 * item, 128, 32)]
    table = table_of(runs, dtype)
    assert table.tolist() == [[run.at, run.given, -(-run.elements * item // 16)] for run in runs]
    for threads in (1, 4):
        total = np.full(count, 7, np.float32)
        ptx_machine.run(gathering_ptx(dtype)[0], len(table), threads, [total, left, right, table.reshape(-1)])
        for run in runs:
            at, given = run.at // 4, run.given // item
            assert total[at : at + run.elements].tobytes() == expected[given : given + run.elements].tobytes()
        assert (total[24:32] == 7).all()  # between the runs


@pytest.mark.parametrize("dtype", DTYPES)
def test_long_runs_have_several_rows(dtype: str) -> None:
    table = table_of([Run(64, 128, 40_000)], dtype)
    item = 4 if dtype == "f32" else 2
    assert [row[0] - 128 for row in table.tolist()] == [4 * n for n in (0, 8192, 16384, 24576, 32768)]
    assert [row[1] - 64 for row in table.tolist()] == [item * n for n in (0, 8192, 16384, 24576, 32768)]
    assert sum(row[2] for row in table.tolist()) == 40_000 * item // 16


@pytest.mark.parametrize("architecture", ["sm_80", "sm_90", "sm_100", "sm_120"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_it_is_accepted_for_each_architecture(dtype: str, architecture: str) -> None:
    assert cubin_of(gathering_ptx(dtype)[0].encode(), architecture).startswith(b"\x7fELF")
