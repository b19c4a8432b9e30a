"""Our cases on a GPU: calls on several sets of buffers are one CUDA graph, launched after the cache was emptied."""

from __future__ import annotations

import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from dslc.runtime.artifact.dtypes import numpy_dtype
from dslc.runtime.artifact.reserved import STEP_BLOCK
from dslc.runtime.artifact.targets import capability_of
from dslc.runtime.cuda import device as devices
from dslc.runtime.cuda.binding import Binder
from dslc.runtime.cuda.graphs.graph import Bulk, Join, Placed
from dslc.runtime.cuda.libraries.libraries import Libraries
from dslc.runtime.cuda.modules import Modules
from dslc.runtime.cuda.owned import Owned
from dslc.runtime.session.step_block import StepBlock
from dslc.tune.timing import Flush
from op_sweep import data
from op_sweep.build import Made, read
from op_sweep.gpu_sets import sets_for
from op_sweep.ours import SCALARS, filled
from op_sweep.worker import sampled

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from op_sweep.case import Run

_ROUNDS: Final = 200
_JOIN: Final[Placed] = (0, Join())


class Gpu:
    """The first GPU, with what all cases share."""

    def __init__(self) -> None:
        self.device = devices.device(0)
        with self.device as device:
            self.owned = Owned(device)
            self.stream = device.driver.stream(self.owned.noted)
            self.libraries = Libraries(device, self.owned)
            self.flush = Flush(device, self.owned)
            self.events = [device.driver.event(self.owned.noted, timing=True) for _ in range(2)]

    def open(self, run: Run, path: str) -> OnDevice:
        """A case."""
        return OnDevice(self, run, read(Path(path)))


class OnDevice:
    """A case on the GPU. Each set of buffers has the same inputs."""

    def __init__(self, gpu: Gpu, run: Run, made: Made) -> None:
        self._gpu, self._made = gpu, made
        self.about: dict[str, Any] = {**made.header}
        self._owned = Owned(gpu.device)
        with gpu.device, self._owned:
            self._prepare(run)

    def _prepare(self, run: Run) -> None:
        gpu, made, owned, device = self._gpu, self._made, self._owned, self._gpu.device
        capability = capability_of(device.target)
        assert capability is not None, f"{device.target} is a GPU"
        owned.on_close(device.pool.release_cached)
        code = {name: memoryview(blob) for name, blob in made.blobs.items()}
        modules = Modules(device, code, capability, False)
        owned.on_close(modules.close)
        self._count = sets_for(made.header["moved"])
        allocate = partial(device.pool.allocate, noted=owned.noted)
        sets = [(allocate(made.header["io"]).address, allocate(max(1, made.header["work"])).address)
                for _ in range(self._count)]  # fmt: skip
        self._io, self._work = sets[0]
        self._fill(run, self._io)
        placed: list[Placed] = []
        for io, work in sets:
            if io != self._io:
                device.driver.copy(io, self._io, made.header["io"], gpu.stream)
            for constant in made.plan.constants:
                buffer = made.plan.buffers[constant.buffer]
                raw = np.frombuffer(made.blobs[constant.blob], np.uint8, buffer.bytes, constant.offset)
                at = {"io": io, "work": work}[buffer.region] + buffer.offset
                device.driver.copy_in(at, raw.ctypes.data, raw.nbytes, gpu.stream)
                device.driver.synchronise(gpu.stream)
            binder = Binder(made.plan, {"io": io, "work": work, "state": 0}, modules, gpu.libraries, run.name)
            placed += [_JOIN, *(item for each in made.plan.instructions for item in binder.placed(each))]
        device.driver.synchronise(gpu.stream)
        self._graph = Bulk(device, placed, gpu.stream, owned)

    def _fill(self, run: Run, io: int) -> None:
        """The scalars and inputs of a set: uploaded once, and repeated on the device."""
        gpu, plan = self._gpu, self._made.plan
        scalars = np.zeros(STEP_BLOCK, np.uint8)
        StepBlock(plan.scalars, run.name).write(scalars, 0, SCALARS)
        parts = [(0, STEP_BLOCK, scalars)]
        values = filled(run, self._made)
        for port in plan.inputs:
            buffer = plan.buffers[port.buffer]
            assert buffer.region == "io", port.name
            parts.append((buffer.offset, buffer.bytes, np.ascontiguousarray(values[port.name]).view(np.uint8)))
        for offset, size, raw in parts:
            driver, at, done = gpu.device.driver, io + offset, min(raw.nbytes, size)
            driver.copy_in(at, raw.ctypes.data, done, gpu.stream)
            driver.synchronise(gpu.stream)
            while done < size:
                more = min(done, size - done)
                driver.copy(at + done, at, more, gpu.stream)
                done += more

    def results(self) -> list[NDArray[Any]]:
        gpu, plan = self._gpu, self._made.plan
        found = []
        with gpu.device as device:
            self._graph.launch(gpu.stream)
            device.driver.synchronise(gpu.stream)
            for port in plan.outputs:
                buffer = plan.buffers[port.buffer]
                out = np.empty(buffer.shape, numpy_dtype(buffer.dtype))
                if out.nbytes:
                    at = {"io": self._io, "work": self._work}[buffer.region] + buffer.offset
                    device.driver.copy_out(out.ctypes.data, at, out.nbytes, gpu.stream)
                    device.driver.synchronise(gpu.stream)
                found.append(data.shown(sampled(out), buffer.dtype))
        return found

    def times(self, seconds: float) -> list[float]:
        gpu = self._gpu
        found: list[float] = []
        begin, end = gpu.events
        with gpu.device as device:
            until = time.monotonic() + seconds
            while len(found) < 3 or (time.monotonic() < until and len(found) < _ROUNDS):
                gpu.flush.enqueue(gpu.stream)
                device.driver.record(begin, gpu.stream)
                self._graph.launch(gpu.stream)
                device.driver.record(end, gpu.stream)
                device.driver.synchronise(gpu.stream)
                found.append(device.driver.elapsed(begin, end) / 1000 / self._count)
        return found

    def close(self) -> None:
        with self._gpu.device as device:
            device.driver.synchronise(self._gpu.stream)
            self._owned.close()
