"""The share of a program's modelled time that unmeasured calls of libraries take.

A library's heuristic may choose an algorithm that takes several times as long as its best one. A finished build says so
where such calls take most of a program, so that a user measures them before a long training. Calls that take little
longer than a launch do not count: another algorithm gains little there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final

from dslc.compiler.codegen.target import LibraryCall
from dslc.compiler.codegen.targets import ARCHITECTURES
from dslc.compiler.cost import Machine, machine_with, seconds
from dslc.compiler.ir.choice import NO_CHOICES, Choices
from dslc.compiler.ir.graph import Node
from dslc.compiler.ir.program import Program
from dslc.compiler.report.slow import LAUNCHES

SHARE: Final = 0.5  # of a program's modelled time, from which it is told


@dataclass(frozen=True, slots=True)
class Unmeasured:
    """``calls`` of libraries take ``share`` of the modelled time of the program of ``entry``, the program of a target
    in which they take most of it."""

    entry: str
    calls: int
    share: float

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def unmeasured(programs: Iterable[Program], choices: Mapping[str, Choices]) -> dict[str, Unmeasured]:
    """By target, of the GPUs where such calls take ``SHARE`` of a program. ``choices``: by target, the measured ways
    that the build obeyed."""
    found: dict[str, Unmeasured] = {}
    for program in programs:
        if program.target not in ARCHITECTURES:
            continue
        each = _of_program(program, choices.get(program.target, NO_CHOICES))
        least = found[program.target].share if program.target in found else SHARE
        if each.share > least:
            found[program.target] = each
    return found


def _of_program(program: Program, choices: Choices) -> Unmeasured:
    machine = machine_with(program.target, program.vendor, choices)
    times = {node: seconds(node, machine) for node in program.computing}
    calls = [node for node, taken in times.items() if _counts(node, taken, program, machine)]
    return Unmeasured(program.entry, len(calls), sum(times[node] for node in calls) / (sum(times.values()) or 1.0))


def _counts(node: Node, taken: float, program: Program, machine: Machine) -> bool:
    launches = program.all_kernels.get(node, ())
    if not any(isinstance(launch.spec, LibraryCall) for launch in launches):
        return False
    measured = machine.measured is not None and machine.measured(node) is not None
    return not measured and taken >= LAUNCHES * machine.device.launch
