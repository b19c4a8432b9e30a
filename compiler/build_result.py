"""The result of a build: the artifact in memory, and a report of each entry."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dslc.base.cache import Counts
from dslc.compiler.ir.program import Mirrored, Program
from dslc.compiler.lock.choices import Origins
from dslc.compiler.options import Sizes
from dslc.compiler.passes.runner import PassReport


@dataclass(frozen=True)
class EntryReport:
    """The result of one Program: its size and its passes."""

    entry: str
    target: str
    sizes: Sizes
    nodes: int
    io_bytes: int
    work_bytes: int
    lower_bound: int
    mirrored: Mirrored | None
    passes: tuple[PassReport, ...]


@dataclass(frozen=True)
class BuildResult:
    """An artifact in memory, not yet published. ``kernels``: their number; ``cache``: the cache statistics of their
    code; ``loose``: a build with the same compilers may give other bytes (W009). ``origins``: for each target that is a
    GPU, where the choices for its problems come from."""

    name: str
    artifact: bytes
    header: Mapping[str, Any]
    programs: tuple[Program, ...]
    reports: tuple[EntryReport, ...]
    seconds: float
    kernels: int
    cache: Counts
    loose: bool
    origins: Mapping[str, Origins]


def entry_report(program: Program, passes: tuple[PassReport, ...]) -> EntryReport:
    """The report of a planned program."""
    memory_plan = program.memory
    assert memory_plan is not None
    return EntryReport(
        program.title,
        program.target,
        program.sizes,
        len(program.graph.nodes),
        memory_plan.io_bytes,
        memory_plan.work_bytes,
        memory_plan.lower_bound,
        program.mirrored,
        passes,
    )
