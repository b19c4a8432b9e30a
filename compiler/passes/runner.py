"""Runs passes in order, verifies and times each, and hands out the program after each on request."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from dslc.compiler.collection import no_collection
from dslc.compiler.cost import moved
from dslc.compiler.ir.build import Build, Pass
from dslc.compiler.ir.program import Program
from dslc.compiler.ir.verify.error import VerifyError
from dslc.compiler.ir.verify.graph import Inferred, verify_graph
from dslc.compiler.ir.verify.program import verify_program

#: Takes a pass's name and the program after it.
Keep: TypeAlias = Callable[[str, Program], object]

_COLLECT_FROM: Final = 50_000  # nodes of a graph from which it is collected at once


@dataclass(frozen=True, slots=True)
class PassReport:
    """Report on one pass: its name, its seconds, the seconds of verification, nodes before and after, and the bytes
    that all of these nodes read and write."""

    name: str
    seconds: float
    verify_seconds: float
    nodes_before: int
    nodes_after: int
    moved_before: int
    moved_after: int


def pass_name(step: Pass) -> str:
    """The pass's name for people: the name of its function."""
    return str(getattr(step, "__name__", type(step).__name__))


def run_passes(
    program: Program,
    build: Build,
    passes: Sequence[Pass],
    *,
    until: str | None = None,
    keep: Keep | None = None,
) -> tuple[Program, tuple[PassReport, ...]]:
    """The program after the passes (up to and including ``until``), and a report for each.

    ``keep(name, program)`` gets the program after each pass, first the unchanged one as ``input``.
    Raises VerifyError, naming the pass, if a pass produced an unsound program, and any DslcError that a pass raises.
    """
    with no_collection():
        return _run(program, build, passes, until, keep)


def _run(
    program: Program,
    build: Build,
    passes: Sequence[Pass],
    until: str | None,
    keep: Keep | None,
) -> tuple[Program, tuple[PassReport, ...]]:
    inferred = Inferred()
    verify_graph(program.graph, inferred)
    if keep is not None:
        keep("input", program)
    reports: list[PassReport] = []
    moving = {node: moved(node) for node in program.graph.nodes}
    for step in passes:
        name = pass_name(step)
        before = program
        start = time.perf_counter()
        program = step(before, build)
        done = time.perf_counter()
        try:
            if program.graph is not before.graph:
                verify_graph(program.graph, inferred)
            verify_program(program, build)
        except VerifyError as error:
            raise VerifyError(f"after {name}: {error}") from error
        verified = time.perf_counter()
        nodes, bytes_before = (len(before.graph.nodes), len(program.graph.nodes)), sum(moving.values())
        if program.graph is not before.graph:
            moving = {n: moving[n] if n in moving else moved(n) for n in program.graph.nodes}
        reports.append(PassReport(name, done - start, verified - done, *nodes, bytes_before, sum(moving.values())))
        if keep is not None:
            keep(name, program)
        if name == until:
            break
        if program.graph is not before.graph and len(before.graph.nodes) > _COLLECT_FROM:
            del before
            gc.collect()  # frees the graph before the pass, whose nodes and values refer to each other in cycles
    return program, tuple(reports)
