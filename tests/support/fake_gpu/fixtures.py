"""Fixtures of tests that run on a fake GPU; a conftest.py imports them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from fake_gpu.fake_driver import FakeDriver
from fake_gpu.fake_libraries import FakeCublasLt, FakeCudnn
from fake_gpu.gpu_pair import Pair
from fake_gpu.library_bench import Bench

from dslc.runtime.cuda import device as devices
from dslc.runtime.cuda.device import Device
from dslc.runtime.cuda.driver import Driver
from dslc.runtime.cuda.libraries import cublaslt, cudnn
from dslc.runtime.cuda.owned import Owned


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., FakeDriver]]:
    """``machine(**options)``: this process has the fake driver's GPUs, and no others, until the test ends."""

    def make(*args: Any, **options: Any) -> FakeDriver:
        fake = FakeDriver(*args, **options)
        monkeypatch.setattr(devices, "_machine", devices._Machine())

        def load() -> Driver:
            driver = Driver(fake, patience=fake.patience)
            driver.init()
            return driver

        monkeypatch.setattr(devices, "load_driver", load)
        return fake

    yield make


@pytest.fixture
def gpu(machine: Callable[..., FakeDriver]) -> tuple[FakeDriver, Device]:
    """A fake GPU of 1 GiB and the device on it."""
    fake = machine()
    return fake, devices.device(0)


@pytest.fixture
def pair(tmp_path: Path, machine: Callable[..., FakeDriver]) -> Iterator[Callable[..., Pair]]:
    opened: list[Pair] = []

    def make(**options: Any) -> Pair:
        opened.append(Pair(tmp_path, machine, **options))
        return opened[-1]

    yield make
    for one in opened:
        one.gpu.close()
        one.cpu.close()
        assert devices.device(0).info().memory.used == 0
        devices.device(0).close()
        assert one.fake.leaks() == {}


@pytest.fixture
def libraries(monkeypatch: pytest.MonkeyPatch) -> Callable[[FakeDriver], tuple[FakeCublasLt, FakeCudnn]]:
    """Puts fakes in the place of the libraries of this process, for a driver. No load is told to have taken long, as
    each does on a busy machine: a test of that sets the limit itself."""
    monkeypatch.setattr("dslc.runtime.cuda.libraries.libraries._WORTH_TELLING", float("inf"))

    def make(fake: FakeDriver) -> tuple[FakeCublasLt, FakeCudnn]:
        lt, dnn = FakeCublasLt(fake), FakeCudnn(fake)
        monkeypatch.setattr(cublaslt, "load_cublaslt", lambda: lt)
        monkeypatch.setattr(cudnn, "load_cudnn", lambda: dnn)
        return lt, dnn

    return make


@pytest.fixture
def bench(gpu: tuple[FakeDriver, Device], libraries: Any) -> Iterator[tuple[Bench, FakeCublasLt, FakeCudnn]]:
    """Calls on a fake GPU, and the fakes of cuBLASLt and cuDNN."""
    fake, device = gpu
    lt, dnn = libraries(fake)
    with device, closing(Owned(device)) as owned:
        yield Bench(fake, device, owned), lt, dnn
