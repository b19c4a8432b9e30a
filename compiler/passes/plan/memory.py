"""Assigns offsets: every value gets bytes in the state, context, prepared, io or work region.

Before: a schedule. After: ``program.memory``. For example, in a chain ``a = conv x; b = relu a; y = mul b, b`` with the
result ``y``::

    x  io+256      a data input: bytes of its own, after the step block
    y  io+25856    a result: the same
    a  work+0
    b  work+0      relu may write in place, and a dies there

- A view shares the bytes of its source, or a part of them. The build gives the places of parameters, buffers and
  optimizer slots, and of the states of a training step. Those of other entries lie in the context region, by name.
- The new value of a state is computed in place if the last reader of the old value is earlier, or is the computing op
  itself and allows it. Otherwise a move at the end copies it.
- Constants lie at the start of the work region. Nothing overwrites them.
- What ``prepare`` computes from the weights lies in the region prepared, in the order of names.
- All other values share the rest of the work region by lifetime (``allocate.py``), and so does the scratch memory of
  kernels. With several streams, a lifetime ends when all later nodes follow those that access the value.

``value_uses.py`` has the lifetimes, ``fixed_places.py`` places what does not share bytes by lifetime, and
``work_ranges.py`` lists the ranges that do.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from dslc.compiler.ir.build import Build
from dslc.compiler.ir.graph import Node
from dslc.compiler.ir.program import MemoryPlan, Move, Place, Program, aligned
from dslc.compiler.passes.plan.allocate import Buffer, assign, lower_bound
from dslc.compiler.passes.plan.fixed_places import FixedPlaces
from dslc.compiler.passes.plan.value_uses import ValueUses
from dslc.compiler.passes.plan.work_ranges import Range, work_ranges


def memory(program: Program, build: Build) -> Program:
    """The pass; keeps an existing plan. n log n in nodes."""
    if program.memory is not None:
        return program
    return dataclasses.replace(program, memory=_Planner(program, build).plan())


def trial(program: Program, build: Build, enough: int) -> MemoryPlan:
    """A plan that is made faster than that of the pass. It may take more bytes of work, but no more than ``enough`` if
    that of the pass takes no more."""
    return _Planner(program, build).plan(enough)


def in_turn(program: Program, build: Build) -> tuple[Sequence[Range], int]:
    """If all nodes run one after another: the ranges of the work region after the constants, and the most bytes of it
    alive at one time, a lower bound of every plan."""
    planner = _Planner(dataclasses.replace(program, streams={}, waits={}), build)
    return planner.ranges, planner.bound()


class _Planner:
    """``ranges``: those of the work region after the constants. ``saves``: of it, too, copies of new values that lie in
    other states, while moves overwrite these."""

    def __init__(self, program: Program, build: Build) -> None:
        assert program.schedule is not None, "memory is planned on a schedule"
        self.uses = ValueUses(program, program.schedule)
        self.fixed = FixedPlaces(program, build, self.uses)
        self.ranges = work_ranges(program, self.uses, self.fixed.places)
        end = self.uses.end
        self.saves = [
            Range(aligned(update.value.type.bytes), end, end, [])
            for update in self.fixed.late_updates
            if self.fixed.is_in_state(update.value)
        ]
        self.buffers = [Buffer(each.size, each.start, each.end) for each in (*self.ranges, *self.saves)]

    def bound(self) -> int:
        """Lower bound of the plan: the most bytes alive at one time."""
        return self.fixed.constant_bytes + lower_bound(self.buffers)

    def plan(self, enough: int = 0) -> MemoryPlan:
        fixed, constants = self.fixed, self.fixed.constant_bytes
        offsets, work_bytes, least = assign(self.buffers, enough - constants)
        work = [Place("work", constants + offset) for offset in offsets]
        scratch: dict[Node, tuple[Place, ...]] = {}
        for each, place in zip(self.ranges, work):
            if each.scratch is not None:
                scratch[each.scratch] = (*scratch.get(each.scratch, ()), place)
            fixed.places.update(dict.fromkeys(each.values, place))
        return MemoryPlan(
            places={value: fixed.place(value) for value in self.uses.content},
            results=fixed.results,
            moves=(*fixed.moves, *self._update_moves(work[len(self.ranges) :])),
            io_bytes=fixed.io_bytes,
            work_bytes=constants + work_bytes,
            lower_bound=constants + least,
            scratch=scratch,
            carried=tuple(fixed.carried),
            prepared_bytes=fixed.prepared_bytes,
        )

    def _update_moves(self, saves: Sequence[Place]) -> list[Move]:
        """Moves new values to their states. Values that lie in other states are saved before any state is
        overwritten."""
        first: list[Move] = []
        then: list[Move] = []
        free = iter(saves)
        for update in self.fixed.late_updates:
            value, name = update.value, update.state.name
            place = self.fixed.places[self.uses.content[value]]
            if self.fixed.is_in_state(value):
                saved = next(free)
                first.append(Move(value.type, place, saved, name))
                place = saved
            then.append(Move(value.type, place, self.fixed.places[update.state.value], name))
        return [*first, *then]
