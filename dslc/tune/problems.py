"""The distinct problems of a model: its nodes on a target by key, with their modelled time and number of calls.

Measured times decide whether a pointwise node becomes part of the contraction before it. So all three are problems, the
contraction, the pointwise node and both as one node, whichever of them the build has. So are a loop that may be one
kernel, joined with others or not, and the nodes of its body if the build runs them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from dslc.compiler.check.model import Checked
from dslc.compiler.codegen.cuda.libraries.registry import callable_library
from dslc.compiler.codegen.targets import target_of
from dslc.compiler.cost import Machine, machine_of, seconds
from dslc.compiler.ir.bodies.scans import loops_of, scans
from dslc.compiler.ir.choice import NO_CHOICES, Choices, key_of
from dslc.compiler.ir.graph import Node
from dslc.compiler.ir.program import Program
from dslc.compiler.lock.choices import RARE
from dslc.compiler.options import Options, entry_sizes, precision_of
from dslc.compiler.passes.fuse.contraction.epilogue import compared_nodes
from dslc.compiler.passes.fuse.pointwise.pointwise import fuse
from dslc.compiler.passes.plan.select_kernels import select
from dslc.compiler.passes.runner import pass_name
from dslc.compiler.pipeline import compile_entry

#: The op of a contraction with a fused epilogue, of which a library computes sums alone.
_FUSED: Final = "contraction"


@dataclass(frozen=True, slots=True)
class Problem:
    """``node``: one of the nodes that pose the problem. ``calls``: their number in all entries and sizes of the build;
    0 if the build only compares the time of such a node with that of others. ``seconds``: the modelled time of one
    call. ``vendor``: libraries may compute it."""

    key: str
    node: Node
    calls: int
    seconds: float
    vendor: bool

    @property
    def weight(self) -> float:
        """The modelled seconds of all calls; of one if there is none."""
        return self.seconds * max(1, self.calls)


def problems(checked: Checked, options: Options, target: str, choices: Choices = NO_CHOICES) -> list[Problem]:
    """The problems of all entries that run often, as a build poses them that obeys ``choices``. First those that it
    computes, then those that it compares; of each, those that take the most time first. Raises BuildError."""
    vendor = options.provider == "vendor"
    machine = machine_of(target, options.provider)
    computed, compared = _nodes(checked, options, target, choices)
    found: dict[str, Problem] = {}
    for node in computed:
        _count(found, node, machine, vendor, 1)
    for node in compared:
        _count(found, node, machine, vendor, 0)
    return sorted(found.values(), key=lambda problem: (not problem.calls, -problem.weight, problem.key))


def gaining_first(found: Sequence[Problem], target: str) -> list[Problem]:
    """Problems in their order, but of those that a build computes, and of those that it compares, the ones with several
    ways first: from the others, which are only timed, it gains nothing."""
    code = target_of(target)

    def rank(problem: Problem) -> tuple[bool, bool]:
        library = problem.vendor and code.library(problem.node) is not None
        return not problem.calls, not library and len(code.variants(problem.node)) < 2

    return sorted(found, key=rank)


def _nodes(checked: Checked, options: Options, target: str, choices: Choices) -> tuple[Sequence[Node], Sequence[Node]]:
    """The nodes that the programs compute, and those whose times decide what becomes one node."""
    computed: list[Node] = []
    compared: list[Node] = []
    tf32 = precision_of(checked, options).tf32

    def keep(name: str, program: Program) -> None:
        if options.fuse and name == pass_name(fuse):
            compared.extend(compared_nodes(program.graph, tf32=tf32))

    for entry, sizes in entry_sizes(checked, options):
        if entry not in RARE:
            program, _ = compile_entry(
                checked, entry, sizes, options, target=target, after=pass_name(select), keep=keep, choices=choices
            )
            computed += [each for node in program.computing for each in _single(node)]
            compared += _other_loops(program)
    return computed, compared


def _single(node: Node) -> Sequence[Node]:
    """The node; of joined loops, which a build joins by their times alone, each loop."""
    return loops_of(node) if node.op is scans else [node]


def _other_loops(program: Program) -> list[Node]:
    """The loops that run as the kernels of their bodies and could be one kernel."""
    found: list[Node] = []
    target = target_of(program.target)
    for node, body in program.loops.items():
        found += [node] if len(target.variants(node)) > 1 else []
        found += _other_loops(body)
    return found


def _count(found: dict[str, Problem], node: Node, machine: Machine, vendor: bool, calls: int) -> None:
    key = key_of(node)
    known = found.get(key)
    if known is None:
        libraries = vendor and (node.op.name != _FUSED or callable_library(node) is not None)
        found[key] = Problem(key, node, calls, seconds(node, machine), libraries)
    else:
        found[key] = replace(known, calls=known.calls + calls)
