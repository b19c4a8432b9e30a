"""Checks what a plan does with the region ``prepared``: the entry ``prepare`` writes all of it, others only read it.

So what ``predict`` reads there was written before, whatever it reads. Works on a plan whose buffers are checked.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import Final, NoReturn

from dslc.base.errors import ArtifactError
from dslc.runtime.artifact.instructions import Loop, LoopEnd, accesses
from dslc.runtime.artifact.plan import Plan

#: Tensors of the region begin at multiples of this, so fewer bytes than this may lie between two of them, unwritten.
ALIGNMENT: Final = 64


def check_prepared(plan: Plan, size: int, *, prepares: bool, place: str) -> None:
    """Raise ArtifactError R301 with the field and the rule. ``size``: the bytes of the region; ``prepares``: whether
    the plan is that of the entry ``prepare``."""
    used = {index for index, buffer in enumerate(plan.buffers) if buffer.region == "prepared" and buffer.bytes}
    if not prepares and not used:
        return
    written = _Written()
    depth = 0
    for number, instruction in enumerate(plan.instructions):
        field = f"{place}: instructions[{number}]"
        depth += isinstance(instruction, Loop) - isinstance(instruction, LoopEnd)
        reads, writes = (used.intersection(side) for side in accesses(instruction))
        if writes and not prepares:
            _refuse(field, f"{plan.buffers[min(writes)]} is written; only `prepare` may write this region")
        if not prepares:
            continue
        if depth and (reads or writes):
            _refuse(field, f"a loop of `prepare` uses {plan.buffers[min(reads | writes)]}")
        for index in sorted(reads):
            buffer = plan.buffers[index]
            if not written.covers(buffer.offset, buffer.end):
                _refuse(field, f"{buffer} is read before it is written")
        for index in sorted(writes):
            written.add(plan.buffers[index].offset, plan.buffers[index].end)
    gap = written.gap(size) if prepares else None
    if gap is not None:
        _refuse(f"{place}: instructions", f"the bytes {gap[0]} to {gap[1]} of the region prepared are never written")


def _refuse(place: str, rule: str) -> NoReturn:
    raise ArtifactError("R301", rule, place=place, help="build the artifact again")


class _Written:
    """Bytes that were written, as disjoint ranges in order."""

    def __init__(self) -> None:
        self.lows: list[int] = []
        self.highs: list[int] = []

    def add(self, low: int, high: int) -> None:
        first = bisect_right(self.highs, low - 1)
        last = bisect_right(self.lows, high)
        if first < last:
            low, high = min(low, self.lows[first]), max(high, self.highs[last - 1])
        self.lows[first:last], self.highs[first:last] = [low], [high]

    def covers(self, low: int, high: int) -> bool:
        at = bisect_right(self.lows, low) - 1
        return at >= 0 and high <= self.highs[at]

    def gap(self, size: int) -> tuple[int, int] | None:
        """The first bytes of the region that are not written, unless a tensor's alignment explains them."""
        for end, start in zip([0, *self.highs], [*self.lows, size]):
            if start - end >= ALIGNMENT or (start > end and end % ALIGNMENT == 0):
                return end, start
        return None
