"""Times candidates in turns: each one's calls are a CUDA graph, and each round launches every graph once.

A round interleaves the candidates, so a change of the clock or of the temperature meets all of them. Before each launch
the second-level cache is filled with other data; this takes longer than submitting the launch, so the graph follows
without a gap.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from dslc.runtime.cuda.device import Device
    from dslc.runtime.cuda.graphs.graph import Bulk
    from dslc.runtime.cuda.owned import Owned

_FEWEST: Final = 5  # rounds
_MOST: Final = 200
_SETTLED: Final = 0.01  # relative spread at which a candidate needs no more rounds
#: After so many rounds, candidates get no more turns that take more than so many times the least median.
_NARROWER: Final = {3: 1.5, 8: 1.15}
_FIRST: Final = min(_NARROWER)
_FLUSHES: Final = 2  # times the cache that is written before a launch
_LEAST_FLUSH: Final = 64 << 20  # bytes; takes some 20 us, as long as submitting a graph


def spread(rounds: Sequence[float]) -> float:
    """(75th - 25th percentile) / median."""
    if len(rounds) < 2:
        return 0.0
    low, median, high = statistics.quantiles(rounds, n=4, method="inclusive")
    return (high - low) / median if median else 0.0


def provider_of(name: str) -> str:
    """The provider of a candidate, its name's first word."""
    return name.partition(" ")[0]


def hopeful(seconds: Mapping[str, float], factor: float) -> list[str]:
    """The names of those that take at most ``factor`` times the least time of their provider: a build may be
    allowed some providers only."""
    least: dict[str, float] = {}
    for name, each in seconds.items():
        provider = provider_of(name)
        least[provider] = min(each, least.get(provider, each))
    return [name for name, each in seconds.items() if each <= factor * least[provider_of(name)]]


def entrants(seconds: Mapping[str, float], factor: float) -> list[str]:
    """The names of those that get rounds, by the time of a single call each: the hopeful ones, and the first, which is
    what a build takes without measurements. A busy host may have held up its single call."""
    return list(dict.fromkeys([*list(seconds)[:1], *hopeful(seconds, factor)]))


class Flush:
    """Memory that is written to empty the second-level cache."""

    def __init__(self, device: Device, owned: Owned) -> None:
        self._size = max(_LEAST_FLUSH, _FLUSHES * device.cache_bytes)
        self._address = device.pool.allocate(self._size, owned.noted).address
        self._device = device
        self._value = 0

    def enqueue(self, stream: Any) -> None:
        self._value = (self._value + 1) % 251
        self._device.driver.fill(self._address, self._value, 1, self._size, stream)


class Turns:
    """``graphs``: by name a graph, and the number of calls in it. ``begins`` is called with the name before a graph is
    launched for the first time."""

    def __init__(
        self, device: Device, stream: Any, owned: Owned, flush: Flush, graphs: Mapping[str, tuple[Bulk, int]],
        begins: Callable[[str], None],
    ) -> None:  # fmt: skip
        self._device, self._stream, self._flush, self._begins = device, stream, flush, begins
        self._graphs = graphs
        driver = device.driver
        self._events = {name: [driver.event(owned.noted, timing=True) for _ in range(2)] for name in graphs}
        self.rounds: dict[str, list[float]] = {name: [] for name in graphs}

    def run(self, seconds: float) -> None:
        """Rounds until the spread of each is small, or ``seconds`` have passed."""
        for name in self._graphs:  # the first launch of each is slower, and may never end
            self._begins(name)
            self._graphs[name][0].launch(self._stream)
            self._device.driver.synchronise(self._stream)
        begun = time.monotonic()
        names = list(self._graphs)
        for number in range(_MOST):
            self._round(names[number % len(names) :] + names[: number % len(names)])
            if number + 1 in _NARROWER:
                medians = {name: statistics.median(self.rounds[name]) for name in names}
                names = hopeful(medians, _NARROWER[number + 1])
            if time.monotonic() - begun > seconds and number + 1 >= _FIRST:
                return
            if number + 1 >= _FEWEST and all(spread(self.rounds[name]) < _SETTLED for name in names):
                return

    def _round(self, names: Sequence[str]) -> None:
        driver = self._device.driver
        for name in names:
            begin, end = self._events[name]
            self._flush.enqueue(self._stream)
            driver.record(begin, self._stream)
            self._graphs[name][0].launch(self._stream)
            driver.record(end, self._stream)
        driver.synchronise(self._stream)
        for name in names:
            begin, end = self._events[name]
            self.rounds[name].append(driver.elapsed(begin, end) / 1000 / self._graphs[name][1])
