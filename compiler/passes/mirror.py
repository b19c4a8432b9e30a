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

``mirror_rule.py`` proposes, ``mirror_estimate.py`` holds the proposals against lifetimes and the roofline model, and
what is chosen is made and judged by the passes that follow: it is taken only where fused and scheduled it needs fewer
bytes, in the time that is allowed. Without a budget that is 3 % of the modelled step; with one (``build.budget``), as
little time as the budget asks for, and none where the program fits as it is. The numbers are those of the plain graph,
bit for bit.
"""

from __future__ import annotations

import dataclasses
import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from dslc.compiler.cost import MACHINES, total_seconds
from dslc.compiler.ir.build import Build, Pass
from dslc.compiler.ir.graph import Graph, Phase, Value
from dslc.compiler.ir.program import Mirrored, Program
from dslc.compiler.passes.beside import writes_beside
from dslc.compiler.passes.mirror_estimate import Estimate, Estimator
from dslc.compiler.passes.mirror_recipes import Recipe, recipes, with_copies
from dslc.compiler.passes.mirror_rule import Facts, propose
from dslc.compiler.passes.schedule import scheduled

#: Of the modelled step's time, what ``auto`` may add.
AUTO_SHARE: Final = 0.03
#: A plan that falls by less is not worth any time: bytes, and the part of the plan.
AUTO_BYTES: Final = 256 << 20
AUTO_PART: Final = 0.05
#: Values in a row that may each be computed from the one before.
_DEPTHS: Final = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 1 << 30)
#: Parts of the step's time that a budget may ask for.
_SHARES: Final = (0.0, 0.005, 0.01, 0.02, 0.03, 0.04, 0.05, 0.06, 0.08, 0.1, 0.13, 0.17, 0.22, 0.3, 0.5, 1.0, math.inf)
_ROUNDS: Final = 4
_TRIES: Final = 3


def mirror_against(program: Program, build: Build, fusing: Sequence[Pass], planning: Sequence[Pass]) -> Program:
    """The pass; ``fusing`` and ``planning`` are those behind it, the last of which plans memory. Linear in nodes."""
    graph = program.graph
    if (
        build.mirror == "never"
        or program.mirrored is not None
        or not any(n.phase is Phase.BACKWARD for n in graph.nodes)
    ):
        return program
    facts = Facts(graph, build.mirror_words, beside=writes_beside(build))
    if sum(facts.bytes[v] for v in facts.candidates) <= (
        AUTO_BYTES if build.budget is None and not facts.always else 0
    ):
        return program
    judge = _Judge(program, build, facts, fusing, planning)
    found = judge.automatic() if build.budget is None else judge.within(build.budget)
    return program if found is None else found


@dataclass(frozen=True)
class _Proposal:
    known: dict[Value, Recipe]
    estimate: Estimate


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
        self.machine = MACHINES[build.target]
        self.estimator = Estimator(facts, self.machine)
        self.plain = _Trial(self, program.graph)

    def trial(self, proposal: _Proposal) -> _Trial:
        return _Trial(self, with_copies(self.program.graph, proposal.known))

    def automatic(self) -> Program | None:
        """The program of the fewest bytes in the time that ``auto`` allows; None where none is worth it."""
        plain, limit = self.plain, self.plain.seconds * (1 + AUTO_SHARE)
        best: _Trial | None = None
        allowance = AUTO_SHARE * plain.seconds
        for _ in range(_TRIES):
            proposal = self.proposal(allowance)
            if not proposal.known:
                break
            found = self.trial(proposal)
            over = found.seconds - limit
            if over <= 0:
                best = found if plain.peak - found.peak > max(AUTO_BYTES, AUTO_PART * plain.peak) else None
                break
            allowance = proposal.estimate.seconds - over
        return self.asked() if best is None else self.taken(best)

    def asked(self) -> Program | None:
        """The program of what the source asks for and no more; None where it asks for nothing."""
        if not self.facts.always:
            return None
        return self.taken(self.trial(self._proposal(self.facts.always, _DEPTHS[-1])))

    def within(self, budget: int) -> Program | None:
        """The program of the least time that fits, or of the fewest bytes; None for the plain one."""
        if self.plain.planned <= budget:
            return self.asked()
        beside = self.plain.planned - self.plain.peak
        best: _Trial = self.plain
        first = 0
        while first < len(_SHARES):
            fitting = bisect_left(
                _SHARES, True, first, len(_SHARES) - 1,
                key=lambda share: self.proposal(share * self.plain.seconds).estimate.peak + beside <= budget,
            )  # fmt: skip
            found = self.trial(self.proposal(self._least(_SHARES[fitting - 1 : fitting + 1], budget - beside)))
            if found.planned < best.planned:
                best = found
            if found.planned <= budget:
                break
            first = fitting + 1
        return self.asked() if best is self.plain else self.taken(best)

    def _least(self, shares: Sequence[float], peak: int) -> float:
        """The least time of those between two shares that brings the estimate below ``peak``; that of the last one
        where it does not."""
        low, high = (shares[0], shares[-1]) if len(shares) > 1 else (0.0, 0.0)
        for _ in range(_ROUNDS if math.isfinite(high) else 0):
            middle = (low + high) / 2
            if self.proposal(middle * self.plain.seconds).estimate.peak <= peak:
                high = middle
            else:
                low = middle
        return high * self.plain.seconds

    def taken(self, found: _Trial) -> Program:
        """The program with the graph of a trial."""
        graph, plain = found.graph, self.plain
        count = sum(n.phase is Phase.MIRROR for n in graph.nodes)
        report = Mirrored(count, plain.peak, found.peak, plain.seconds, found.seconds)
        return dataclasses.replace(self.program, graph=graph, mirrored=report)

    def proposal(self, allowance: float) -> _Proposal:
        """The proposal of the fewest bytes that takes no longer; the longer its chains, the fewer bytes it keeps, until
        the chains themselves take more."""
        best: _Proposal | None = None
        for depth in _DEPTHS:
            found = self._within(depth, allowance)
            if best is not None and found.estimate.peak >= best.estimate.peak:
                break
            best = found
        assert best is not None
        return best

    def _within(self, depth: int, allowance: float) -> _Proposal:
        """The proposal of this depth without what gives the fewest bytes a second."""
        allowed = self.facts.candidates
        for _ in range(_ROUNDS):
            found = self._proposal(allowed, depth)
            if found.estimate.seconds <= allowance:
                return found
            allowed = self._cheapest(found, allowance)
        return self._proposal(allowed, depth)

    def _cheapest(self, proposal: _Proposal, allowance: float) -> frozenset[Value]:
        """What gives most bytes a second, as far as the time goes."""
        left, allowed = allowance, set(self.facts.always)
        cost = {v: recipe.seconds(self.facts, self.machine) for v, recipe in proposal.known.items()}
        for value in sorted(cost, key=lambda v: cost[v] / self.facts.bytes[v]):
            if cost[value] <= left:
                left -= cost[value]
                allowed.add(value)
        return frozenset(allowed)

    def _proposal(self, allowed: frozenset[Value], depth: int) -> _Proposal:
        choice = propose(self.facts, allowed, depth)
        known = recipes(self.facts, choice)
        return _Proposal(known, self.estimator.of(choice, known))
