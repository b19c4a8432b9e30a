"""The state of a session in device memory: weights, buffers and the optimizer's state, as one region."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dslc.runtime.cuda.device import Device
    from dslc.runtime.cuda.lane import Lane


class DeviceState:
    """The state region in device memory. ``prepared``: the address of what is prepared from it, 0 for nothing. Runs
    that write either count as runs that write the state."""

    def __init__(self, device: Device, address: int, prepared: int, stream: Any) -> None:
        self.address, self.prepared = address, prepared
        self._device, self._stream = device, stream
        self._written: Any = None  # the event after the last run that wrote the state
        self._writer: Lane | None = None  # the lane of that run

    def written_by(self, lane: Lane, event: Any) -> None:
        """Record that a run of ``lane`` which writes the state is over when ``event`` has happened."""
        self._writer, self._written = lane, event

    def wait_for_others(self, lane: Lane) -> None:
        """Make ``lane``'s next run wait for the last run of another lane that wrote the state; its own runs are
        ordered."""
        if self._writer is not None and self._writer is not lane:
            self._device.driver.wait(lane.stream, self._written)

    def _wait(self) -> None:
        if self._written is not None:
            self._device.driver.wait_host(self._written)

    def read(self, offset: int, out: NDArray[Any]) -> None:
        if out.nbytes:
            with self._device as device:
                self._wait()  # a copy of pageable memory would wait inside the driver
                with self._finished():
                    device.driver.copy_out(out.ctypes.data, self.address + offset, out.nbytes, self._stream)

    def write(self, offset: int, values: NDArray[Any]) -> None:
        if values.nbytes:
            dense = np.ascontiguousarray(values)
            with self._device as device:
                self._wait()
                with self._finished():
                    device.driver.copy_in(self.address + offset, dense.ctypes.data, dense.nbytes, self._stream)

    @contextmanager
    def _finished(self) -> Iterator[None]:
        """Wait for the copy, also after an interrupt: the caller may then reuse the host memory."""
        try:
            yield
            self._device.driver.synchronise(self._stream)
        except KeyboardInterrupt:
            self._device.driver.synchronise(self._stream)
            raise
