"""Results are compared on the GPU, on a fake one here: what is usual, products of a tensor with itself, round trips."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from fake_gpu.fake_driver import FakeDriver, fake_cubin
from tuning import planted

from dslc.runtime.cuda.device import Device
from dslc.runtime.cuda.owned import Owned
from dslc.tune.comparison import Comparison, Pair, same_bits
from dslc.tune.operands import Guarded, guarded

ROWS, TERMS = 512, 4096


class Bench:
    def __init__(self, fake: FakeDriver, device: Device, owned: Owned) -> None:
        self.fake, self.device, self.owned = fake, device, owned
        self.stream = device.driver.stream(owned.noted)
        symbols = {"f32": "compare_f4", "bf16": "compare_bf16", "i32": "compare_i4", "u8": "compare_u1"}
        module = device.driver.load_module(fake_cubin(90, *symbols.values(), parameters=5), owned.noted)
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
        fake.parameters[f"compare_{name}"] = 5
    with device:
        owned = Owned(device)
        yield Bench(fake, device, owned)
        owned.close()


def _kernel(dtype: str) -> Callable[..., None]:
    return lambda *given: planted.compare(*given, dtype=dtype)


def bf16(values: np.ndarray, *, up: bool = False) -> np.ndarray:
    """Rounded to nearest; or away from zero, as a right way may round what lies between two numbers."""
    bits = values.astype(np.float32).view(np.uint32)
    return ((bits + (0xFFFF if up else 0x8000)) >> 16).astype(np.uint16)


@pytest.fixture(scope="module")
def gram() -> np.ndarray:
    """A product of a tensor with itself: its diagonal is some 64 times as large as its other elements."""
    x = np.random.default_rng(1).standard_normal((ROWS, TERMS)).astype(np.float32)
    return x @ x.T


def test_the_elements_of_normal_values_are_as_large_as_their_mean_square_says(bench: Bench) -> None:
    values = np.random.default_rng(2).normal(0, 3, 5000).astype(np.float32)
    assert bench.comparison.usual("f32", bench.put(values)) == pytest.approx(np.sqrt(np.mean(values**2)), rel=0.01)
    values[::2] = 0  # what is 0 says nothing
    squares = values[1::2] ** 2
    assert bench.comparison.usual("f32", bench.put(values)) == pytest.approx(np.sqrt(np.mean(squares)), rel=0.01)
    assert bench.comparison.usual("f32", bench.put(np.zeros(100, np.float32))) == 0
    assert bench.comparison.usual("i32", bench.put(np.arange(100, dtype=np.int32))) == 0


@pytest.mark.parametrize("scale", [1e-18, 1.0, 1e15])
def test_a_few_large_elements_say_nothing_of_the_others(scale: float, bench: Bench, gram: np.ndarray) -> None:
    others = gram[~np.eye(ROWS, dtype=bool)]
    usual = bench.comparison.usual("f32", bench.put(scale * gram))
    assert usual < 0.5 * scale * np.sqrt(np.mean(gram**2))
    assert usual == pytest.approx(scale * np.sqrt(np.mean(others**2)), rel=0.2)


def test_a_product_of_a_tensor_with_itself_may_be_rounded_either_way(bench: Bench, gram: np.ndarray) -> None:
    other_way = np.eye(ROWS, dtype=bool) | (np.arange(ROWS) % 5 == 0)
    rounded, reference = np.where(other_way, bf16(gram, up=True), bf16(gram)), bench.put(bf16(gram))
    usual = bench.comparison.usual("bf16", reference)
    [found], _ = bench.comparison.of([Pair("bf16", bench.put(rounded), reference, usual)])
    assert 0 < found.error <= 2.0**-7 and found.refusal("bf16", False) is None
    unit = 2.0**-7 * 2.0 ** np.floor(np.log2(gram.max()))
    assert unit / np.sqrt(np.mean(gram**2)) > 2.0**-3  # more than is right in units of all elements' mean square


def test_one_per_cent_beside_the_diagonal_is_wrong(bench: Bench, gram: np.ndarray) -> None:
    wrong = np.where(np.eye(ROWS, dtype=bool), gram, 1.01 * gram)
    reference = bench.put(bf16(gram))
    usual = bench.comparison.usual("bf16", reference)
    [found], _ = bench.comparison.of([Pair("bf16", bench.put(bf16(wrong)), reference, usual)])
    assert found.refusal("bf16", False) is not None
    with_diagonal = float(np.sqrt(np.mean(gram**2)))  # what would be usual if the diagonal counted
    assert np.sqrt(np.mean((wrong - gram) ** 2)) / with_diagonal < 2.0**-8


def test_one_wait_for_all_comparisons_and_zones(bench: Bench) -> None:
    values = np.arange(300, dtype=np.float32) + 1
    held, other = bench.put(values), bench.put(2 * values)
    pairs = [Pair("f32", other, held, 1.0), same_bits(held, held), same_bits(held, other), Pair("f32", held, held, 1.0)]
    bench.comparison.of(pairs)
    before = bench.fake.calls.copy()
    found, outside = bench.comparison.of(pairs, [held, other])
    assert outside is None and found[0].error == 1.0 and [each.same for each in found] == [False, True, False, True]
    spent = bench.fake.calls - before
    assert spent["cuLaunchKernel"] == len(pairs) and spent["cuMemcpyDtoHAsync"] == 1
    assert spent["cuMemAlloc"] <= 1 and spent["cuStreamQuery"] + spent["cuStreamSynchronize"] == 1
    bench.fake.array(other.address + other.size + 3, "u1", 1)[...] = 0
    assert bench.comparison.of([], [held])[1] is None  # of a constant without operands
    assert bench.comparison.of(pairs, [held, other])[1] == "writes 4 bytes after the end of result 0"
