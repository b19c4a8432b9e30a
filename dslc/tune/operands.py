"""The memory of one problem on the GPU: sets of operands between red zones, filled with random values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from dslc.runtime.cuda.owned import Owned

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dslc.runtime.artifact.plan import Buffer
    from dslc.runtime.cuda.device import Device
    from dslc.tune.candidate import Operand

#: Bytes before and after each buffer that nothing may write, and their content.
ZONE: Final = 4096
PATTERN: Final = 0xA5
#: The content of results and scratch memory before a call: nan as a float, so a missing write is found.
UNWRITTEN: Final = 0xFF
_DRAWN: Final = (1 << 20) + 77  # random elements; a larger tensor repeats them, at a distance that is no round number
_SEED: Final = 2026


@dataclass(frozen=True, slots=True)
class Guarded:
    """``size`` bytes from ``address``, a multiple of 512, between two red zones."""

    name: str
    address: int
    size: int

    def zones(self, device: Device, stream: Any) -> tuple[str, bytes, bytes]:
        """Its name, and the content of the zones before and after it."""
        before, after = (
            read(device, at, ZONE, stream).tobytes() for at in (self.address - ZONE, self.address + self.size)
        )
        return self.name, before, after

    def guard(self, device: Device, stream: Any) -> None:
        """Set the zones."""
        for at in (self.address - ZONE, self.address + self.size):
            device.driver.fill(at, PATTERN, 1, ZONE, stream)


def guarded(device: Device, owned: Owned, name: str, size: int, stream: Any) -> Guarded:
    """A buffer whose zones are set. OutOfMemory R401."""
    found = Guarded(name, device.pool.allocate(size + 2 * ZONE, owned.noted).address + ZONE, size)
    found.guard(device, stream)
    return found


def read(device: Device, address: int, size: int, stream: Any) -> NDArray[np.uint8]:
    """Bytes of the device, after all earlier work of the stream."""
    found = np.empty(size, np.uint8)
    device.driver.copy_out(found.ctypes.data, address, size, stream)
    device.driver.synchronise(stream)
    return found


def room(buffers: Sequence[Buffer]) -> int:
    """The bytes of the pool that one set of operands takes."""
    from dslc.runtime.cuda.memory_pool import size_class

    return sum(size_class(buffer.bytes + 2 * ZONE) for buffer in buffers)


class Fountain:
    """Random values on the device, drawn once for each place, dtype and range, and copied from there."""

    def __init__(self, device: Device, owned: Owned, stream: Any) -> None:
        self._device, self._owned, self._stream = device, owned, stream
        self._drawn: dict[tuple[str, Operand, int], tuple[int, int]] = {}

    def fill(self, target: Guarded, dtype: str, operand: Operand, number: int) -> None:
        """Fill operand ``number`` of a problem, each with values of its own: rows of two operands that were equal would
        make the elements of a product that are much larger than others."""
        address, size = self._source(dtype, operand, number)
        driver, done = self._device.driver, min(size, target.size)
        if done:
            driver.copy(target.address, address, done, self._stream)
        while done < target.size:
            more = min(done, target.size - done)
            driver.copy(target.address + done, target.address, more, self._stream)
            done += more

    def _source(self, dtype: str, operand: Operand, number: int) -> tuple[int, int]:
        key = (dtype, operand, number)
        if key not in self._drawn:
            values = drawn(dtype, operand, number)
            block = self._device.pool.allocate(values.nbytes, self._owned.noted)
            self._device.driver.copy_in(block.address, values.ctypes.data, values.nbytes, self._stream)
            self._device.driver.synchronise(self._stream)
            self._drawn[key] = block.address, values.nbytes
        return self._drawn[key]


@cache
def drawn(dtype: str, operand: Operand, number: int) -> NDArray[Any]:
    """Random values of operand ``number``, the same in each process; bf16 as raw bits."""
    rng = np.random.default_rng((_SEED, number))
    if dtype in ("f64", "f32", "f16", "bf16"):
        wide = np.float64 if dtype == "f64" else np.float32
        values: NDArray[Any] = rng.random(_DRAWN, wide) if operand.bounded else rng.standard_normal(_DRAWN, wide)
        values = values / 2 + wide(0.25) if operand.bounded else np.abs(values) if operand.positive else values
        values *= values.dtype.type(operand.scale)
        if dtype == "bf16":
            return (values.view(np.uint32) >> 16).astype(np.uint16)
        return values.astype(np.float16) if dtype == "f16" else values
    from dslc.runtime.artifact.dtypes import numpy_dtype

    return rng.integers(operand.low, operand.high, _DRAWN).astype(numpy_dtype(dtype))
