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
budget that is 3 % of the modelled step; with one (``build.budget``), as little time as the budget asks for, and none
where the program fits as it is. The numbers are those of the plain graph, bit for bit.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from functools import cached_property
from typing import Final

from dslc.compiler.cost import machine_of, total_seconds
from dslc.compiler.ir.build import Build, Pass
from dslc.compiler.ir.graph import Graph, Phase
from dslc.compiler.ir.program import Mirrored, Program
from dslc.compiler.passes.beside import writes_beside
from dslc.compiler.passes.mirror_choice import Chooser
from dslc.compiler.passes.mirror_recipes import recipes, with_copies
from dslc.compiler.passes.mirror_rule import Choice, Facts
from dslc.compiler.passes.schedule import scheduled

#: Of the modelled step's time, what ``auto`` may add.
AUTO_SHARE: Final = 0.03
#: A plan that falls by less is not worth any time: bytes, and the part of the plan.
AUTO_BYTES: Final = 256 << 20
AUTO_PART: Final = 0.05
_TRIES: Final = 3
_NEAR: Final = 0.1  # of the allowed time: as good as met
_SLACK: Final = 0.1  # of what was too much
_ALL: Final = 0.9  # of an allowance that is not used up: more of it gives nothing
_BUDGET_TRIES: Final = 6


def mirror_against(program: Program, build: Build, fusing: Sequence[Pass], planning: Sequence[Pass]) -> Program:
    """The pass; ``fusing`` and ``planning`` are those behind it, the last of which plans memory. Linear in nodes."""
    graph = program.graph
    if (
        build.mirror == "never"
        or program.mirrored is not None
        or not any(n.phase is Phase.BACKWARD for n in graph.nodes)
    ):
        return program
    machine = machine_of(build.target, build.provider)
    absorbs = build.fuse and build.target != "cpu"
    facts = Facts(graph, build.mirror_words, beside=writes_beside(build), absorbs=absorbs, machine=machine)
    if sum(facts.bytes[v] for v in facts.candidates) <= (
        AUTO_BYTES if build.budget is None and not facts.always else 0
    ):
        return program
    judge = _Judge(program, build, facts, fusing, planning)
    found = judge.automatic() if build.budget is None else judge.within(build.budget)
    return program if found is None else found


class _Trial:
    """What the passes behind make of a graph, as far as it is asked for."""

    def __init__(self, judge: _Judge, graph: Graph) -> None:
        self.judge = judge
        self.graph = graph

    @cached_property
    def fused(self) -> Program:
        program = dataclasses.replace(self.judge.program, graph=self.graph)
        for step in self.judge.fusing:
            program = step(program, self.judge.build)
        return program

    @cached_property
    def seconds(self) -> float:
        """Modelled time."""
        return total_seconds(self.fused.graph.nodes, self.judge.machine)

    @cached_property
    def peak(self) -> int:
        """The most bytes alive at once."""
        return scheduled(self.fused.graph)[1]

    @cached_property
    def planned(self) -> int:
        """Bytes of io and work, kernels' scratch with them."""
        program = self.fused
        for step in self.judge.planning:
            program = step(program, self.judge.build)
        assert program.memory is not None
        return program.memory.io_bytes + program.memory.work_bytes


class _Judge:
    def __init__(
        self, program: Program, build: Build, facts: Facts, fusing: Sequence[Pass], planning: Sequence[Pass]
    ) -> None:
        self.program = program
        self.build = build
        self.facts = facts
        self.fusing = fusing
        self.planning = planning
        self.machine = machine_of(build.target, build.provider)
        self.chooser = Chooser(facts, self.machine)
        self.plain = _Trial(self, program.graph)

    def trial(self, choice: Choice) -> _Trial:
        return _Trial(self, with_copies(self.program.graph, recipes(self.facts, choice, self.machine)))

    def automatic(self) -> Program | None:
        """The program of the fewest bytes in the time that ``auto`` allows; None where none is worth it."""
        plain, allowed = self.plain, AUTO_SHARE * self.plain.seconds
        best: _Trial | None = None
        allowance = allowed
        for _ in range(_TRIES):
            found = self.chooser.choose(seconds=allowance)
            if not found.choice.dropped:
                break
            made = self.trial(found.choice)
            over = made.seconds - plain.seconds - allowed
            if over <= 0 and made.peak < (plain if best is None else best).peak:
                best = made
            if -_NEAR * allowed <= over <= 0 or (over < 0 and found.seconds < _ALL * allowance):
                break
            allowance = found.seconds - over - max(0.0, _SLACK * over)
        if best is None or plain.peak - best.peak <= max(AUTO_BYTES, AUTO_PART * plain.peak):
            return self.asked()
        return self.taken(best)

    def asked(self) -> Program | None:
        """The program of what the source asks for and no more; None where it asks for nothing."""
        if not self.facts.always:
            return None
        return self.taken(self.trial(self.chooser.choose(seconds=0.0).choice))

    def within(self, budget: int) -> Program | None:
        """The program of the least time that fits, or of the fewest bytes; None for the plain one."""
        if self.plain.planned <= budget:
            return self.asked()
        best: _Trial = self.plain
        beside = self.plain.planned - self.plain.peak
        peak = budget - beside
        for _ in range(_BUDGET_TRIES):
            found = self.chooser.choose(peak=peak)
            made = self.trial(found.choice)
            over = made.peak + beside - budget
            if over <= 0 or found.peak > peak:  # as good as it gets: it is worth a plan
                best = min(best, made, key=lambda trial: trial.planned)
                over = made.planned - budget
            if over <= 0 or found.peak > peak:
                break
            peak = found.peak - over
        return self.asked() if best is self.plain else self.taken(best)

    def taken(self, found: _Trial) -> Program:
        """The program with the graph of a trial."""
        graph, plain = found.graph, self.plain
        count = sum(n.phase is Phase.MIRROR for n in graph.nodes)
        report = Mirrored(count, plain.peak, found.peak, plain.seconds, found.seconds)
        return dataclasses.replace(self.program, graph=graph, mirrored=report)
