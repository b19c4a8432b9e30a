"""Recomputation (backward mirroring): recomputes cheap values in the backward pass instead of keeping them for it.

Before, r is kept from the forward to the backward pass::

    %3 = relu %2 : bf16[8, 14, 14, 64]  # a forward
    %4 = conv_last %3, %w {...} : bf16[8, 14, 14, 64]  # b forward
    ...
    %9 = conv_wgrad_last %3, %8 {...} : bf16[64, 3, 3, 64]  # b backward

After::

    %3 = relu %2 : bf16[8, 14, 14, 64]  # a forward
    %4 = conv_last %3, %w {...} : bf16[8, 14, 14, 64]  # b forward
    ...
    %9 = relu %2 : bf16[8, 14, 14, 64]  # a mirror
    %10 = conv_wgrad_last %9, %8 {...} : bf16[64, 3, 3, 64]  # b backward

``candidates.py`` decides which values may be recomputed. ``select.py`` selects from them by freed bytes per
second, using estimated lifetimes and times (``lifetimes.py``). The following passes then build and evaluate the
selection. It is accepted only if the fused and scheduled program needs fewer bytes within the allowed time. Without a
budget, recomputation may add 3 % to the modelled time, or 1 % for a smaller reduction: of the kernels run one after
another, and of the multi-stream step, in which recomputed nodes overlap less with other work. With a budget
(``build.budget``), it adds as little time as the budget requires, and none if the program already fits. Results equal
those of the plain graph bit for bit.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from functools import cached_property
from typing import Final

from dslc.compiler.cost import Machine, machine_for, total_seconds
from dslc.compiler.ir.build import Build, Pass
from dslc.compiler.ir.graph import Graph, Node, Phase, Value
from dslc.compiler.ir.program import Mirrored, Program
from dslc.compiler.passes.conditions import fuses_reductions
from dslc.compiler.passes.mirror.recipes import recipes
from dslc.compiler.passes.mirror.rewrite import with_copies
from dslc.compiler.passes.mirror.select import Knapsack
from dslc.compiler.passes.mirror.training_graph import TrainingGraph
from dslc.compiler.passes.plan.schedule import scheduled
from dslc.compiler.passes.plan.stream_timeline import finish

#: The fraction of the modelled step time that ``auto`` may add, and the smallest reduction of the peak in bytes that is
#: worth it. The first that is possible is taken.
AUTO: Final = ((0.03, 256 << 20), (0.01, 64 << 20))
AUTO_PART: Final = 0.05  # the smallest such fraction of the peak
_TRIES: Final = 3
_NEAR: Final = 0.1  # of the allowed time: close enough to stop
_SLACK: Final = 0.02  # of the allowed time: safety margin of the next try
_ALL: Final = 0.9  # of an allowance: if less of it is used, a larger one gives nothing
_BUDGET_TRIES: Final = 6
_BUDGET_MORE: Final = 3  # tries after the first that fits
_BUDGET_NEAR: Final = 0.03  # of the budget: an unused rest small enough to stop


def mirror_against(program: Program, build: Build, fusing: Sequence[Pass], planning: Sequence[Pass]) -> Program:
    """The pass; ``fusing`` and ``planning`` are the passes after it; the last one plans memory. Linear in nodes."""
    plain = CandidatePlan(program, build, fusing, planning)
    found = _best(plain, build)
    return program if found is plain else _taken(plain, found)


def plans(program: Program, builds: Sequence[Build], fusing: Sequence[Pass], planning: Sequence[Pass]) -> list[Program]:
    """For each build, the program after this pass and the following ones. The builds may differ only in their mirror
    options; shared work is done once."""
    first = CandidatePlan(program, builds[0], fusing, planning)
    planned: list[Program] = []
    for build in builds:
        plain = first.for_build(build)
        found = _best(plain, build)
        mirrored = None if found is plain else _taken(plain, found).mirrored
        planned.append(dataclasses.replace(found.planned, mirrored=mirrored))
    return planned


def _best(plain: CandidatePlan, build: Build) -> CandidatePlan:
    """The candidate that suits the build; the plain one if nothing is worth recomputing."""
    graph = plain.program.graph
    if (
        build.mirror == "never"
        or plain.program.mirrored is not None
        or not any(n.phase is Phase.BACKWARD for n in graph.nodes)
    ):
        return plain
    fuses = fuses_reductions(build)
    training = TrainingGraph(
        graph, build.mirror_words, extra_outputs=fuses, recomputes_inputs=fuses, machine=plain.machine
    )
    if sum(training.bytes[v] for v in training.candidates) <= (
        AUTO[-1][1] if build.budget is None and not training.always else 0
    ):
        return plain
    search = _Search(plain, training)
    return search.automatic() if build.budget is None else search.within(build.budget)


def _taken(plain: CandidatePlan, found: CandidatePlan) -> Program:
    """The plain program with the graph of a candidate."""
    graph = found.program.graph
    count = sum(n.phase is Phase.MIRROR for n in graph.nodes)
    report = Mirrored(count, plain.peak, found.peak, plain.seconds, found.seconds)
    return dataclasses.replace(plain.program, graph=graph, mirrored=report)


class CandidatePlan:
    """A candidate program and, computed on demand, the results of the passes after mirroring."""

    def __init__(
        self,
        program: Program,
        build: Build,
        fusing: Sequence[Pass],
        planning: Sequence[Pass],
        fused: Program | None = None,
        machine: Machine | None = None,
    ) -> None:
        """``fused``: the program after ``fusing``, if known. ``machine``: that of the build, if known."""
        self._fused = fused
        self.program = program
        self.build = build
        self.fusing = fusing
        self.planning = planning
        self.machine = machine_for(build) if machine is None else machine

    def with_graph(self, graph: Graph) -> CandidatePlan:
        """A candidate with another graph."""
        program = dataclasses.replace(self.program, graph=graph)
        return CandidatePlan(program, self.build, self.fusing, self.planning, machine=self.machine)

    def for_build(self, build: Build) -> CandidatePlan:
        """A candidate for a build that differs only in its budget, which only planning uses."""
        if build.budget == self.build.budget:
            return self
        return CandidatePlan(self.program, build, self.fusing, self.planning, self.fused, self.machine)

    @cached_property
    def fused(self) -> Program:
        if self._fused is not None:
            return self._fused
        program = self.program
        for step in self.fusing:
            program = step(program, self.build)
        return program

    @cached_property
    def seconds(self) -> float:
        """Modelled time with kernels run one after another."""
        return total_seconds(self.fused.graph.nodes, self.machine)

    @cached_property
    def seconds_on_streams(self) -> float:
        """Modelled time on the streams of the plan."""
        return self.seconds if self.build.streams == 1 else finish(self.planned, self.machine)

    @cached_property
    def _scheduled(self) -> tuple[list[Node], int]:
        return scheduled(self.fused.graph)

    @property
    def peak(self) -> int:
        """The most bytes alive at once."""
        return self._scheduled[1]

    @cached_property
    def planned(self) -> Program:
        """The program with its memory plan."""
        program = dataclasses.replace(self.fused, schedule=tuple(self._scheduled[0]))
        for step in self.planning:
            program = step(program, self.build)
        return program

    @property
    def bytes(self) -> int:
        """Bytes of the io and work regions, including kernels' scratch."""
        memory = self.planned.memory
        assert memory is not None
        return memory.io_bytes + memory.work_bytes


