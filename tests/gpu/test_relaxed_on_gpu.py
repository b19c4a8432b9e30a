"""Functions for results of 16 bits on the GPU that is here: their errors over all numbers of bf16 and f16.

Skipped where there is no GPU, or where CUDA cannot be compiled. ``-s`` shows a table.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from importlib.util import find_spec
from typing import Any

import numpy as np
import pytest
from real_gpu.kernel_store import Writer, arguments
from real_gpu.launcher import Gpu, why_not

MISSING = why_not() or next((f"no {n}" for n in ("numba_cuda", "lark") if find_spec(n) is None), None)
pytestmark = [pytest.mark.skipif(MISSING is not None, reason=str(MISSING)), pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def gpu() -> Gpu:
    return Gpu()


def computed(gpu: Gpu, name: str, attrs: Mapping[str, Any], dtype: Any, xs: list[np.ndarray]) -> np.ndarray:
    """The op of all numbers at once."""
    from gpu_kernels import simulator
    from gpu_kernels.sample_nodes import OPS

    from dslc.compiler.codegen.cuda import compile as cuda_compile
    from dslc.compiler.codegen.cuda.lower import lower
    from dslc.compiler.ir.graph import Input, Kind
    from dslc.compiler.ir.op import Builder
    from dslc.compiler.ir.types import TensorType

    values = [Input(f"x{i}", Kind.DATA, TensorType(dtype, x.shape)).value for i, x in enumerate(xs)]
    node = Builder(name="here").node(OPS[name], *values, **attrs)
    places = {value: i for i, value in enumerate((*node.inputs, *node.outputs))}
    addresses = [gpu.allocate(2 * xs[0].size) for _ in places]
    with np.errstate(invalid="ignore"):
        for address, x in zip(addresses, xs):
            gpu.upload(address, simulator.memory(x, dtype).view(np.uint8))
    launches = lower(node) or []
    for launch, described in zip(launches, Writer(gpu.architecture).launches(launches, places), strict=True):
        kernel = gpu.kernel(launch.symbol, cuda_compile.compiled(launch.code, launch.symbol, gpu.architecture).cubin)
        given = arguments(described, addresses)
        gpu.launch(kernel, described["grid"], described["block"], described["shared"], given)
    found = gpu.download(addresses[-1], 2 * xs[0].size).view(simulator.numpy_type(dtype))
    for address in addresses:
        gpu.free(address)
    with np.errstate(invalid="ignore"):
        return np.asarray(simulator.values(found, dtype))


def test_all_numbers(gpu: Gpu) -> None:
    from gpu_kernels import sixteen_bits

    wrong = []
    print(f"\n{'op':20} {'':5} {'most':>7} {'rms':>7} {'rounded':>7} {'f32':>7} units in the last place")
    for name, attrs, dtype in sixteen_bits.cases():
        found = sixteen_bits.judged(name, attrs, dtype, partial(computed, gpu, name, attrs, dtype))
        shown = name + (" by tanh" if attrs.get("approximate") else "")
        numbers = f"{found.most:7.3f} {found.rms:7.4f} {found.rounded:7.4f} {found.accurate:7.4f}"
        print(f"{shown:20} {dtype:5} {numbers} {found.other_nan or ''}")
        wrong += [f"{shown} {dtype}: {why}" for why in found.wrong]
    assert not wrong, "\n".join(wrong)
