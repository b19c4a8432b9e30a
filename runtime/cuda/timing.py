"""Measures the instructions of a plan on a GPU with events around each, and gives the peaks of memory and arithmetic.

The host needs some microseconds to submit a kernel, longer than many kernels take, so events alone would measure the
host. Therefore the stream is first kept busy with copies of a large block, for longer than submitting takes. The work
submitted meanwhile then runs without gaps, after a copy that has emptied the caches. Recording an event also takes
device time, about as much as a small kernel, so the time between two events with nothing between them is subtracted.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from dslc.base.errors import OutOfMemory
from dslc.runtime.cuda.owned import Owned

if TYPE_CHECKING:
    from dslc.runtime.cuda.device import Device
    from dslc.runtime.cuda.graphs.graph import Step

_BLOCK: Final = 256 << 20  # bytes per copy: several times the largest cache
_LEAST: Final = 1 << 20
_COPIES: Final = 20  # copies that measure the bandwidth
_AT_ONCE: Final = 100  # instructions after one delay: streams hold about a thousand items
_SLACK: Final = 2.0  # ratio of a delay to the first measured time of submitting
_MOST_DELAYS: Final = 400  # copies in one delay

#: Operations per cycle of a multiprocessor, by compute capability: matrix products in 16, 32 and 64 bits
#: (sums in f32; no TF32), then everything else in 32 and 64 bits. NVIDIA's CUDA C++ programming guide, arithmetic
#: throughput, and the white papers of A100, L40, H100 and B200.
_RATES: Final = {
    (8, 0): (2048, 128, 128, 128, 64),
    (8, 6): (512, 256, 4, 256, 4),
    (8, 9): (1024, 256, 4, 256, 4),
    (9, 0): (4096, 256, 256, 256, 128),
    (10, 0): (8192, 256, 256, 256, 128),
}
_NAMES: Final = ("matrix16", "matrix32", "matrix64", "f32", "f64")


class Stopwatch:
    """Times work on a stream of a device, whose context must be current. ``copy``: measured bytes per second that a
    copy reads and writes."""

    def __init__(self, device: Device, stream: Any, owned: Owned) -> None:
        self._device, self._stream = device, stream
        self._block, self._size = _scratch(device, owned)
        self._events = [device.driver.event(owned.noted, timing=True) for _ in range(_AT_ONCE + 1)]
        self._delay()  # the first ones are slower
        self._submitting = 0.0  # seconds that submitting an instruction takes
        self._recording = 0.0  # seconds of the device that recording an event takes
        self._copy_seconds = min(self._time_of_a_copy() for _ in range(_COPIES))
        nothing: list[tuple[Step, ...]] = [()] * _AT_ONCE
        self._some(nothing)  # measures the host's time for it
        self._recording = statistics.median(self._some(nothing))
        self._copy_seconds -= self._recording
        self.copy = 2 * self._size / self._copy_seconds

    def _delay(self) -> None:
        self._device.driver.copy(self._block + self._size, self._block, self._size, self._stream)

    def _time_of_a_copy(self) -> float:
        driver, (begin, end, *_) = self._device.driver, self._events
        driver.record(begin, self._stream)
        self._delay()
        driver.record(end, self._stream)
        driver.wait_host(end)
        return self._between(begin, end)

    def _between(self, begin: Any, end: Any) -> float:
        return max(0.0, self._device.driver.elapsed(begin, end) / 1000 - self._recording)

    def times(self, work: Sequence[Sequence[Step]]) -> list[float]:
        """Seconds of each item of ``work``, run in this order."""
        found: list[float] = []
        for first in range(0, len(work), _AT_ONCE):
            found += self._some(work[first : first + _AT_ONCE])
        return found

    def _some(self, work: Sequence[Sequence[Step]]) -> list[float]:
        driver = self._device.driver
        wanted = _SLACK * self._submitting * len(work) / self._copy_seconds
        for _ in range(min(_MOST_DELAYS, 1 + int(wanted))):
            self._delay()
        begun = time.perf_counter()
        driver.record(self._events[0], self._stream)
        for steps, event in zip(work, self._events[1:]):
            for step in steps:
                step.submit(self._device, self._stream)
            driver.record(event, self._stream)
        self._submitting = max(self._submitting, (time.perf_counter() - begun) / len(work))
        driver.wait_host(self._events[len(work)])
        pairs = zip(self._events, self._events[1 : len(work) + 1])
        return [self._between(begin, end) for begin, end in pairs]


@contextmanager
def stopwatch(device: Device, stream: Any) -> Iterator[Stopwatch]:
    """A stopwatch; its memory and events are let go of at the end."""
    with device:
        owned = Owned(device)
        try:
            yield Stopwatch(device, stream, owned)
        finally:
            owned.close()


def _scratch(device: Device, owned: Owned) -> tuple[int, int]:
    """The address of two blocks of the size that is given with it: as large as there is memory for."""
    size = _BLOCK
    owned.on_close(device.pool.release_cached)
    while True:
        try:
            block = device.pool.allocate(2 * size, owned.noted)
        except OutOfMemory:
            if size <= _LEAST:
                raise
            size //= 2
            continue
        device.driver.fill(block.address, 1, 1, 2 * size, device.inbox)
        device.driver.synchronise(device.inbox)
        return block.address, size


def peaks(device: Device) -> dict[str, float]:
    """Operations per second at the highest clock: ``matrix16``, ``matrix32``, ``matrix64``, ``f32``, ``f64``. An
    unknown architecture gets the values of the nearest older one; none if it is older than all."""
    known = [capability for capability in _RATES if capability <= device.capability]
    if not known:
        return {}
    return {name: float(rate * device.cycles) for name, rate in zip(_NAMES, _RATES[max(known)])}
