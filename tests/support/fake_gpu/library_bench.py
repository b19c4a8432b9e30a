"""Arrays in the memory of a fake GPU, and calls of fake libraries on them."""

from __future__ import annotations

from typing import Any

import numpy as np
from fake_gpu.fake_driver import FakeDriver
from fake_gpu.fake_libraries import numbers, put

from dslc.runtime.artifact.plan import Buffer
from dslc.runtime.cuda.device import Device
from dslc.runtime.cuda.graphs.graph import Bulk, LibraryCall
from dslc.runtime.cuda.libraries.checked_calls import Noted
from dslc.runtime.cuda.libraries.libraries import Libraries
from dslc.runtime.cuda.owned import Owned


class Bench:
    """Arrays in the memory of a fake GPU, and instructions on them."""

    def __init__(self, fake: FakeDriver, device: Device, owned: Owned) -> None:
        self.fake, self.device, self.owned = fake, device, owned
        self.buffers: list[Buffer] = []
        self.base = device.pool.allocate(1 << 22).address
        self.end = 0
        self.libraries = Libraries(device, owned)

    def array(self, values: np.ndarray, dtype: str) -> int:
        kept = np.zeros(values.shape, {"bf16": np.uint16, "f16": np.float16, "f64": np.float64}.get(dtype, np.float32))
        put(kept, values, dtype)
        offset = self.end
        self.end += -(-kept.nbytes // 64) * 64
        self.buffers.append(Buffer("work", offset, dtype, values.shape))
        self.fake.array(self.base + offset, kept.dtype.str, kept.shape)[...] = kept
        return len(self.buffers) - 1

    def room(self, size: int) -> int:
        self.buffers.append(Buffer("work", self.end, "u8", (size,)))
        self.end += -(-size // 64) * 64
        return len(self.buffers) - 1

    def fill(self, index: int) -> None:
        """Bytes that no result has."""
        b = self.buffers[index]
        self.fake.array(self.base + b.offset, "u1", (b.bytes,))[...] = 0x7F

    def place(self, index: int) -> int:
        return self.base + self.buffers[index].offset

    def candidates(self, instruction: Any, limit: int, deterministic: bool) -> list[Any]:
        return self.libraries.candidates(instruction, self.buffers, self.place, limit, deterministic)

    def default(self, instruction: Any) -> Any:
        return self.libraries.default(instruction, self.buffers, self.place)

    def run(self, instruction: Any, out: int, captured: bool) -> np.ndarray:
        run = self.libraries.call(instruction, self.buffers, self.place)
        step = LibraryCall(run, self.libraries.recorder, "w net.nn:3")
        noted: Noted = []
        stream = self.device.driver.stream(noted)
        if captured:
            Bulk(self.device, [(0, step)], stream, self.owned).launch(stream)
        else:
            step.submit(self.device, stream)
        self.device.driver.synchronise(stream)
        self.device.driver.let_go(noted)
        b = self.buffers[out]
        stored = {"bf16": "<u2", "f16": "<f2", "f64": "<f8", "f32": "<f4"}[b.dtype]
        return numbers(self.fake.array(self.base + b.offset, stored, b.shape).copy(), b.dtype)
