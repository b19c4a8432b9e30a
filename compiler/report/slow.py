"""Source lines whose operations take much of a step's modelled time although the machine could run them much faster.

A finished build names them (warning W011), so that a user meets a slow kernel before the first step and not in a
profile. Kernels that take little longer than a launch do not count: small models consist of them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final

from dslc.compiler.codegen.target import OTHERWISE, LibraryCall, Target
from dslc.compiler.codegen.targets import ARCHITECTURES, target_of
from dslc.compiler.cost import MATRIX_KINDS, Machine, kind, machine_with, roof, seconds, work
from dslc.compiler.ir.choice import NO_CHOICES, Choices
from dslc.compiler.ir.graph import Node
from dslc.compiler.ir.program import Program
from dslc.compiler.report.facts import Line, line_of, what
from dslc.compiler.report.markup import cell, number, plain, table, tag

SHARE: Final = 0.05  # of a program's modelled time, from which a line counts
ROOF: Final = 0.2  # the part of the machine's speed below which it counts
LAUNCHES: Final = 20  # that a kernel takes at least

_MEASURE: Final = "`dslc bench` measures it, and `dslc tune` looks for a faster way"


@dataclass(frozen=True, slots=True)
class Slow:
    """Nodes of one op on one source line, or on several ``lines`` that take little each and much together; the place is
    then the one that takes most. ``share``: of the modelled time of the program of ``entry``; ``of_roof``:
    their time at the machine's speed by their modelled one; ``bound``: what the roof consists of, ``memory`` or
    ``arithmetic``; ``why`` and ``help``: one line each."""

    target: str
    entry: str
    file: str
    line: int
    op: str
    nodes: int
    seconds: float
    share: float
    of_roof: float
    bound: str
    why: str
    help: str
    lines: int = 1

    @property
    def place(self) -> str | None:
        """``file:line``; None for a node without a place in the source."""
        return f"{self.file}:{self.line}" if self.line else None

    def text(self) -> str:
        """What the warning says."""
        many = f" ({self._counts()})" if self.nodes > 1 else ""
        return (
            f"`{self.op}`{many} takes {self.share:.0%} of {self.entry}'s modelled time on {self.target}, "
            f"at {self.of_roof:.0%} of the speed of its {self.bound}: {self.why}"
        )

    def _counts(self) -> str:
        return f"{self.nodes:,} times" + (f" on {self.lines:,} lines" if self.lines > 1 else "")

    def label(self) -> str:
        """The op, and how often it occurs."""
        return self.op if self.nodes == 1 else f"{self.op}, {self._counts()}"

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def slow_lines(programs: Iterable[Program], choices: Mapping[str, Choices]) -> list[Slow]:
    """The slow lines of the programs for GPUs, the largest share first; a line with the same op in several programs
    counts once, where its share is largest. ``choices``: by target, the measured ways that the build obeyed."""
    worst: dict[tuple[str, str, int, str], Slow] = {}
    for program in programs:
        if program.target not in ARCHITECTURES:
            continue  # of a CPU, the model does not know what kernels reach
        for found in _of_program(program, choices.get(program.target, NO_CHOICES)):
            key = (found.target, found.file, found.line, found.op)
            if key not in worst or worst[key].share < found.share:
                worst[key] = found
    return sorted(worst.values(), key=lambda each: (-each.share, each.file, each.line, each.op))


def _of_program(program: Program, choices: Choices) -> Iterable[Slow]:
    machine = machine_with(program.target, program.vendor, choices)
    target = target_of(program.target, program.vendor)
    total = 0.0
    groups: dict[tuple[Line, str], list[Node]] = defaultdict(list)
    for node in program.computing:
        total += seconds(node, machine)
        groups[line_of(node), what(node)].append(node)
    small: dict[str, list[Node]] = defaultdict(list)  # by op: the nodes of lines that take less than SHARE
    for (_, op), nodes in groups.items():
        if not _is_slow(nodes, machine):
            continue
        if _taken(nodes, machine) >= SHARE * total:
            yield _told(op, nodes, total, program, target, machine)
        else:
            small[op] += nodes
    for op, nodes in small.items():
        if _taken(nodes, machine) >= SHARE * total:
            yield _told(op, nodes, total, program, target, machine)


def _taken(nodes: Iterable[Node], machine: Machine) -> float:
    """The modelled seconds of these nodes, without what a launch costs."""
    return sum(max(0.0, work(node, machine) - machine.of_node(node).start) for node in nodes)


def _is_slow(nodes: list[Node], machine: Machine) -> bool:
    """Whether nodes take much longer than launches and than at the machine's speed."""
    taken = _taken(nodes, machine)
    at_least = LAUNCHES * len(nodes) * machine.device.launch
    return taken >= at_least and sum(max(roof(node, machine)) for node in nodes) < ROOF * taken


def _told(op: str, nodes: list[Node], total: float, program: Program, target: Target, machine: Machine) -> Slow:
    taken, roofs = _taken(nodes, machine), [roof(node, machine) for node in nodes]
    moving, arithmetic = map(sum, zip(*roofs))
    longest = max(nodes, key=lambda node: work(node, machine))
    why, help = _reason(longest, program, target, machine)
    line = line_of(longest)
    return Slow(
        program.target, program.entry, line.file, line.number, op, len(nodes), taken, taken / total,
        sum(map(max, roofs)) / taken, "memory" if moving > arithmetic else "arithmetic", why, help,
        len({line_of(node) for node in nodes}),
    )  # fmt: skip


def _reason(node: Node, program: Program, target: Target, machine: Machine) -> tuple[str, str]:
    """Why a node is slow, and what helps, as far as the compiler knows."""
    if machine.measured is not None and machine.measured(node) is not None:
        return "no measured way is faster", "other sizes or another layout may have a faster one"
    called = any(isinstance(launch.spec, LibraryCall) for launch in program.all_kernels.get(node, ()))
    if called:
        return "the library reaches no more at these sizes", _MEASURE
    if kind(node) not in MATRIX_KINDS:
        return "its kernel reaches no more", _MEASURE
    if not program.vendor:
        return "own kernels compute it", f"NVIDIA's libraries may be faster (`--providers vendor`); {_MEASURE}"
    reason = target.why_no_library(node)
    if reason is None or reason == OTHERWISE:
        return "own kernels compute it", _MEASURE
    if target.library(node) is not None:
        return f"own kernels compute it unless a library was measured faster ({reason})", _MEASURE
    return f"own kernels compute it, as no library does ({reason})", f"other sizes may avoid that; {_MEASURE}"


def slow_table(found: Iterable[Slow]) -> str:
    """The slow lines as HTML; empty if there are none."""
    rows = [
        (
            cell(each.place or "-"),
            cell(each.label()),
            cell(f"{each.entry} on {each.target}"),
            number(f"{each.share:.0%}"),
            number(f"{each.of_roof:.0%} of {each.bound}"),
            cell(f"{each.why}; {each.help}".replace("`", "")),
        )
        for each in found
    ]
    if not rows:
        return ""
    head = ("line", "operation", "program", "modelled", "speed", "why, and what may help")
    return "\n".join([tag("h2", plain("Lines far below the machine's speed")), table(head, rows, (3, 4))])
