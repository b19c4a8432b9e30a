"""A program in which some values are recomputed, and what the following passes make of it."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from functools import cached_property

from dslc.compiler.cost import Machine, machine_for, total_seconds
from dslc.compiler.ir.build import Build, Pass
from dslc.compiler.ir.graph import Graph, Node, Value
from dslc.compiler.ir.program import Program
from dslc.compiler.passes.mirror.recipes import recipes
from dslc.compiler.passes.mirror.rewrite import with_copies
from dslc.compiler.passes.mirror.select import Knapsack
from dslc.compiler.passes.mirror.training_graph import TrainingGraph
from dslc.compiler.passes.plan.schedule import scheduled
from dslc.compiler.passes.plan.stream_timeline import finish


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
        """A candidate for a build that differs only in its budget. Fusion asks only whether there is one."""
        if build.budget == self.build.budget:
            return self
        fused = self.fused if (build.budget is None) == (self.build.budget is None) else None
        return CandidatePlan(self.program, build, self.fusing, self.planning, fused, self.machine)

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
        return self.seconds if self.build.streams == 1 else finish(self._on_streams, self.machine)

    @cached_property
    def _scheduled(self) -> tuple[list[Node], int]:
        return scheduled(self.fused.graph)

    @property
    def peak(self) -> int:
        """The most bytes alive at once."""
        return self._scheduled[1]

    @cached_property
    def _on_streams(self) -> Program:
        """The program with all plans but that of memory."""
        program = dataclasses.replace(self.fused, schedule=tuple(self._scheduled[0]))
        for step in self.planning[:-1]:
            program = step(program, self.build)
        return program

    @cached_property
    def planned(self) -> Program:
        """The program with its memory plan."""
        return self.planning[-1](self._on_streams, self.build)

    @property
    def bytes(self) -> int:
        """Bytes of the io and work regions, including kernels' scratch."""
        memory = self.planned.memory
        assert memory is not None
        return memory.io_bytes + memory.work_bytes


class Candidates:
    """Makes candidates of a plain program. ``knapsack``: selects the values to recompute."""

    def __init__(self, plain: CandidatePlan, training: TrainingGraph) -> None:
        self.plain, self.training = plain, training
        self.knapsack = Knapsack(training, plain.machine)

    def with_dropped(self, dropped: frozenset[Value]) -> CandidatePlan:
        """The plan in which these values are recomputed."""
        copies = recipes(self.training, dropped, self.plain.machine)
        return self.plain.with_graph(with_copies(self.training.graph, copies))

    def with_asked(self) -> CandidatePlan:
        """Recomputes only the values that the source asks for."""
        if not self.training.always:
            return self.plain
        return self.with_dropped(self.knapsack.choose(seconds=0.0).dropped)
