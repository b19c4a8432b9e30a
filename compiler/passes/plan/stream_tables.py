"""What the list schedule on streams asks of each node: which nodes it must follow, its time, and the bytes it frees."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, pairwise
from typing import Final

from dslc.compiler.cost import Machine, fills
from dslc.compiler.ir.graph import Graph, Node, Value
from dslc.compiler.ir.program import Program
from dslc.compiler.passes.plan.schedule import contents
from dslc.compiler.passes.plan.stream_timeline import Need, need, waiting
from dslc.compiler.passes.plan.work_ranges import Range

#: The fraction of all computed bytes that an extra wait must free.
_FREED: Final = 0.001


def followed(graph: Graph, order: tuple[Node, ...]) -> dict[Node, tuple[Node, ...]]:
    """For each node that is not a view, the nodes that it must follow, each once: the producers of its operands and, if
    its result is a state's new value, the earlier readers of the old value."""
    content = contents(graph)
    states = {content[value]: source.value for source, value in graph.updates}
    readers: dict[Value, list[Node]] = {source.value: [] for source, _ in graph.updates}
    follows: dict[Node, tuple[Node, ...]] = {}
    for node in order:
        if node.op.view:
            continue
        others = [content[v].producer for v in node.inputs]
        others += [reader for v in node.outputs if v in states for reader in readers[states[v]]]
        follows[node] = tuple(dict.fromkeys(n for n in others if isinstance(n, Node) and n is not node))
        for read in dict.fromkeys(content[v] for v in node.inputs):
            if read in readers:
                readers[read].append(node)
    return follows


@dataclass(frozen=True)
class StreamTables:
    """Tables of the nodes that are not views, in the order of the schedule. ``ranges``: of work, if the nodes run one
    after another."""

    program: Program
    machine: Machine
    ranges: Sequence[Range]

    @cached_property
    def follows(self) -> dict[Node, tuple[Node, ...]]:
        """The nodes that each must follow. A node that fills the machine follows the one before it that does."""
        follows = followed(self.program.graph, self._order)
        for before, node in pairwise([node for node in follows if fills(node, self.machine)]):
            follows[node] = tuple(dict.fromkeys((*follows[node], before)))
        return follows

    @cached_property
    def needs(self) -> dict[Node, Need]:
        """The time of each."""
        return {node: need(node, self.machine) for node in self.follows}

    @cached_property
    def wait(self) -> float:
        """Seconds of a wait for a node of another stream."""
        return waiting(self.machine)

    @cached_property
    def freed(self) -> dict[Node, int]:
        """Bytes free after each: those of the ranges that it is the last to use, in order."""
        freed, last = dict.fromkeys(self.follows, 0), [*accumulate(self._order, _last)]
        for each in self.ranges:
            if each.end < len(self._order):
                freed[last[each.end]] += each.size
        return freed

    @cached_property
    def alive(self) -> dict[Node, int]:
        """Bytes alive while each runs, if nodes run one after another."""
        more = [0] * (len(self._order) + 2)  # from one time to the next
        for each in self.ranges:
            more[each.start] += each.size
            more[each.end + 1] -= each.size
        return {node: bytes for node, bytes in zip(self._order, accumulate(more)) if node in self.follows}

    @property
    def peak(self) -> int:
        """The most bytes alive if nodes run one after another."""
        return max(self.alive.values(), default=0)

    @cached_property
    def enough(self) -> float:
        """More freed bytes than this justify an extra wait."""
        return _FREED * sum(self.freed.values())

    @property
    def _order(self) -> tuple[Node, ...]:
        assert self.program.schedule is not None, "streams are assigned on a schedule"
        return self.program.schedule


def _last(before: Node, node: Node) -> Node:
    """The last node that is not a view."""
    return before if node.op.view else node
