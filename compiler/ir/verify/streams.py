"""Proves that concurrent nodes on several streams share no bytes, without using the passes that assigned the streams.

The replay of the schedule (``verify.py``) shows that sequential execution computes the graph. This proof shows that the
schedule has no races: of two nodes that touch a byte, at least one of them writing it, the later one begins after the
earlier one has ended. Then every order that streams and waits allow computes the same result.

Vector clocks (Fidge 1988, Mattern 1989) tell which nodes have ended. Each byte records its last writer and its last
reader on each stream since then (as in Flanagan and Freund's FastTrack, 2009).
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Mapping
from typing import TypeAlias

from dslc.compiler.ir.graph import Node, Value
from dslc.compiler.ir.program import MemoryPlan, Program

#: Region, first byte, end (exclusive).
Span: TypeAlias = tuple[str, int, int]
#: For each stream, the time of a node; -1 for none.
Clock: TypeAlias = tuple[int, ...]


def verify_streams(program: Program, refuse: Callable[[Node, str], Exception]) -> None:
    """Raises ``refuse(node, why)`` for a node on an invalid stream, for a wait for anything but an earlier node of
    another stream, and for a node that touches bytes of a possibly concurrent node if one of the two writes them.

    About linear in nodes; returns at once if all nodes are on one stream.
    """
    order, streams = program.schedule, program.streams
    assert order is not None and program.memory is not None, "streams are verified with a schedule and memory"
    time = {node: i for i, node in enumerate(order)}
    for node in (*streams, *program.waits):
        if node not in time or node.op.view or streams.get(node, 0) < 0:
            raise refuse(
                node, f"cannot run on stream {streams.get(node, 0)}, or wait: no node of the schedule that does work"
            )
    if not streams:
        return
    none = (-1,) * (1 + max(streams.values()))
    ended = dict.fromkeys(range(len(none)), none)  # the nodes that have ended when the last node of each stream has
    clocks: dict[Node, Clock] = {}
    touched = {region: _Touched(none) for region in ("state", "context", "prepared", "io", "work")}
    for node in order:
        if node.op.view:
            continue
        stream = streams.get(node, 0)
        before = ended[stream]
        for other in program.waits.get(node, ()):
            if other not in clocks:
                raise refuse(node, f"waits for {other.op.name} {other.name}, which is not scheduled before it")
            before = tuple(map(max, before, clocks[other]))
        reads, writes = _spans(node, program.memory, program.scratch)
        now = time[node]
        for (region, low, high), write in [*((span, False) for span in reads), *((span, True) for span in writes)]:
            for race in touched[region].touch(low, high, stream, now, before, write):
                other = order[race]
                raise refuse(node, f"shares bytes with {other.op.name} {other.name}, which may run concurrently")
        ended[stream] = clocks[node] = (*before[:stream], now, *before[stream + 1 :])


class _Touched:
    """The nodes that touched each byte of a region: ranges of bytes that begin at ``lows``, each with its last writer,
    as (stream, time), and for each stream the last reader since then."""

    def __init__(self, nobody: Clock) -> None:
        self.nobody = nobody
        self.lows = [0]
        self.writer: dict[int, tuple[int, int]] = {0: (0, -1)}
        self.readers: dict[int, Clock] = {0: nobody}

    def touch(self, low: int, high: int, stream: int, now: int, before: Clock, write: bool) -> Iterator[int]:
        """Records that a node touches ``[low, high)``; yields the times of conflicting nodes not ended in
        ``before``."""
        if low == high:
            return
        self._cut(low)
        self._cut(high)
        first, end = bisect_left(self.lows, low), bisect_left(self.lows, high)
        stretches = self.lows[first:end]
        for at in stretches:
            by, when = self.writer[at]
            if when > before[by] and by != stream:
                yield when
            if write:
                yield from (t for k, t in enumerate(self.readers[at]) if t > before[k] and k != stream)
        if not write:
            for at in stretches:
                old = self.readers[at]
                self.readers[at] = (*old[:stream], now, *old[stream + 1 :])
            return
        for at in stretches[1:]:
            del self.writer[at], self.readers[at]
        self.lows[first:end] = [low]
        self.writer[low], self.readers[low] = (stream, now), self.nobody

    def _cut(self, at: int) -> None:
        """Makes a range begin at this byte."""
        place = bisect_right(self.lows, at)
        old = self.lows[place - 1]
        if old != at:
            self.lows.insert(place, at)
            self.writer[at], self.readers[at] = self.writer[old], self.readers[old]


def _spans(node: Node, plan: MemoryPlan, scratch: Mapping[Node, tuple[int, ...]]) -> tuple[list[Span], list[Span]]:
    """The spans that a node reads, and those that it writes, including its scratch memory."""

    def span(value: Value) -> Span:
        place = plan.places[value]
        return place.region, place.offset, place.offset + value.type.bytes

    writes = [span(v) for v in node.outputs]
    for block, size in zip(plan.scratch.get(node, ()), scratch.get(node, ())):
        writes.append((block.region, block.offset, block.offset + size))
    return [span(v) for v in node.inputs], writes
