"""Results are compared on the GPU, on a fake one here: the numbers, and how often the host waits for them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from fake_gpu.fake_driver import FakeDriver, fake_cubin
from tuning import planted

from dslc.runtime.cuda.device import Device
from dslc.runtime.cuda.owned import Owned
from dslc.tune.checking import Limits
from dslc.tune.comparison import Comparison, Pair, same_bits
from dslc.tune.operands import Guarded, guarded


class Bench:
    def __init__(self, fake: FakeDriver, device: Device, owned: Owned) -> None:
        self.fake, self.device, self.owned = fake, device, owned
        self.stream = device.driver.stream(owned.noted)
        symbols = {"f32": "compare_f4", "bf16": "compare_bf16", "i32": "compare_i4", "u8": "compare_u1"}
        module = device.driver.load_module(fake_cubin(90, *symbols.values(), parameters=6), owned.noted)
        functions = {dtype: device.driver.function(module, symbol) for dtype, symbol in symbols.items()}
        self.comparison = Comparison(device, owned, self.stream, lambda dtype: (functions[dtype], 3, 32))

    def put(self, values: np.ndarray) -> Guarded:
        held = guarded(self.device, self.owned, "result 0", values.nbytes, self.stream)
        self.device.driver.synchronise(self.stream)
        self.fake.array(held.address, "u1", values.nbytes)[...] = np.frombuffer(values.tobytes(), np.uint8)
        return held


@pytest.fixture
def bench(gpu: tuple[FakeDriver, Device]) -> Any:
    fake, device = gpu
    for name in ("f4", "bf16", "i4", "u1"):
        fake.kernels[f"compare_{name}"] = _kernel(name)
        fake.parameters[f"compare_{name}"] = 6
    with device:
        owned = Owned(device)
        yield Bench(fake, device, owned)
        owned.close()


def _kernel(dtype: str) -> Callable[..., None]:
    return lambda *given: planted.compare(*given, dtype=dtype)


def test_the_limits_reach_the_kernel(bench: Bench) -> None:
    """A unit of the element is no difference, and far is what is more than half of a unit more."""
    reference = np.array([1.0, 2.0, 4.0, 0.0], np.float32)
    got = reference * np.array([1.25, 1.5, 1.0, 1.0], np.float32)
    limits = Limits(most=1.0, mean=0.2, unit=0.25)
    [found], _ = bench.comparison.of([Pair("f32", bench.put(got), bench.put(reference), limits)])
    assert limits.far == pytest.approx(0.3)
    assert (found.most, found.many) == (0.5, 1 / 3)  # of three that are not 0
    assert found.size == pytest.approx(np.sqrt(21 / 4)) and found.mean == pytest.approx(np.sqrt((1 + 1 / 16) / 4))


def test_one_wait_for_all_comparisons_and_zones(bench: Bench) -> None:
    values = np.arange(300, dtype=np.float32) + 1
    held, other = bench.put(values), bench.put(2 * values)
    pairs = [Pair("f32", other, held), same_bits(held, held), same_bits(held, other), Pair("f32", held, held)]
    bench.comparison.of(pairs)
    before = bench.fake.calls.copy()
    found, outside = bench.comparison.of(pairs, [held, other])
    assert outside is None and [each.same for each in found] == [False, True, False, True]
    assert found[0].most == 300
    spent = bench.fake.calls - before
    assert spent["cuLaunchKernel"] == len(pairs) and spent["cuMemcpyDtoHAsync"] == 1
    assert spent["cuMemAlloc"] <= 1 and spent["cuStreamQuery"] + spent["cuStreamSynchronize"] == 1
    bench.fake.array(other.address + other.size + 3, "u1", 1)[...] = 0
    assert bench.comparison.of([], [held])[1] is None  # of a constant without operands
    assert bench.comparison.of(pairs, [held, other])[1] == "writes 4 bytes after the end of result 0"
