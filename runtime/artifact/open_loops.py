"""The loops that are open at an instruction of a plan: what its buffers cover over all steps, and how often it runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NoReturn

from dslc.runtime.artifact.dtypes import ITEMSIZE
from dslc.runtime.artifact.instructions import (
    BulkBegin,
    BulkEnd,
    Collective,
    Copy,
    EventRecord,
    EventWait,
    Instruction,
    Loop,
    LoopEnd,
)
from dslc.runtime.artifact.plan import Buffer
from dslc.runtime.artifact.plan_schema import MAX_STEPS


class OpenLoops:
    """Follows the instructions of a plan in order.

    ``at``: the buffer with an index, which a field names. ``sizes``: the bytes of each buffer. ``refuse``: raises the
    error with a field and a rule.
    """

    def __init__(
        self,
        at: Callable[[str, int], Buffer],
        regions: Mapping[str, int],
        sizes: Sequence[int],
        refuse: Callable[[str, str], NoReturn],
    ) -> None:
        self._at, self._regions, self._sizes, self._refuse = at, regions, sizes, refuse
        #: The loops, outermost first; each with the bytes that it moves a buffer back and on.
        self.open: list[tuple[Loop, dict[int, tuple[int, int]]]] = []
        self._steps = 1  # of all open loops together
        self._runs = 0  # of instructions in loops

    def begin(self, field: str, loop: Loop) -> None:
        """A loop begins, whose steps move buffers."""
        moved: dict[int, tuple[int, int]] = {}
        for index, stride in loop.strides:
            buffer = self._at(f"{field}.strides", index)
            if index in moved:
                self._refuse(f"{field}.strides", f"buffer {index} occurs twice")
            if stride % ITEMSIZE[buffer.dtype]:
                self._refuse(f"{field}.strides", f"{stride} bytes are no whole elements of {buffer}")
            last = (loop.count - 1) * stride
            moved[index] = min(0, last), max(0, last)
        self.open.append((loop, moved))
        self._steps *= loop.count
        if self._steps > MAX_STEPS:
            self._refuse(field, f"its steps, with those of the loops around it, are more than {MAX_STEPS}")

    def end(self, field: str) -> None:
        """The innermost loop ends."""
        if not self.open:
            self._refuse(field, "no loop is open")
        self._steps //= self.open.pop()[0].count

    def reach(self, field: str, index: int) -> tuple[Buffer, int]:
        """All that a buffer covers over the steps of the open loops, as one buffer, and its bytes."""
        buffer = self._at(field, index)
        moves = [moved[index] for _, moved in self.open if index in moved]
        low = buffer.offset + sum(back for back, _ in moves)
        high = buffer.offset + self._sizes[index] + sum(on for _, on in moves)
        size = self._regions[buffer.region]
        if low < 0 or high > size:
            self._refuse(field, f"{buffer} moves over the bytes {low} to {high}, the region has {size}")
        return Buffer(buffer.region, low, "u8", (high - low,)), high - low if self._sizes[index] else 0

    def count(self, field: str, instruction: Instruction) -> None:
        """Checks that an instruction may stand in a loop, and counts its runs."""
        match instruction:
            case Loop() | LoopEnd():
                return
            case Copy(src=src, dst=dst):
                (source, _), (target, _) = (self.reach(field, index) for index in (src, dst))
                if source.overlaps(target):
                    self._refuse(field, "a copy in a loop overlaps what it copies")
            case EventRecord() | EventWait() | BulkBegin() | BulkEnd() | Collective():
                self._refuse(field, f"a {type(instruction).__name__} in a loop")
        self._runs += self._steps
        if self._runs > MAX_STEPS:
            self._refuse(field, f"the loops of the plan run more than {MAX_STEPS} instructions")
