"""The ranges of the work region with their lifetimes, before they have offsets."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

from dslc.compiler.ir.graph import Node, Value
from dslc.compiler.ir.program import Program, aligned
from dslc.compiler.passes.plan.value_uses import ValueUses

#: The most bytes of flags and numbers, which would tie an update's slices to one order if they took turns in a place.
_SMALL: Final = 4096  # a byte for each of as many parameters


@dataclass(slots=True)
class Range:
    """``size`` bytes, in use at the times ``start`` to ``end``. They hold ``values`` that replace each other in place,
    or are scratch memory of a node's kernels."""

    size: int
    start: int
    end: int
    values: list[Value]
    scratch: Node | None = None


def work_ranges(program: Program, uses: ValueUses, placed: Collection[Value]) -> list[Range]:
    """The ranges of all computed values that are not ``placed`` elsewhere, and of scratch memory, in the order of the
    nodes."""
    ranges = _WorkRanges(program, uses, placed).ranges
    if program.entry == "update_step":  # whose slices several processes update in an order of stages
        for each in ranges:
            if each.size <= _SMALL:
                each.start, each.end = 0, uses.end
    return ranges


class _WorkRanges:
    def __init__(self, program: Program, uses: ValueUses, placed: Collection[Value]) -> None:
        self.uses, self.placed = uses, placed
        self.ranges: list[Range] = []
        self._range_of: dict[Value, Range] = {}
        for time, node in enumerate(uses.schedule):
            if not node.op.view:
                self._add_outputs(node, time)
                until = uses.until(node)
                self.ranges += [Range(aligned(size), time, until, [], node) for size in program.scratch.get(node, ())]

    def _add_outputs(self, node: Node, time: int) -> None:
        overwritten: set[int] = set()  # inputs whose bytes an output of the node has
        for new in node.outputs:
            if new in self.placed:
                continue
            size = aligned(new.type.bytes)
            chosen = self._overwritable(node, new, overwritten) if size else None
            if chosen is None:
                chosen = Range(size, time, time, [])
                self.ranges.append(chosen)
            chosen.values.append(new)
            chosen.end = max(chosen.end, self.uses.last[new])
            self._range_of[new] = chosen

    def _overwritable(self, node: Node, new: Value, overwritten: set[int]) -> Range | None:
        """The range of an input that dies here and that this output may overwrite; None if there is none."""
        for number, value in enumerate(node.inputs):
            old = self.uses.content[value]
            if old not in self._range_of or self.uses.users[old][-1] is not node or number in overwritten:
                continue
            if self.uses.can_overwrite(node, old, new):
                overwritten.update(i for i, each in enumerate(node.inputs) if self.uses.content[each] is old)
                return self._range_of[old]
        return None
