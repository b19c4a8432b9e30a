"""Buckets: parts of what a shard gives that are complete, and exchanged, while later gradients are still computed."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Final, TypeAlias

from dslc.runtime.artifact.instructions import accesses
from dslc.runtime.cuda.sizes import SUM_ALIGNMENT, aligned_sum

if TYPE_CHECKING:
    from dslc.runtime.artifact.plan import Plan

#: Parts of a vector in bytes, (offset, size); multiples of SUM_ALIGNMENT.
Ranges: TypeAlias = Sequence[tuple[int, int]]
LEAST: Final = 4 << 20  # bytes of a bucket; an exchange of less takes as long
_PARTS: Final = 8  # about so many buckets of a vector


@dataclass(frozen=True, slots=True)
class Bucket:
    """``ranges`` of the vector are complete after the instruction ``after`` of the shard's plan."""

    after: int
    ranges: Ranges


def in_buckets() -> bool:
    """Whether ranks are to exchange buckets during the step, DSLC_RANKS_BUCKETS=1; all must say the same."""
    return os.environ.get("DSLC_RANKS_BUCKETS", "0") == "1"


def cuts_of(plan: Plan) -> set[int]:
    """The instructions after which a shard's graph is cut; none without buckets."""
    return {bucket.after for bucket in buckets_of(plan)[:-1]} if in_buckets() else set()


def buckets_of(plan: Plan, least: int | None = None) -> list[Bucket]:
    """The buckets of a shard's plan in the order of their completion, all of ``least`` bytes or more but the last one.
    None for a plan that is not a shard's."""
    given = [plan.buffers[port.buffer] for port in plan.outputs if port.kind == "shard"]
    if not given:
        return []
    first = min(buffer.offset for buffer in given)
    wanted = least or max(LEAST, sum(buffer.bytes for buffer in given) // _PARTS)
    written = [
        (plan.buffers[index].offset, plan.buffers[index].end, number)
        for number, instruction in enumerate(plan.instructions)
        for index in accesses(instruction)[1]
        if plan.buffers[index].region == "io"
    ]
    done = sorted(
        (
            max((n for start, end, n in written if start < b.end and b.offset < end), default=0),
            b.offset - first,
            aligned_sum(b.bytes),
        )
        for b in given
    )
    found, waiting = [], list[tuple[int, int]]()
    for place, (after, offset, size) in enumerate(done):
        waiting.append((offset, size))
        last = place == len(done) - 1
        if last or (sum(s for _, s in waiting) >= wanted and done[place + 1][0] > after):
            found.append(Bucket(after, merged(waiting)))
            waiting = []
    return found


def merged(ranges: Ranges) -> list[tuple[int, int]]:
    """The same bytes in order, with neighbours as one."""
    found: list[tuple[int, int]] = []
    for offset, size in sorted(ranges):
        if found and sum(found[-1]) == offset:
            found[-1] = found[-1][0], found[-1][1] + size
        else:
            found.append((offset, size))
    return found


def parts_of(ranges: Ranges, processes: int) -> list[list[tuple[int, int]]]:
    """The part of each process: ranges put side by side are cut into equal parts, up to SUM_ALIGNMENT."""
    units = sum(size for _, size in ranges) // SUM_ALIGNMENT
    bounds = [SUM_ALIGNMENT * (units * rank // processes) for rank in range(processes + 1)]
    found = []
    for begin, end in pairwise(bounds):
        part, at = [], 0
        for offset, size in ranges:
            start, stop = max(begin, at), min(end, at + size)
            if start < stop:
                part.append((offset + start - at, stop - start))
            at += size
        found.append(part)
    return found
