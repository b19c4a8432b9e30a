"""Recomputation: what is cheap is computed again in the backward pass rather than kept for it (backward mirroring).

Before, r kept from the forward to the backward pass::

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

``mirror_rule.py`` says what may be computed again, ``mirror_choice.py`` picks from it by bytes a second, holding each
against lifetimes and the model of time (``mirror_estimate.py``), and what is chosen is made and judged by the passes
that follow: it is taken only where fused and scheduled it needs fewer bytes, in the time that is allowed. Without a
budget that is 3 % of the modelled step, of kernels one after another and of the step on its streams, which hide less of
copies than of what is beside them; with one (``build.budget``), as little time as the budget asks for, and none where
the program fits as it is. The numbers are those of the plain graph, bit for bit.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from functools import cached_property
from typing import Final

from dslc.compiler.cost import machine_of, total_seconds
from dslc.compiler.ir.build import Build, Pass
from dslc.compiler.ir.graph import Graph, Node, Phase
from dslc.compiler.ir.program import Mirrored, Program
from dslc.compiler.passes.beside import writes_beside
from dslc.compiler.passes.mirror_choice import Chooser
from dslc.compiler.passes.mirror_recipes import recipes, with_copies
from dslc.compiler.passes.mirror_rule import Choice, Facts
from dslc.compiler.passes.overlap import finish
from dslc.compiler.passes.schedule import scheduled

#: Of the modelled step's time, what ``auto`` may add.
AUTO_SHARE: Final = 0.03
#: A plan that falls by less is not worth any time: bytes, and the part of the plan.
AUTO_BYTES: Final = 256 << 20
AUTO_PART: Final = 0.05
_TRIES: Final = 3
_NEAR: Final = 0.1  # of the allowed time: as good as met
_SLACK: Final = 0.02  # of the allowed time: what another try may miss it by
_ALL: Final = 0.9  # of an allowance that is not used up: more of it gives nothing
_BUDGET_TRIES: Final = 6
_BUDGET_MORE: Final = 3  # tries behind the first that fits
_BUDGET_NEAR: Final = 0.03  # of the budget that is left: as good as used up


def mirror_against(program: Program, build: Build, fusing: Sequence[Pass], planning: Sequence[Pass]) -> Program:
    """The pass; ``fusing`` and ``planning`` are those behind it, the last of which plans memory. Linear in nodes."""
    plain = Trial(program, build, fusing, planning)
    found = _best(plain, build)
    return program if found is plain else _taken(plain, found)


def plans(program: Program, builds: Sequence[Build], fusing: Sequence[Pass], planning: Sequence[Pass]) -> list[Program]:
    """For each build, which differ in what they say of mirroring alone, the program that the pass and those behind it
    make; what they share is made once."""
    first = Trial(program, builds[0], fusing, planning)
    planned: list[Program] = []
    for build in builds:
        plain = first.under(build)
        found = _best(plain, build)
        mirrored = None if found is plain else _taken(plain, found).mirrored
        planned.append(dataclasses.replace(found.planned, mirrored=mirrored))
    return planned


def _best(plain: Trial, build: Build) -> Trial:
    """The trial that a build wants, the plain one where nothing is to be computed again."""
    graph = plain.program.graph
    if (
        build.mirror == "never"
        or plain.program.mirrored is not None
        or not any(n.phase is Phase.BACKWARD for n in graph.nodes)
    ):
        return plain
    absorbs = build.fuse and build.target != "cpu"
    facts = Facts(graph, build.mirror_words, beside=writes_beside(build), absorbs=absorbs, machine=plain.machine)
    if sum(facts.bytes[v] for v in facts.candidates) <= (
        AUTO_BYTES if build.budget is None and not facts.always else 0
    ):
        return plain
    judge = _Judge(plain, facts)
    return judge.automatic() if build.budget is None else judge.within(build.budget)


def _taken(plain: Trial, found: Trial) -> Program:
    """The plain program with the graph of a trial."""
    graph = found.program.graph
    count = sum(n.phase is Phase.MIRROR for n in graph.nodes)
    report = Mirrored(count, plain.peak, found.peak, plain.seconds, found.seconds)
    return dataclasses.replace(plain.program, graph=graph, mirrored=report)


class Trial:
    """What the passes behind make of a program, as far as it is asked for."""

    def __init__(
        self,
        program: Program,
        build: Build,
        fusing: Sequence[Pass],
        planning: Sequence[Pass],
        fused: Program | None = None,
    ) -> None:
        """``fused``: the program after ``fusing``, where that is known."""
        self._fused = fused
        self.program = program
        self.build = build
        self.fusing = fusing
        self.planning = planning
        self.machine = machine_of(build.target, build.provider)

    def of(self, graph: Graph) -> Trial:
        """The same of another graph."""
        return Trial(dataclasses.replace(self.program, graph=graph), self.build, self.fusing, self.planning)

    def under(self, build: Build) -> Trial:
        """The same for a build that differs in its budget alone, which only planning heeds."""
        if build.budget == self.build.budget:
            return self
        return Trial(self.program, build, self.fusing, self.planning, self.fused)

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
        """Modelled time of one kernel after another."""
        return total_seconds(self.fused.graph.nodes, self.machine)

    @cached_property
    def lasts(self) -> float:
        """Modelled time on the streams of its plan."""
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
        """With its plan of memory."""
        program = dataclasses.replace(self.fused, schedule=tuple(self._scheduled[0]))
        for step in self.planning:
            program = step(program, self.build)
        return program

    @property
    def bytes(self) -> int:
        """Those of io and work, kernels' scratch with them."""
        memory = self.planned.memory
        assert memory is not None
        return memory.io_bytes + memory.work_bytes


