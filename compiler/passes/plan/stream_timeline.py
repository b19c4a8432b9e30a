"""Models when nodes on several streams start and end (roofline model), and which node has ended before which.

The modelled machine works for one node at a time. A node first has a latency (launch and start), during which other
nodes may work. Then it needs the machine for as long as moving its bytes or its arithmetic takes. So streams only hide
the latency of some nodes with the work of others; no node's work gets faster.

A GPU places the blocks of a kernel after those of all earlier kernels (Amert et al. 2017, GPU scheduling on the NVIDIA
TX2: hidden details revealed). So the work of one node hides the launch of another node, and the start of another node
only if that is a product. At the end the streams join, which takes as long as a wait.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from dslc.compiler.cost import Machine, halves, is_product
from dslc.compiler.ir.graph import Node
from dslc.compiler.ir.program import Program

#: The time of a wait, in launches. On an H200, two concurrent kernels of 1.05 us each take 1.7 us together, and three
#: take 2.4 us if one of them waits for the two others.
_WAIT: Final = 0.35


@dataclass(frozen=True, slots=True)
class Need:
    """Seconds of a node's launch, start and work. ``queues``: the start begins only when the machine is idle."""

    launch: float
    start: float
    work: float
    queues: bool

    @property
    def seconds(self) -> float:
        """The node's time alone."""
        return self.launch + self.start + self.work


def need(node: Node, machine: Machine) -> Need:
    """The need of a node that is not a view. The start was measured for large kernels. A small one starts sooner: a
    kernel of 1 KiB takes no longer than a launch. So a start is at most as long as the work."""
    latency, work = halves(node, machine)
    launch = machine.device.launch
    return Need(launch, min(latency - launch, work), work, not is_product(node))


class Busy:
    """The time intervals in which the machine works, disjoint and in order."""

    def __init__(self) -> None:
        self.begins: list[float] = []
        self.ends: list[float] = []

    def end(self, begin: float, need: Need) -> float:
        """The earliest time at which a node that is launched at ``begin`` can have ended, if it uses idle time."""
        return self._filled(self._started(begin, need), need.work)[2]

    def add(self, begin: float, need: Need) -> float:
        """Like ``end``, but also marks the time of its work as busy."""
        begin, work = self._started(begin, need), need.work
        first, stop, end = self._filled(begin, work)
        if work:
            low = min(begin, self.begins[first]) if first < stop else begin
            self.begins[first:stop] = [low]
            self.ends[first:stop] = [end]
        return end

    def _started(self, begin: float, need: Need) -> float:
        """The time from which on the node can work whenever the machine is idle."""
        launched = begin + need.launch
        begun = bisect_right(self.begins, launched)  # intervals
        if need.queues and begun:
            launched = max(launched, self.ends[begun - 1])
        return launched + need.start

    def _filled(self, begin: float, work: float) -> tuple[int, int, float]:
        """Fills idle time from ``begin`` on with so much work. Returns the range of intervals that it touches, and its
        end."""
        first = bisect_right(self.begins, begin)
        if first and self.ends[first - 1] >= begin:
            first -= 1
        stop, now, left = first, begin, work
        while stop < len(self.begins):
            gap = max(0.0, self.begins[stop] - now)
            if gap > left:
                break
            left -= gap
            now = max(now, self.ends[stop])
            stop += 1
        return first, stop, now + left


def timeline(
    order: Sequence[Node],
    streams: Mapping[Node, int],
    waits: Mapping[Node, tuple[Node, ...]],
    machine: Machine,
) -> dict[Node, tuple[float, float]]:
    """Modelled seconds at which each node that is not a view starts and ends."""
    busy, wait = Busy(), waiting(machine)
    free: dict[int, float] = {}
    times: dict[Node, tuple[float, float]] = {}
    for node in order:
        if node.op.view:
            continue
        stream = streams.get(node, 0)
        begin = max((free.get(stream, 0.0), *(times[other][1] + wait for other in waits.get(node, ()))))
        free[stream] = busy.add(begin, need(node, machine))
        times[node] = (begin, free[stream])
    return times


def finish(program: Program, machine: Machine) -> float:
    """Modelled seconds until all nodes of a scheduled program have ended and their streams have joined."""
    assert program.schedule is not None, "the program has no schedule yet"
    times = timeline(program.schedule, program.streams, program.waits, machine)
    return max((end for _, end in times.values()), default=0.0) + joining(program.streams, machine)


def joining(streams: Mapping[Node, int], machine: Machine) -> float:
    """Seconds that the streams take to join at the end."""
    return waiting(machine) if streams else 0.0


def waiting(machine: Machine) -> float:
    """Seconds from the end of a node to the launch of a node on another stream that waits for it."""
    return _WAIT * machine.device.launch


class HappensBefore:
    """Which nodes have ended before another starts, by their streams and waits. The nodes of a stream run in schedule
    order. Views do nothing and are on no stream.

    ``until``: for each node, the first time from which on all nodes follow it.
    """

    def __init__(
        self, order: Sequence[Node], streams: Mapping[Node, int], waits: Mapping[Node, tuple[Node, ...]]
    ) -> None:
        self.time = {node: time for time, node in enumerate(order)}
        self.streams = streams
        if not streams:
            self.until = {node: time + 1 for node, time in self.time.items()}
            return
        count = 1 + max(streams.values())
        self._seen: dict[Node, tuple[int, ...]] = {}  # per stream, the last time that has ended before the node starts
        ends = [(-1,) * count] * count
        for node in order:
            if node.op.view:
                continue
            stream = streams.get(node, 0)
            seen = ends[stream]
            for other in waits.get(node, ()):
                seen = tuple(map(max, seen, self.ended(other)))
            self._seen[node] = seen
            ends[stream] = self.ended(node)
        self.until = self._until(order, count)

    def ended(self, node: Node) -> tuple[int, ...]:
        """Per stream, the last time that has ended when the node has."""
        stream, seen = self.streams.get(node, 0), self._seen[node]
        return (*seen[:stream], self.time[node], *seen[stream + 1 :])

    def before(self, first: Node, second: Node) -> bool:
        """Whether ``first`` has ended when ``second``, which is not a view, starts."""
        if not self.streams:
            return self.time[first] < self.time[second]
        return self.time[first] <= self._seen[second][self.streams.get(first, 0)]

    def _until(self, order: Sequence[Node], count: int) -> dict[Node, int]:
        seen_from = self._seen_from(order, count)
        until: dict[Node, int] = {}
        reached = [0] * count  # per stream: ``until`` of its last node, which does not fall from node to node
        for time, node in enumerate(order):
            if node.op.view:
                until[node] = time + 1
                continue
            stream = self.streams.get(node, 0)
            reached[stream] = max(reached[stream], time + 1)
            while seen_from[stream][reached[stream]] < time:
                reached[stream] += 1
            until[node] = reached[stream]
        return until

    def _seen_from(self, order: Sequence[Node], count: int) -> list[list[int]]:
        """Per stream and time: the last of the stream's times that all nodes of other streams have seen from then
        on."""
        seen_from = [[len(order)] * (len(order) + 1) for _ in range(count)]
        for time in range(len(order) - 1, -1, -1):
            seen = self._seen.get(order[time])
            stream_of_node = self.streams.get(order[time], 0)
            for stream, row in enumerate(seen_from):
                row[time] = row[time + 1]
                if seen is not None and stream != stream_of_node:
                    row[time] = min(row[time], seen[stream])
        return seen_from
