"""The distinct problems of a model: its nodes on a target by key, with their modelled time and number of calls.

A build that may call NVIDIA's libraries fuses nothing into its contractions. So the fused contractions that a build
with own kernels would have are problems, too: only their measured times tell whether fusing pays off.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

from dslc.compiler.check.model import Checked
from dslc.compiler.cost import Machine, machine_of, seconds
from dslc.compiler.ir.choice import key_of
from dslc.compiler.ir.graph import Node
from dslc.compiler.lock.choices import RARE
from dslc.compiler.options import Options, entry_sizes
from dslc.compiler.passes.plan.select_kernels import select
from dslc.compiler.passes.runner import pass_name
from dslc.compiler.pipeline import compile_entry

#: The op of a contraction with a fused epilogue.
_FUSED: Final = "contraction"


@dataclass(frozen=True, slots=True)
class Problem:
    """``node``: one of the nodes that pose the problem. ``calls``: their number in all entries and sizes of the build.
    ``seconds``: the modelled time of one call. ``vendor``: libraries may compute it."""

    key: str
    node: Node
    calls: int
    seconds: float
    vendor: bool

    @property
    def weight(self) -> float:
        """The modelled seconds of all calls."""
        return self.seconds * self.calls


def problems(checked: Checked, options: Options, target: str) -> list[Problem]:
    """The problems of all entries that run often, those that take the most time first. Raises BuildError."""
    vendor = options.provider == "vendor"
    machine = machine_of(target, options.provider)
    found: dict[str, Problem] = {}
    for node in _nodes(checked, options, target):
        _count(found, node, machine, vendor)
    if vendor:
        for node in _nodes(checked, replace(options, provider="auto"), target):
            if node.op.name == _FUSED:
                _count(found, node, machine, False)
    return sorted(found.values(), key=lambda problem: (-problem.weight, problem.key))


def _nodes(checked: Checked, options: Options, target: str) -> Iterator[Node]:
    for entry, sizes in entry_sizes(checked, options):
        if entry not in RARE:
            program, _ = compile_entry(checked, entry, sizes, options, target=target, after=pass_name(select))
            yield from (node for node in program.graph.nodes if not node.op.view)


def _count(found: dict[str, Problem], node: Node, machine: Machine, vendor: bool) -> None:
    key = key_of(node)
    known = found.get(key)
    if known is None:
        found[key] = Problem(key, node, 1, seconds(node, machine), vendor)
    else:
        found[key] = replace(known, calls=known.calls + 1)