class _Judge:
    def __init__(self, plain: Trial, facts: Facts) -> None:
        self.plain = plain
        self.facts = facts
        self.chooser = Chooser(facts, plain.machine)

    def trial(self, choice: Choice) -> Trial:
        return self.plain.of(with_copies(self.facts.graph, recipes(self.facts, choice, self.plain.machine)))

    def asked(self) -> Trial:
        """What the source asks for and no more."""
        return self.trial(self.chooser.choose(seconds=0.0).choice) if self.facts.always else self.plain

    def automatic(self) -> Trial:
        """The fewest bytes in the time that ``auto`` allows, if that is worth it."""
        plain, allowed = self.plain, AUTO_SHARE * self.plain.seconds
        best, allowance = plain, allowed
        for _ in range(_TRIES):
            found = self.chooser.choose(seconds=allowance)
            made = self.trial(found.choice)
            over = made.seconds - plain.seconds - allowed
            if over <= 0 and made.peak < best.peak:
                best = made
            if -_NEAR * allowed <= over <= 0 or (over < 0 and found.seconds < _ALL * allowance):
                break
            allowance = found.seconds - over - _SLACK * allowed
        best = self._on_time(best)
        return best if plain.peak - best.peak > max(AUTO_BYTES, AUTO_PART * plain.peak) else self.asked()

    def _on_time(self, best: Trial) -> Trial:
        """``best``, or less of it, so that the step on its streams is on time, too."""
        plain, limit = self.plain, (1 + AUTO_SHARE) * self.plain.lasts
        for _ in range(_TRIES):
            if best is plain or best.lasts <= limit:
                return best
            part = (limit - plain.lasts) / (best.lasts - plain.lasts) - _SLACK
            best = self.trial(self.chooser.choose(seconds=part * (best.seconds - plain.seconds)).choice)
        return best if best.lasts <= limit else plain

    def within(self, budget: int) -> Trial:
        """The least time that fits, or the fewest bytes."""
        plain = self.plain
        if plain.bytes <= budget:
            return self.asked()
        beside = plain.bytes - plain.peak
        peak = high = budget - beside  # too many bytes, by the estimate
        fewest, fitting, left = plain, list[tuple[Trial, int]](), _BUDGET_TRIES
        while left:
            left -= 1
            found = self.chooser.choose(peak=peak)
            made = self.trial(found.choice)
            over, all_of_it = made.peak + beside - budget, found.peak > peak
            if over <= 0 or (all_of_it and not fitting):  # worth a plan
                fewest = min(fewest, made, key=lambda trial: trial.bytes)
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
                peak = (low + high) // 2  # what lies in between may take less time
            else:
                break
        if fitting:
            return self._on_streams(*min(fitting, key=lambda each: each[0].lasts), budget)
        return self.asked() if fewest is plain else fewest

    def _on_streams(self, best: Trial, peak: int, budget: int) -> Trial:
        """``best``, which fits and was chosen for ``peak``, or a little more of it where streams then fit, too, and it
        ends earlier so."""
        wider = best.under(dataclasses.replace(best.build, budget=None))
        if best.build.streams == 1 or best.planned.streams or not wider.planned.streams:
            return best
        less = self.trial(self.chooser.choose(peak=peak - (wider.bytes - budget)).choice)
        return less if less.bytes <= budget and less.lasts < best.lasts else best
