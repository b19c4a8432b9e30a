"""Cuts the update of one of several processes into stages, which its runtime begins one after the other.

A stage updates a part of the process's slices. Its instructions are a bulk, so that the parts before it may leave, and
those after it may arrive, while it runs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from dslc.runtime.artifact.instructions import (
    BulkBegin,
    BulkEnd,
    Copy,
    EventRecord,
    EventWait,
    Fill,
    Gemm,
    GraphOp,
    Instruction,
    Kernel,
    Loop,
    LoopEnd,
    accesses,
)
from dslc.runtime.artifact.plan import Plan
from dslc.runtime.artifact.share import Share


def in_stages(plan: Plan, whole: Plan, share: Share) -> Plan:
    """The plan of a process's update with its instructions in the order of stages, each stage a bulk. ``whole``: the
    plan of one process, whose buffers have the same numbers. The plan itself if some instruction of an earlier stage
    needs one of a later stage, or belongs to several."""
    marks = (EventRecord, EventWait, BulkBegin, BulkEnd)
    listed = [i for i in plan.instructions if not isinstance(i, marks)]
    if share.stages == 1 or any(isinstance(i, Loop | LoopEnd) for i in listed):
        return plan
    pairs = sorted(conflicts(plan, listed))
    stages = _stages(plan, whole, share, listed, pairs)
    if stages is None or any(stages[before] > stages[after] for before, after, _ in pairs):
        return plan
    found: list[Instruction] = []
    for stage in range(share.stages):
        found.append(BulkBegin(stage))
        found += _on_streams(listed, [n for n, own in enumerate(stages) if own == stage], pairs)
        found.append(BulkEnd(stage))
    return replace(plan, instructions=tuple(found))


def _stages(
    plan: Plan, whole: Plan, share: Share, listed: Sequence[Instruction], pairs: Sequence[tuple[int, int, bool]]
) -> list[int] | None:
    """The stage of each instruction: that of the slices that it updates, or the first one that reads what it writes,
    or writes it again; the first stage for a fill that follows nothing. None if one updates slices of several."""
    last, following = share.stages - 1, {after for _, after, _ in pairs}
    found = [last] * len(listed)
    users: dict[int, list[int]] = {}
    for before, after, by_write in pairs:
        if by_write:
            users.setdefault(before, []).append(after)
    for number in reversed(range(len(listed))):
        written = [b for b in accesses(listed[number])[1] if plan.buffers[b].region == "state"]
        own = set[int]().union(*(share.stages_of(whole.buffers[b]) for b in written))
        if len(own) > 1:
            return None
        first = min((found[after] for after in users.get(number, ())), default=last)
        free = isinstance(listed[number], Fill) and number not in following
        found[number] = own.pop() if own else 0 if written or free else first
    return found


def conflicts(plan: Plan, listed: Sequence[Instruction]) -> Iterator[tuple[int, int, bool]]:
    """Pairs of instructions of which one writes bytes that the other one accesses, the earlier one first, and whether
    the earlier one writes."""
    ranges: list[tuple[str, int, int, int, bool]] = []
    for number, instruction in enumerate(listed):
        read, written = accesses(instruction)
        for buffers, writes in ((read, False), (written, True)):
            each = (plan.buffers[b] for b in buffers)
            ranges += [(b.region, b.offset, b.end, number, writes) for b in each if b.bytes]
    active: list[tuple[str, int, int, int, bool]] = []
    found: set[tuple[int, int, bool]] = set()
    for here in sorted(ranges):
        region, start, _, number, writes = here
        active = [other for other in active if other[0] == region and other[2] > start]
        for *_, other_number, other_writes in active:
            if other_number != number and (writes or other_writes):
                (before, by_write), (after, _) = sorted(((number, writes), (other_number, other_writes)))
                found.add((before, after, by_write))
        active.append(here)
    return iter(found)


def _on_streams(
    listed: Sequence[Instruction], numbers: Sequence[int], pairs: Sequence[tuple[int, int, bool]]
) -> Iterator[Instruction]:
    """Instructions of a stage, all on one stream but fills. These have a stream of their own: a kernel may begin while
    the kernel before it ends, but not while a fill ends."""
    own, fills = set(numbers), {n for n in numbers if isinstance(listed[n], Fill)}
    crossing = {b for a, b, _ in pairs if own >= {a, b} and (a in fills) != (b in fills)}
    for number in numbers:
        stream, instruction = int(number in fills), listed[number]
        if number in crossing:
            yield from (EventRecord(number, 1 - stream), EventWait(number, stream))
        if isinstance(instruction, Kernel | Gemm | GraphOp | Copy | Fill):
            instruction = replace(instruction, stream=stream)
        yield instruction
