"""The pool: size classes, reuse, one more try after giving back what is cached, figures that add up."""

from __future__ import annotations

import contextlib
import random
import threading
from typing import Any, cast

import pytest
from fake_gpu.fake_driver import FakeDriver

from dslc.base.errors import EnvironmentFault, OutOfMemory
from dslc.runtime.cuda.device import Device
from dslc.runtime.cuda.memory_pool import PAGE, MemoryPool, size_class

GIB = 1 << 30


def test_size_classes() -> None:
    assert [size_class(s) for s in (1, 512, 513, 4096, 4097, 1 << 20)] == [512, 512, 1024, 4096, 8192, 1 << 20]
    assert size_class((1 << 20) + 1) == PAGE and size_class(PAGE) == PAGE and size_class(PAGE + 1) == 2 * PAGE
    rng = random.Random(1)
    for _ in range(1000):
        size = rng.randrange(1, 1 << 34)
        room = size_class(size)
        assert size <= room and size_class(room) == room and (room < PAGE or room - size < PAGE)


def test_a_freed_block_serves_its_class_again(gpu: tuple[FakeDriver, Device]) -> None:
    fake, device = gpu
    with device:
        first = device.pool.allocate(3 << 20)
        device.pool.free(first)
        second = device.pool.allocate((4 << 20) - 5)
        assert second.address == first.address and fake.calls["cuMemAlloc"] == 1
        third = device.pool.allocate(100)
        info = device.pool.info()
        assert (info.used, info.cached, info.peak, info.blocks, info.allocations) == (
            (4 << 20) + 512, 0, (4 << 20) + 512, 2, 2,
        )  # fmt: skip
        assert info.free == GIB - fake.used
        device.pool.free(second)
        device.pool.free(third)
        assert device.pool.info().cached == fake.used and device.pool.available() == GIB
        device.pool.release_cached()
        assert fake.leaks() == {}
        with pytest.raises(AssertionError, match="but not allocated"):
            device.pool.free(third)


def test_ten_shapes_of_a_fifth_of_the_memory_one_after_another(gpu: tuple[FakeDriver, Device]) -> None:
    fake, device = gpu
    with device:
        for number in range(10):
            block = device.pool.allocate(GIB // 5 + number * PAGE)
            device.pool.free(block)
        assert device.pool.info().used == 0 and fake.used <= GIB


def test_a_refusal_is_tried_once_more_without_the_cache(gpu: tuple[FakeDriver, Device]) -> None:
    fake, _ = gpu
    _, device = gpu
    pool = MemoryPool(device.driver, "gpu:0", headroom=0)
    with device:
        for _ in range(3):
            pool.free(pool.allocate(GIB // 4 + 1))
        held = [pool.allocate(GIB // 4 + 1)]
        fake.used_elsewhere = GIB // 4  # another process grew
        pool.free(held.pop())
        big = pool.allocate(GIB // 2)
        assert pool.info().cached == 0
        with pytest.raises(OutOfMemory) as caught:
            pool.allocate(GIB // 2)
        assert caught.value.code == "R401"
        assert "512.0 MiB of GPU memory are needed; 256.0 MiB of 1.0 GiB are free" in caught.value.message
        assert "this process holds 512.0 MiB" in caught.value.message
        pool.free(big)  # and the pool works on
        pool.free(pool.allocate(GIB // 2))


def test_the_headroom_keeps_cached_blocks_from_filling_the_device(gpu: tuple[FakeDriver, Device]) -> None:
    fake, device = gpu
    with device:
        device.pool.free(device.pool.allocate(GIB // 2))
        device.pool.free(device.pool.allocate(GIB * 47 // 100))  # would leave 3 %
        assert fake.used < GIB // 2


def test_every_call_of_the_pool_may_fail(gpu: tuple[FakeDriver, Device]) -> None:
    fake, device = gpu

    def work() -> None:
        pool = MemoryPool(device.driver, "gpu:0")
        living = []
        try:
            for size in (100, GIB // 2, 5 << 20):
                living.append(pool.allocate(size))
            pool.free(living.pop(1))
            living.append(pool.allocate(GIB * 55 // 100))
        finally:
            for block in living:
                pool.free(block)
            fake.fail_at = None
            pool.release_cached()

    with device:
        begin = len(fake.log)
        work()
        count = len(fake.log) - begin
        assert count >= 10
        for number in range(1, count + 1):
            for code in (1, 2, 999):
                fake.fail_at, fake.fail_with = len(fake.log) + number, code
                with contextlib.suppress(EnvironmentFault, OutOfMemory):
                    work()
                assert fake.leaks() == {}
    assert fake.fired >= 3 * (count - 3)  # the last calls give the cache back and are not made to fail


class SlowDriver:
    """A driver whose allocation ends when the test says so."""

    def __init__(self) -> None:
        self.asked, self.go, self.addresses = threading.Event(), threading.Event(), iter(range(512, 1 << 20, 512))

    def memory(self) -> tuple[int, int]:
        return GIB, GIB

    def allocate(self, size: int, noted: list[Any]) -> int:
        self.asked.set()
        assert self.go.wait(30)
        noted.append(("cuMemFree", (0, next(self.addresses))))
        return int(noted[-1][1][1])

    def free(self, addresses: list[int]) -> None:
        addresses.pop()


@pytest.mark.parametrize("call", ["allocate", "free", "available", "info", "release_cached"])
def test_no_other_thread_is_in_the_pool_while_one_allocates(call: str) -> None:
    driver = SlowDriver()
    pool = MemoryPool(cast(Any, driver), "gpu:0")
    driver.go.set()
    held, cached = pool.allocate(100), pool.allocate(100)
    pool.free(cached)
    driver.go.clear()
    driver.asked.clear()
    arguments = {"allocate": (100,), "free": (held,)}.get(call, ())
    first = threading.Thread(target=pool.allocate, args=(5000,))  # of a class without cached blocks
    other = threading.Thread(target=getattr(pool, call), args=arguments)
    first.start()
    assert driver.asked.wait(30)
    other.start()
    other.join(0.2)
    waited = other.is_alive()
    driver.go.set()
    first.join(30)
    other.join(30)
    assert waited and not first.is_alive() and not other.is_alive()
    assert pool.info().blocks == {"allocate": 3, "free": 1}.get(call, 2)


def test_the_pool_as_a_memory_resource_of_cuda_core(gpu: tuple[FakeDriver, Device]) -> None:
    from cuda.core import MemoryResource

    from dslc.runtime.cuda.memory_resource import PoolResource

    class Stream:
        synced = 0

        def sync(self) -> None:
            self.synced += 1

    _, device = gpu
    resource = PoolResource(device)
    assert isinstance(resource, MemoryResource)
    assert (resource.device_id, resource.is_device_accessible, resource.is_host_accessible) == (0, True, False)
    with device:
        block = device.pool.allocate(1000)
    resource._blocks[block.address] = block  # cuda.core's Buffer needs a real driver's stream
    stream = Stream()
    resource.deallocate(block.address, 1000, stream=stream)
    assert stream.synced == 1 and device.info().memory.used == 0
