"""Assigns nodes to concurrent GPU streams and decides which nodes wait for which.

Before, one after another on stream 0::

    conv_wgrad c2, conv_dgrad c2, relu_grad b1, conv_wgrad c1, conv_dgrad c1, ..., sgd_update c2.weight

After, ``program.streams`` and ``program.waits``, for instance::

    stream 0   conv_wgrad c2, sgd_update c2.weight |  conv_wgrad c1, ...
    stream 1   conv_dgrad c2, relu_grad b1         |  conv_dgrad c1, ...

A list schedule (``list_schedule.py``) puts the nodes on streams in their order. A node waits for its operands and, if
it writes a state, for the other readers of the old value, unless other waits imply that. So weight gradients, branches
and updates run concurrently with other nodes if that hides a launch. Nodes that fill the machine and are not products
(``cost.fills``) always run one after another, because concurrent ones compete for memory and cache: the gradient of
``sum`` of 64 MiB took 58 us on two streams of an H200, 43 on one.

Memory is planned for nodes that may run concurrently, and a plan is accepted only within a limit of bytes. The list
schedule adds waits that keep it, so library calls with large workspaces run concurrently only if all workspaces fit.
Results keep their bits. For each of several limits, ``auto`` takes the number of streams with the least modelled time;
of these plans it takes the one with the lowest price of time and bytes. Without a gain or without room, all nodes stay
on stream 0. Plans for CPUs have no streams.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from dslc.compiler.codegen.targets import traits_of
from dslc.compiler.cost import machine_for
from dslc.compiler.ir.build import Build
from dslc.compiler.ir.graph import Node
from dslc.compiler.ir.program import Program
from dslc.compiler.passes.plan.list_schedule import ListSchedule
from dslc.compiler.passes.plan.memory import in_turn, trial
from dslc.compiler.passes.plan.stream_tables import StreamTables

#: The numbers of streams that ``auto`` tries.
AUTO: Final = (2, 3, 4, 6)
#: The fraction of the modelled time that streams must save, and the fraction that a larger number of streams must save
#: in addition, because concurrent kernels slow each other down. On an H200, a mixture of experts gained nothing at a
#: modelled gain of 6 %, and ResNet-50 with 32 images 7 % at one of 7.5 %. Of 167 graphs of a few ops, the 96 with a
#: larger modelled gain took 0.81 of the time of one stream, the others 0.99 (benchmarks/results/ops.md, Streams).
_GAIN: Final = 0.07
_GAIN_OF_MORE: Final = 0.01
#: Several streams may take more bytes than one stream, up to this fraction of all bytes of the program. A program of
#: less than ``LEAST_BYTES``, 8 % of a GPU of 80 GB, counts as so large. The price counts the same bytes: 1 % of them
#: costs as much as 1 % of the time.
MORE_FRACTION: Final = 0.02
LEAST_BYTES: Final = 6 << 30
#: The fractions of these bytes that are tried as limits.
_PARTS: Final = (1.0, 0.25, 0.0)
_MOST_EVENTS: Final = 60_000  # of a plan


def streams(program: Program, build: Build) -> Program:
    """The pass. Linear in nodes."""
    assert program.schedule is not None, "streams are assigned on a schedule"
    if not traits_of(build.target).has_streams or build.streams == 1:
        return program
    ranges, alone = in_turn(program, build)
    tables = StreamTables(program, machine_for(build), ranges)
    single = sum(each.seconds for each in tables.needs.values())
    if not single:
        return program  # no node takes time
    counts = AUTO if build.streams == "auto" else (int(build.streams),)
    parts = _PARTS if build.budget is None else (0.0,)  # with a budget, not a byte more than one stream takes
    search = _Search(program, build, single, alone)
    for most in (most_bytes(tables.peak, part=part) for part in parts):
        plans = [ListSchedule(tables, count, most) for count in counts]
        search.take([p for p in plans if p.seconds <= (1 - _GAIN) * single and len(p.waits) <= _MOST_EVENTS])
    return search.best()


@dataclass(frozen=True, slots=True)
class _Priced:
    """A program with its plan of streams. ``price``: its time and its additional bytes, as fractions."""

    price: float
    program: Program


class _Search:
    """Plans memory for schedules on streams, and prices those that fit. ``single``: the modelled seconds of one stream;
    ``alone``: its bytes of work."""

    def __init__(self, program: Program, build: Build, single: float, alone: int) -> None:
        self.program, self.build, self.single, self.alone = program, build, single, alone
        self._tried: list[Mapping[Node, tuple[Node, ...]]] = []  # waits
        self._fitting: list[_Priced] = []

    def best(self) -> Program:
        """The plan with the least price; the program as it was if none fits."""
        return min(self._fitting, key=lambda each: each.price).program if self._fitting else self.program

    def take(self, plans: list[ListSchedule]) -> None:
        """Keeps the first of these schedules that fits. Tries the fastest first, but one with fewer streams before it
        if that is nearly as fast."""
        while plans:
            least = min(plan.seconds for plan in plans)
            plan = next(plan for plan in plans if plan.seconds <= (1 + _GAIN_OF_MORE) * least)
            plans.remove(plan)
            if plan.waits not in self._tried:
                self._tried.append(plan.waits)
                if self._fits(plan):
                    return
            elif any(plan.waits == fitting.program.waits for fitting in self._fitting):
                return

    def _fits(self, plan: ListSchedule) -> bool:
        """Plans the schedule's memory. Whether it is within the limits; if so, keeps the plan with its price."""
        changed = dataclasses.replace(self.program, streams=plan.streams, waits=plan.waits)
        budget = self.build.budget
        enough = most_bytes(self.alone, self.build.state_bytes) if budget is None else 0
        plan_of_memory = trial(changed, self.build, enough)
        io, work = plan_of_memory.io_bytes, plan_of_memory.work_bytes
        other_bytes = self.build.state_bytes + io
        if work > most_bytes(self.alone, other_bytes) or (budget is not None and io + work > budget):
            return False
        bytes_more = (work - self.alone) / max(LEAST_BYTES, self.alone + other_bytes)
        self._fitting.append(_Priced(plan.seconds / self.single + bytes_more, changed))
        return True


def most_bytes(alone: int, other_bytes: int = 0, part: float = 1.0) -> int:
    """The bytes of work that several streams may take if one stream takes ``alone``. ``other_bytes``: of the program
    apart from work; ``part``: the fraction of the additional bytes that is allowed."""
    return alone + int(part * MORE_FRACTION * max(LEAST_BYTES, alone + other_bytes))
