"""Proof that what runs at the same time on several streams shares no bytes, made without the passes that decided it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

from dslc.compiler.ir.graph import Node, Value
from dslc.compiler.ir.program import MemoryPlan, Side

#: Region, first byte, byte behind the last.
Span: TypeAlias = tuple[str, int, int]


def verify_sides(
    schedule: Sequence[Node],
    sides: Mapping[Node, Side],
    plan: MemoryPlan,
    scratch: Mapping[Node, tuple[int, ...]],
    refuse: Callable[[Node, str], Exception],
) -> None:
    """Raises ``refuse(node, why)`` for a side whose time is none, that is read before it is waited for, or that shares
    bytes, one of the two writing, with a node of another stream that runs beside it.

    A side begins behind all that stands before it in the schedule, and stream 0 waits for it before ``until``; sides of
    one stream follow each other.
    """
    if not sides:
        return
    place = {node: time for time, node in enumerate(schedule)}
    for node, side in sides.items():
        begin = place[node]
        if side.stream < 1 or not begin < side.until <= len(schedule):
            raise refuse(node, f"runs on stream {side.stream} from {begin} until {side.until} of {len(schedule)}")
        reads, writes = _spans(node, plan, scratch)
        for time in range(begin + 1, side.until):
            other = schedule[time]
            if other.op.view:
                continue
            if other in sides and sides[other].stream == side.stream:
                continue
            other_reads, other_writes = _spans(other, plan, scratch)
            if _touch(writes, other_reads) or _touch(other_writes, reads) or _touch(writes, other_writes):
                raise refuse(node, f"shares bytes with {other.op.name} {other.name}, which runs beside it")


def _spans(node: Node, plan: MemoryPlan, scratch: Mapping[Node, tuple[int, ...]]) -> tuple[list[Span], list[Span]]:
    """What a node reads, and what it writes, its scratch memory with it."""

    def span(value: Value) -> Span:
        place = plan.places[value]
        return place.region, place.offset, place.offset + value.type.bytes

    writes = [span(v) for v in node.outputs]
    for block, size in zip(plan.scratch.get(node, ()), scratch.get(node, ())):
        writes.append((block.region, block.offset, block.offset + size))
    return [span(v) for v in node.inputs], writes


def _touch(some: list[Span], others: list[Span]) -> bool:
    return any(a[0] == b[0] and a[1] < b[2] and b[1] < a[2] for a in some for b in others)
