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

``candidates.py`` decides which values may be recomputed. ``select.py`` selects from them by freed bytes per second,
using estimated lifetimes and times (``lifetimes.py``). The following passes then build and evaluate the selection
(``candidate_plan.py``). It is accepted only if the fused and scheduled program needs fewer bytes within the allowed
time. Without a budget (``without_budget.py``), recomputation may add 3 % to the modelled time, or 1 % for a smaller
reduction: of the kernels run one after another, and of the multi-stream step, in which recomputed nodes overlap less
with other work. With a budget (``build.budget``, ``within_budget.py``), it adds as little time as the budget requires,
and none if the program already fits. Results equal those of the plain graph bit for bit.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from dslc.compiler.ir.build import Build, Pass
from dslc.compiler.ir.graph import Phase
from dslc.compiler.ir.program import Mirrored, Program
from dslc.compiler.passes.conditions import fuses_reductions
from dslc.compiler.passes.mirror.candidate_plan import CandidatePlan, Candidates
from dslc.compiler.passes.mirror.training_graph import TrainingGraph
from dslc.compiler.passes.mirror.within_budget import fastest_within
from dslc.compiler.passes.mirror.without_budget import AUTO, fewest_bytes


def mirror_against(program: Program, build: Build, fusing: Sequence[Pass], planning: Sequence[Pass]) -> Program:
    """The pass; ``fusing`` and ``planning`` are the passes after it; the last one plans memory. Linear in nodes."""
    plain = CandidatePlan(program, build, fusing, planning)
    best = _best(plain, build)
    return program if best is plain else _taken(plain, best)


def plans(program: Program, builds: Sequence[Build], fusing: Sequence[Pass], planning: Sequence[Pass]) -> list[Program]:
    """For each build, the program after this pass and the following ones. The builds may differ only in their mirror
    options; shared work is done once."""
    first = CandidatePlan(program, builds[0], fusing, planning)
    planned: list[Program] = []
    for build in builds:
        plain = first.for_build(build)
        best = _best(plain, build)
        mirrored = None if best is plain else _taken(plain, best).mirrored
        planned.append(dataclasses.replace(best.planned, mirrored=mirrored))
    return planned


def _best(plain: CandidatePlan, build: Build) -> CandidatePlan:
    """The candidate that suits the build; the plain one if nothing is worth recomputing."""
    graph = plain.program.graph
    is_training = any(node.phase is Phase.BACKWARD for node in graph.nodes)
    if build.mirror == "never" or plain.program.mirrored is not None or not is_training:
        return plain
    fuses = fuses_reductions(build)
    training = TrainingGraph(
        graph, build.mirror_words, extra_outputs=fuses, recomputes_inputs=fuses, machine=plain.machine
    )
    least = AUTO[-1].least if build.budget is None and not training.always else 0
    if sum(training.bytes[value] for value in training.candidates) <= least:
        return plain
    candidates = Candidates(plain, training)
    return fewest_bytes(candidates) if build.budget is None else fastest_within(candidates, build.budget)


def _taken(plain: CandidatePlan, best: CandidatePlan) -> Program:
    """The plain program with the graph of a candidate."""
    graph = best.program.graph
    count = sum(node.phase is Phase.MIRROR for node in graph.nodes)
    report = Mirrored(count, plain.peak, best.peak, plain.seconds, best.seconds)
    return dataclasses.replace(plain.program, graph=graph, mirrored=report)
