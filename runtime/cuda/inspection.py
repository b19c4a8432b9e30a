"""Runs the instructions of a plan one at a time: to see what each computes, or to time it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from dslc.runtime.artifact.dtypes import ITEMSIZE, numpy_dtype
from dslc.runtime.artifact.instructions import results
from dslc.runtime.artifact.plan import Buffer, Plan
from dslc.runtime.cuda.binding import Binder, Group, steps_of
from dslc.runtime.cuda.timing import peaks, stopwatch
from dslc.runtime.session.backend import Measured

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dslc.runtime.cuda.lane import Lane, Slot


class Inspection:
    """A plan on the memory of one slot. ``send`` copies the inputs to the device; ``submit`` submits a group."""

    def __init__(
        self,
        plan: Plan,
        lane: Lane,
        slot: Slot,
        binder: Binder,
        send: Callable[[], None],
        submit: Callable[[Group], None],
    ) -> None:
        self._plan, self._lane, self._slot, self._binder = plan, lane, slot, binder
        self._send, self._submit = send, submit

    def watch(self, see: Callable[[str, str, Sequence[NDArray[Any]]], None]) -> None:
        """``see`` gets each instruction's name, its node and the arrays that it wrote; bf16 as f32."""
        lane, binder = self._lane, self._binder
        with self._idle_after_interrupt():
            with lane.device:
                self._send()
                lane.device.driver.synchronise(lane.stream)
            for instruction in self._plan.instructions:
                steps = steps_of(binder.placed(instruction))
                if not steps:
                    continue
                with lane.device:
                    self._submit(Group(None, steps, False))
                    found = [self._read(binder.address(i), self._plan.buffers[i]) for i in results(instruction)]
                see(type(instruction).__name__.lower(), steps[0].where, found)

    def measure(self, rounds: int) -> Measured:
        """The times of each instruction, in so many rounds."""
        lane = self._lane
        placed = ((index, steps_of(self._binder.placed(i))) for index, i in enumerate(self._plan.instructions))
        work = [(index, steps) for index, steps in placed if steps]
        with self._idle_after_interrupt(), stopwatch(lane.device, lane.stream) as watch:
            self._send()
            watch.times([steps for _, steps in work])  # measures how long submitting takes
            found = [watch.times([steps for _, steps in work]) for _ in range(rounds)]
        times = {index: [seconds[n] for seconds in found] for n, (index, _) in enumerate(work)}
        return Measured(times, {"copy": watch.copy, **peaks(lane.device)})

    def repeat(self, groups: Sequence[Group], count: int) -> float:
        """The seconds of a run of all groups, of ``count`` runs that are submitted before the first one is awaited."""
        lane = self._lane
        with self._idle_after_interrupt(), lane.device as device:
            self._send()
            device.driver.synchronise(lane.stream)
            begun = time.perf_counter()
            for _ in range(count):
                for group in groups:
                    self._submit(group)
            device.driver.synchronise(lane.stream)
            return (time.perf_counter() - begun) / count

    @contextmanager
    def _idle_after_interrupt(self) -> Iterator[None]:
        """Waits for submitted work before an interrupt is raised, because it may write memory that is reused."""
        try:
            yield
        except KeyboardInterrupt:
            self._lane.recover(self._slot)
            raise

    def _read(self, address: int, buffer: Buffer) -> NDArray[Any]:
        out = np.empty(buffer.shape, numpy_dtype(buffer.dtype))
        if out.nbytes:
            assert out.nbytes == buffer.bytes and out.itemsize == ITEMSIZE[buffer.dtype]
            lane = self._lane
            lane.device.driver.copy_out(out.ctypes.data, address, out.nbytes, lane.stream)
            lane.device.driver.synchronise(lane.stream)
        return (out.astype(np.uint32) << 16).view(np.float32) if buffer.dtype == "bf16" else out
