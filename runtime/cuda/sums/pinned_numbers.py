"""Numbers of a step that arrive in pinned host memory while the host goes on: loss and metrics of shards, and flags."""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import numpy as np

from dslc.base.errors import DslcError
from dslc.runtime.cuda.transfers import view_of
from dslc.runtime.session.backend import LateOutputs

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dslc.runtime.artifact.plan import Buffer
    from dslc.runtime.cuda.device import Device
    from dslc.runtime.cuda.owned import Owned
    from dslc.runtime.cuda.sums.layout import Layout
    from dslc.runtime.session.backend import Outputs


class PinnedNumbers:
    """Pinned memory for the numbers of all shards of a step, used again two steps later."""

    def __init__(self, device: Device, size: int, owned: Owned) -> None:
        self._device = device
        self.address = device.driver.allocate_host(size, owned.noted)
        self.arrived = device.driver.event(owned.noted)
        self._view = np.ctypeslib.as_array((ctypes.c_uint8 * size).from_address(self.address))
        self._pending: weakref.ref[_Arriving] | None = None
        owned.on_close(self._end)

    def _end(self) -> None:
        with suppress(DslcError):  # whoever reads the numbers gets the error
            self.settle()

    def settle(self) -> None:
        """Copy numbers that were not read yet, because the memory is needed."""
        waiting = self._pending() if self._pending is not None else None
        if waiting is not None:
            waiting.settle()
        self._pending = None

    def numbers(self, layout: Layout, count: int) -> list[Outputs]:
        found = _Arriving(self._device, self.arrived, self._view)
        self._pending = weakref.ref(found)
        return [_Row(found, index, layout) for index in range(count)]

    def flags(self, outputs: LateOutputs, buffer: Buffer, count: int) -> LateOutputs:
        """The outputs of an update, with the flags of all ``count`` processes."""
        found = _Arriving(self._device, self.arrived, self._view)
        self._pending = weakref.ref(found)
        return _Told(found, outputs, buffer, count)


class _Arriving:
    """Bytes that may still be on their way to the host."""

    def __init__(self, device: Device, arrived: Any, memory: NDArray[np.uint8]) -> None:
        self._device, self._arrived, self._memory = device, arrived, memory
        self._copies: dict[int, NDArray[np.uint8]] = {}  # at most one: the first copy made by any thread

    def settle(self) -> None:
        if not self._copies:
            with self._device as device:
                device.driver.wait_host(self._arrived)
            self._copies.setdefault(0, self._memory.copy())

    @property
    def bytes(self) -> NDArray[np.uint8]:
        self.settle()
        return self._copies[0]


class _Told(LateOutputs):
    """What an update tells, for all processes."""

    def __init__(self, late: _Arriving, outputs: LateOutputs, flags: Buffer, count: int) -> None:
        self._late, self._outputs, self._flags, self._count = late, outputs, flags, count

    def __iter__(self) -> Iterator[tuple[str, str, NDArray[Any]]]:
        size = self._flags.bytes
        rows = self._late.bytes[: self._count * size].reshape(self._count, size)
        every: NDArray[Any] = np.logical_or.reduce(rows)
        for name, kind, view in self._outputs:
            yield name, kind, every if kind == "flags" else view

    def settle(self) -> None:
        self._late.settle()
        self._outputs.settle()


class _Row(LateOutputs):
    """Loss and metrics of one run."""

    def __init__(self, late: _Arriving, index: int, layout: Layout) -> None:
        self._late, self._index, self._layout = late, index, layout

    def __iter__(self) -> Iterator[tuple[str, str, NDArray[Any]]]:
        layout, memory = self._layout, self._late.bytes
        first = self._index * layout.row - layout.numbers
        return iter([(name, kind, view_of(memory, first + b.offset, b)) for name, kind, b in layout.ports])

    def settle(self) -> None:
        self._late.settle()
