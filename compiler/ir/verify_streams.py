"""Proof that what runs at the same time on several streams shares no bytes, made without the passes that decided it.

The replay of the schedule (``verify.py``) shows that one node after another computes the graph. Here the schedule is
shown to be free of races: of two nodes that touch a byte, one of them writing it, the later one begins when the earlier
one has ended. Then every order that streams and waits allow computes the same.

What has ended is known by vector clocks (Fidge 1988, Mattern 1989), what touched a byte by its last writer and its last
reader of each stream since (as Flanagan and Freund's FastTrack, 2009).
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Mapping
from typing import TypeAlias

from dslc.compiler.ir.graph import Node, Value
from dslc.compiler.ir.program import MemoryPlan, Program

#: Region, first byte, byte behind the last.
Span: TypeAlias = tuple[str, int, int]
#: Of each stream, the time of a node, -1 for none.
Clock: TypeAlias = tuple[int, ...]


def verify_streams(program: Program, refuse: Callable[[Node, str], Exception]) -> None:
    """Raises ``refuse(node, why)`` for a node on no stream of ours, for a wait for what is no earlier node of another
    stream, and for a node that touches bytes of another that may run beside it, one of the two writing.

    About linear in nodes; nothing to do where all run on one stream.
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
    ended = dict.fromkeys(range(len(none)), none)  # what has ended when the last node of each stream has
    clocks: dict[Node, Clock] = {}
    touched = {region: _Touched(none) for region in ("state", "io", "work")}
    for node in order:
        if node.op.view:
            continue
        stream = streams.get(node, 0)
        before = ended[stream]
        for other in program.waits.get(node, ()):
            if other not in clocks:
                raise refuse(node, f"waits for {other.op.name} {other.name}, which does not stand before it")
            before = tuple(map(max, before, clocks[other]))
        reads, writes = _spans(node, program.memory, program.scratch)
        now = time[node]
        for (region, low, high), write in [*((span, False) for span in reads), *((span, True) for span in writes)]:
            for race in touched[region].touch(low, high, stream, now, before, write):
                other = order[race]
                raise refuse(node, f"shares bytes with {other.op.name} {other.name}, which may run beside it")
        ended[stream] = clocks[node] = (*before[:stream], now, *before[stream + 1 :])


class _Touched:
    """Who touched each byte of a region: stretches of bytes that begin at ``lows``, each with its last writer, as
    (stream, time), and of each stream the last reader since."""

    def __init__(self, nobody: Clock) -> None:
        self.nobody = nobody
        self.lows = [0]
        self.writer: dict[int, tuple[int, int]] = {0: (0, -1)}
        self.readers: dict[int, Clock] = {0: nobody}

    def touch(self, low: int, high: int, stream: int, now: int, before: Clock, write: bool) -> Iterator[int]:
        """A node touches ``[low, high)``; gives the times of those who touched it and have not ended ``before``."""
        if low == high:
            return
        self._cut(low)
        self._cut(high)
        first, behind = bisect_left(self.lows, low), bisect_left(self.lows, high)
        stretches = self.lows[first:behind]
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
        self.lows[first:behind] = [low]
        self.writer[low], self.readers[low] = (stream, now), self.nobody

    def _cut(self, at: int) -> None:
        """A stretch begins at this byte."""
        place = bisect_right(self.lows, at)
        old = self.lows[place - 1]
        if old != at:
            self.lows.insert(place, at)
            self.writer[at], self.readers[at] = self.writer[old], self.readers[old]


def _spans(node: Node, plan: MemoryPlan, scratch: Mapping[Node, tuple[int, ...]]) -> tuple[list[Span], list[Span]]:
    """What a node reads, and what it writes, its scratch memory with it."""

    def span(value: Value) -> Span:
        place = plan.places[value]
        return place.region, place.offset, place.offset + value.type.bytes

    writes = [span(v) for v in node.outputs]
    for block, size in zip(plan.scratch.get(node, ()), scratch.get(node, ())):
        writes.append((block.region, block.offset, block.offset + size))
    return [span(v) for v in node.inputs], writes