class _Search:
    def __init__(self, plain: CandidatePlan, training: TrainingGraph) -> None:
        self.plain = plain
        self.training = training
        self.knapsack = Knapsack(training, plain.machine)

    def candidate(self, dropped: frozenset[Value]) -> CandidatePlan:
        """The plan in which these values are recomputed."""
        return self.plain.with_graph(
            with_copies(self.training.graph, recipes(self.training, dropped, self.plain.machine))
        )

    def asked(self) -> CandidatePlan:
        """Recomputes only the values that the source asks for."""
        return self.candidate(self.knapsack.choose(seconds=0.0).dropped) if self.training.always else self.plain

    def automatic(self) -> CandidatePlan:
        """The fewest bytes in the time that ``auto`` allows, if the reduction is worth it."""
        possible = sum(self.training.bytes[v] for v in self.training.candidates)
        for share, least in AUTO:
            if possible > least:
                best = self._in_time(share)
                if best is not self.plain and self._is_worth_time(best, least):
                    return best
        return self.asked()

    def _in_time(self, share: float) -> CandidatePlan:
        """The fewest bytes in this share of the step's time."""
        plain, allowed = self.plain, share * self.plain.seconds
        best, allowance = plain, allowed
        for _ in range(_TRIES):
            found = self.knapsack.choose(seconds=allowance)
            made = self.candidate(found.dropped)
            over = made.seconds - plain.seconds - allowed
            if over <= 0 and made.peak < best.peak:
                best = made
            if -_NEAR * allowed <= over <= 0 or (over < 0 and found.seconds < _ALL * allowance):
                break
            allowance = found.seconds - over - _SLACK * allowed
        return self._on_time(best, share)

    def _is_worth_time(self, made: CandidatePlan, least: int) -> bool:
        """Whether live values need fewer bytes, and the memory plan, too: kernels' scratch can be what is large."""

        def shrinks(before: int, now: int) -> bool:
            return before - now > max(least, AUTO_PART * before)

        return shrinks(self.plain.peak, made.peak) and shrinks(self.plain.bytes, made.bytes)

    def _on_time(self, best: CandidatePlan, share: float) -> CandidatePlan:
        """``best``, or a smaller selection with which the multi-stream step is within the limit, too."""
        plain, limit = self.plain, (1 + share) * self.plain.seconds_on_streams
        for _ in range(_TRIES):
            if best is plain or best.seconds_on_streams <= limit:
                return best
            part = (limit - plain.seconds_on_streams) / (best.seconds_on_streams - plain.seconds_on_streams) - _SLACK
            best = self.candidate(self.knapsack.choose(seconds=part * (best.seconds - plain.seconds)).dropped)
        return best if best.seconds_on_streams <= limit else plain

    def within(self, budget: int) -> CandidatePlan:
        """The fastest candidate that fits the budget, else the one with the fewest bytes."""
        plain = self.plain
        if plain.bytes <= budget:
            return self.asked()
        rest = plain.bytes - plain.peak
        peak = high = budget - rest  # the estimated peak that does not fit
        fewest, fitting, left = plain, list[tuple[CandidatePlan, int]](), _BUDGET_TRIES
        while left:
            left -= 1
            found = self.knapsack.choose(peak=peak)
            made = self.candidate(found.dropped)
            over, all_of_it = made.peak + rest - budget, found.peak > peak
            if over <= 0 or (all_of_it and not fitting):  # only then make a memory plan
                fewest = min(fewest, made, key=lambda each: each.bytes)
                over = made.bytes - budget
            if over <= 0:
                left = left if fitting else _BUDGET_MORE
                fitting.append((made, found.peak))
                low = found.peak
            elif all_of_it:
                break
            else:
                high = min(high, found.peak)
            if not fitting:
                peak = found.peak - over if left > 1 else -1
            elif high - low > _BUDGET_NEAR * budget and fitting[-1][0].bytes < (1 - _BUDGET_NEAR) * budget:
                peak = (low + high) // 2  # a selection in between may take less time
            else:
                break
        if fitting:
            return self._on_streams(*min(fitting, key=lambda each: each[0].seconds_on_streams), budget)
        return self.asked() if fewest is plain else fewest

    def _on_streams(self, best: CandidatePlan, peak: int, budget: int) -> CandidatePlan:
        """Returns ``best``, which fits and was chosen for ``peak``, or a larger selection if streams then fit the
        budget, too, and the step ends earlier."""
        wider = best.for_build(dataclasses.replace(best.build, budget=None))
        if best.build.streams == 1 or best.planned.streams or not wider.planned.streams:
            return best
        less = self.candidate(self.knapsack.choose(peak=peak - (wider.bytes - budget)).dropped)
        return less if less.bytes <= budget and less.seconds_on_streams < best.seconds_on_streams else best
