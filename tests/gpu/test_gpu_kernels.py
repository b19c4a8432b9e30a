"""The kernels of all samples on a real GPU: what numpy computed where they were compiled (``make gpu-artifacts``).

Needs a GPU with its driver, cuda-bindings, numpy and pytest; nothing that compiles. ``DSLC_GPU_EVERY=N`` takes every
N-th case; ``DSLC_GPU_RAW=1`` leaves the memory of what a kernel shall write as it is, so that a tool sees it read
unwritten.
"""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import pytest
from real_gpu.kernel_store import STORE, Reader, arguments
from real_gpu.launcher import GUARD, Gpu, why_not

FOLDER = STORE / "kernels"
STORE = Reader(FOLDER) if (FOLDER / "index.json").exists() else None
CASES: list[dict[str, Any]] = STORE.index["cases"][:: int(os.environ.get("DSLC_GPU_EVERY", "1"))] if STORE else []
OPS = sorted({case["name"].split()[0] for case in CASES})
RAW = os.environ.get("DSLC_GPU_RAW") == "1"

pytestmark = [
    pytest.mark.skipif(why_not() is not None, reason=str(why_not())),
    pytest.mark.skipif(STORE is None, reason="no .gpu/kernels; make them with: make gpu-artifacts"),
]


@pytest.fixture(scope="module")
def gpu() -> Gpu:
    found = Gpu()
    assert STORE is not None
    if STORE.index["architecture"].split("_")[1][:-1] != found.architecture.split("_")[1][:-1]:
        pytest.skip(f"kernels for {STORE.index['architecture']} on {found.architecture}")
    return found


def run(gpu: Gpu, case: dict[str, Any]) -> list[str]:
    """What is wrong with a case."""
    assert STORE is not None
    addresses = []
    for buffer in case["buffers"]:
        address = gpu.allocate(buffer["bytes"] + len(GUARD))
        if "before" in buffer:
            gpu.upload(address, STORE.array(buffer["before"]).reshape(-1).view(np.uint8))
        elif not RAW:
            gpu.upload(address, np.full(buffer["bytes"], 0xFF, np.uint8))
        gpu.upload(address + buffer["bytes"], GUARD)
        addresses.append(address)
    for launch in case["launches"]:
        kernel = gpu.kernel(launch["symbol"], STORE.cubin(launch["symbol"]))
        gpu.launch(kernel, launch["grid"], launch["block"], launch["shared"], arguments(launch, addresses))
    gpu.wait()
    wrong = []
    for number, (buffer, address) in enumerate(zip(case["buffers"], addresses)):
        # scratch may hold bytes that nobody has written, and initcheck would tell of a look at them
        count = buffer["bytes"] if "before" in buffer or "after" in buffer else 0
        data = gpu.download(address, count)
        after = gpu.download(address + buffer["bytes"], len(GUARD))
        gpu.free(address)
        if not np.array_equal(after, GUARD):
            wrong.append(f"{case['name']}: a write past buffer {number}")
        if "before" in buffer and not np.array_equal(data, STORE.array(buffer["before"]).reshape(-1).view(np.uint8)):
            wrong.append(f"{case['name']}: input {number} was written")
        if "after" in buffer:
            after = STORE.array(buffer["after"])
            got = values(data, buffer["dtype"]).reshape(after.shape)
            rtol, atol = case["close"]
            with np.errstate(all="ignore"):
                far = ~np.isclose(got, after, rtol=rtol, atol=atol, equal_nan=True)
            if far.any():
                place = tuple(int(i) for i in np.argwhere(far)[0])
                wrong.append(f"{case['name']}: {far.sum()} of {far.size}, {place}: {got[place]} for {after[place]}")
    return wrong


def values(data: np.ndarray, dtype: str) -> np.ndarray:
    """Bytes as numbers, bf16 and f16 as f32."""
    if dtype == "bf16":
        return (data.view(np.uint16).astype(np.uint32) << 16).view(np.float32)
    if dtype == "f16":
        return data.view(np.float16).astype(np.float32)
    kind = {"b": "bool", "f": f"float{dtype[1:]}", "i": f"int{dtype[1:]}", "u": f"uint{dtype[1:]}"}[dtype[0]]
    return data.view(np.dtype(kind))


@pytest.mark.parametrize("op", OPS)
def test_kernels_of_an_op(gpu: Gpu, op: str) -> None:
    wrong = [w for case in CASES if case["name"].split()[0] == op for w in run(gpu, case)]
    assert not wrong, "\n".join([f"{len(wrong)} wrong", *wrong[:20]])
