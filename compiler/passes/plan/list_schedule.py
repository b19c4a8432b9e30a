"""A list schedule on streams (Graham 1969): the stream of each node, and the nodes of other streams that it waits for.

It takes the nodes in order and puts each on the stream where it ends first by the roofline model
(``stream_timeline.py``), in which a wait takes time. Of equal streams it takes the one with the fewest waits.

A node may start after nodes on other streams have ended without waiting for them. If a wait for them then frees enough
bytes, it is added, since it costs no modelled time. If the nodes would hold more bytes than allowed, the node waits
even if that takes modelled time.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass

from dslc.compiler.ir.graph import Node
from dslc.compiler.passes.plan.stream_tables import StreamTables
from dslc.compiler.passes.plan.stream_timeline import Busy, joining


@dataclass(slots=True)
class _Stream:
    """The nodes on a stream so far, when each ends, and how many bytes are free after the first n have ended. ``seen``:
    how many nodes of each stream have ended when this stream's last node has."""

    seen: list[int]
    nodes: list[Node]
    ends: list[float]
    freed: list[int]

    @property
    def end(self) -> float:
        return self.ends[-1] if self.ends else 0.0


@dataclass(slots=True)
class _Position:
    """A node's stream, and its index among the nodes there."""

    stream: int
    index: int


@dataclass(slots=True)
class _Start:
    """A node may begin at ``begin`` on a stream, if it waits for ``waits``."""

    stream: int
    begin: float
    waits: list[Node]


class ListSchedule:
    """``streams`` and ``waits`` as in ``Program``, for at most ``count`` streams, and the modelled ``seconds`` until
    all nodes have ended. They hold at most ``most`` bytes as far as waits can ensure that."""

    def __init__(self, tables: StreamTables, count: int, most: int) -> None:
        self.tables, self.most = tables, most
        self.streams: dict[Node, int] = {}
        self.waits: dict[Node, tuple[Node, ...]] = {}
        self._all = [_Stream([0] * count, [], [], [0]) for _ in range(count)]
        self._positions: dict[Node, _Position] = {}
        self._seen: dict[Node, list[int]] = {}  # how many nodes of each stream have ended when the node has
        self._busy = Busy()
        for node in tables.follows:
            start = self._with_freeing_waits(node, self._first_to_end(node))
            self._put(node, start)
        self.seconds = max(stream.end for stream in self._all) + joining(self.streams, tables.machine)

    def _first_to_end(self, node: Node) -> _Start:
        """The start on the stream where the node ends first, of equal ones that with the fewest waits."""
        starts: list[tuple[float, int, int, _Start]] = []
        for number, stream in enumerate(self._all):
            waits = self._waits(number, self.tables.follows[node])
            begin = max((stream.end, *(self._end(other) + self.tables.wait for other in waits)))
            end = self._busy.end(begin, self.tables.needs[node]) + self.tables.wait * len(waits)
            starts.append((end, len(waits), number, _Start(number, begin, waits)))
            if not stream.nodes:
                break  # the others are empty, too
        return min(starts)[-1]  # numbers differ, so starts are not compared

    def _with_freeing_waits(self, node: Node, start: _Start) -> _Start:
        """Adds waits that free other streams' memory if they cost no modelled time or the limit requires it."""
        for number, other in enumerate(self._all):
            if number != start.stream:
                ended = self._freed_by(node, start, number)
                if ended:
                    waits = self._needed([*start.waits, other.nodes[ended - 1]])
                    start = _Start(start.stream, max(start.begin, other.ends[ended - 1] + self.tables.wait), waits)
        return start

    def _freed_by(self, node: Node, start: _Start, number: int) -> int:
        """After how many nodes of another stream the node should start to free enough bytes; 0 if no wait is worth
        it."""
        other, seen, enough = self._all[number], self._joined(start.stream, start.waits), self.tables.enough
        if other.freed[-1] - other.freed[seen[number]] <= enough:
            return 0
        unfreed = (s.freed[-1] - s.freed[n] for i, (s, n) in enumerate(zip(self._all, seen)) if i != start.stream)
        if self.tables.alive[node] + sum(unfreed) > self.most:
            ended = len(other.ends)
        else:
            ended = bisect_right(other.ends, start.begin - self.tables.wait)
        return ended if other.freed[ended] - other.freed[seen[number]] > enough else 0

    def _end(self, node: Node) -> float:
        position = self._positions[node]
        return self._all[position.stream].ends[position.index]

    def _waits(self, number: int, others: Iterable[Node]) -> list[Node]:
        """The nodes of ``others`` for which a node on this stream must wait: the last of each other stream, unless it
        is known to have ended or another wait implies that."""
        seen = self._all[number].seen
        latest: dict[int, Node] = {}
        for node in others:
            position = self._positions[node]
            stream = position.stream
            if stream == number or position.index < seen[stream]:
                continue
            if stream not in latest or position.index > self._positions[latest[stream]].index:
                latest[stream] = node
        return self._needed([*latest.values()])

    def _needed(self, waits: list[Node]) -> list[Node]:
        """The nodes of ``waits`` that are not implied by another one of them."""
        if len(waits) < 2:
            return waits

        def is_implied(node: Node, other: Node) -> bool:
            position = self._positions[node]
            return node is not other and self._seen[other][position.stream] > position.index

        return [node for node in waits if not any(is_implied(node, other) for other in waits)]

    def _joined(self, number: int, waits: Iterable[Node]) -> list[int]:
        """How many nodes of each stream have ended when a node starts."""
        seen = self._all[number].seen
        for node in waits:
            seen = list(map(max, seen, self._seen[node]))
        return seen

    def _put(self, node: Node, start: _Start) -> None:
        number, stream = start.stream, self._all[start.stream]
        seen = self._joined(number, start.waits)
        self._positions[node] = _Position(number, len(stream.nodes))
        stream.nodes.append(node)
        stream.ends.append(self._busy.add(start.begin, self.tables.needs[node]))
        stream.freed.append(stream.freed[-1] + self.tables.freed[node])
        stream.seen = self._seen[node] = [*seen[:number], len(stream.nodes), *seen[number + 1 :]]
        if number:
            self.streams[node] = number
        if start.waits:
            self.waits[node] = tuple(start.waits)
