"""The states that programs carry from run to run in a lane's device memory."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from dslc.runtime.artifact.dtypes import filled
from dslc.runtime.cuda.graphs.graph import fill_steps
from dslc.runtime.cuda.lane import Lane

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dslc.runtime.artifact.interface import Carried


class LaneContext:
    """Implements ``ContextBlock`` for the memory at ``address``; every access follows the lane's earlier runs."""

    def __init__(self, lane: Lane, address: int) -> None:
        self._lane, self._address = lane, address

    def read(self, offset: int, out: NDArray[Any]) -> None:
        if out.nbytes:
            with self._lane.device as device, self._finished():
                device.driver.copy_out(out.ctypes.data, self._address + offset, out.nbytes, self._lane.stream)

    def write(self, offset: int, values: NDArray[Any]) -> None:
        if values.nbytes:
            dense = np.ascontiguousarray(values)
            with self._lane.device as device, self._finished():
                device.driver.copy_in(self._address + offset, dense.ctypes.data, dense.nbytes, self._lane.stream)

    def fill(self, state: Carried) -> None:
        element = filled(state.dtype, (1,), state.start).view(np.uint8)
        count = prod(state.shape)
        with self._lane.device as device:
            for step in fill_steps(self._address + state.offset, element.tobytes(), count, state.name):
                step.submit(device, self._lane.stream)

    @contextmanager
    def _finished(self) -> Iterator[None]:
        """Wait for the runs before the copy and for the copy, also after an interrupt."""
        driver, stream = self._lane.device.driver, self._lane.stream
        try:
            driver.synchronise(stream)  # a copy of pageable memory would wait inside the driver
            yield
            driver.synchronise(stream)
        except KeyboardInterrupt:
            driver.synchronise(stream)
            raise
