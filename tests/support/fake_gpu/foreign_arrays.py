"""Arrays of another library in the memory of the fake GPU, by both protocols."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from dslc.runtime.cuda import device as devices
from dslc.runtime.cuda.arrays import dlpack
from dslc.runtime.cuda.libraries.checked_calls import Noted
from dslc.runtime.cuda.owned import Owned


class Tensor:
    """What another library has: memory of its own, written on a stream of its own, late."""

    def __init__(self, values: np.ndarray, dtype: str) -> None:
        self.device = devices.device(0)
        driver = self.device.driver
        self.values, self.dtype = values, dtype
        with self.device:
            self.owned = Owned(self.device)
            self.address = driver.allocate(max(1, values.nbytes), self.owned.noted)
            self.stream = driver.stream(self.owned.noted)
            self.owned.on_close(partial(driver.synchronise, self.stream))
            if values.nbytes:  # ready when the stream gets there, and not before
                driver.copy_in(self.address, values.ctypes.data, values.nbytes, self.stream)

    def write(self, value: float) -> None:
        """The owner goes on with its memory as soon as a call has returned."""
        with self.device:
            self.values[...] = value
            self.device.driver.copy_in(self.address, self.values.ctypes.data, self.values.nbytes, self.stream)
            self.device.driver.synchronise(self.stream)

    def free(self) -> None:
        with self.device:
            self.owned.close()


class ByDlpack(Tensor):
    def __dlpack_device__(self) -> tuple[int, int]:
        return (dlpack.CUDA, 0)

    def __dlpack__(self, *, stream: int) -> Any:
        driver = self.device.driver
        with self.device:
            noted: Noted = []
            ready = driver.event(noted)
            driver.record(ready, self.stream)
            driver.wait(stream, ready)
            driver.let_go(noted)
        return dlpack.give(self.address, 0, self.dtype, self.values.shape, self)


class ByInterface(Tensor):
    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return {"shape": self.values.shape, "typestr": self.values.dtype.str, "data": (self.address, False),
                "version": 3, "stream": int(self.stream)}  # fmt: skip


KINDS = [ByDlpack, ByInterface]
