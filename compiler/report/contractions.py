"""Counts where the contractions of a build run: in which library, or in own kernels and why."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from dslc.compiler.codegen.target import LibraryCall
from dslc.compiler.codegen.targets import target_of
from dslc.compiler.ir.program import Program


def census(programs: Iterable[Program]) -> tuple[Counter[str], Counter[str]]:
    """How many nodes go to each library, and how many of each kind that a library is for run as own kernels: ``conv
    (groups)``. Of programs whose build may call libraries."""
    calls: Counter[str] = Counter()
    rest: Counter[str] = Counter()
    for program in programs:
        if not program.vendor:
            continue
        target = target_of(program.target, vendor=True)
        for node, launches in program.kernels.items():
            called = [launch.spec.library for launch in launches if isinstance(launch.spec, LibraryCall)]
            calls.update(called)
            why = None if called else target.why_no_library(node)
            if why is not None:
                rest[f"{node.op.name.removesuffix('_last')} ({why})"] += 1
    return calls, rest
