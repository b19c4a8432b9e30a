"""The pool as a memory resource of cuda.core, for libraries that accept one. The only module that imports cuda.core."""

from __future__ import annotations

from typing import Any

from cuda.core import Buffer, MemoryResource

from dslc.runtime.cuda.device import Device
from dslc.runtime.cuda.memory_pool import Block


class PoolResource(MemoryResource):  # type: ignore[misc]  # cuda.core carries no types
    """``cuda.core.MemoryResource`` over a device's pool.

    The pool is not stream-ordered: ``deallocate`` waits for the given stream.
    """

    is_device_accessible = True
    is_host_accessible = False
    is_managed = False

    def __init__(self, device: Device) -> None:
        super().__init__()
        self._device = device
        self._blocks: dict[int, Block] = {}

    @property
    def device_id(self) -> int:
        return self._device.index

    def allocate(self, size: int, *, stream: Any) -> Buffer:
        """A buffer of ``size`` bytes, ready at once. OutOfMemory R401."""
        with self._device:
            block = self._device.pool.allocate(size)
        self._blocks[block.address] = block
        return Buffer.from_handle(block.address, size, self, stream=stream)

    def deallocate(self, ptr: Any, size: int, *, stream: Any) -> None:
        """Return the block to the pool after ``stream`` has finished using it."""
        if stream is not None:
            stream.sync()
        block = self._blocks.pop(int(ptr))
        with self._device:
            self._device.pool.free(block)
