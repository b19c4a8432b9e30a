"""What a proposal would come to, without making it: bytes alive level by level, and modelled seconds.

A node's level is the longest way from an input; a value is alive from its producer's level to that of its last reader.
That is the default order of the schedule with all nodes of a level at once. A pointwise value whose readers are
pointwise and of its phase will be inside a fused kernel, and counts as nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from dslc.compiler.cost import Machine
from dslc.compiler.ir.graph import Node, Phase, Value
from dslc.compiler.ir.op import Pointwise
from dslc.compiler.passes.mirror_recipes import Recipe
from dslc.compiler.passes.mirror_rule import Choice, Facts
from dslc.compiler.passes.schedule import contents, levels


@dataclass(frozen=True, slots=True)
class Estimate:
    """Most bytes alive at once, and the seconds that computing again takes."""

    peak: int
    seconds: float


class Estimator:
    """Levels and lifetimes of a graph as it stands, against which proposals are held."""

    def __init__(self, facts: Facts, machine: Machine) -> None:
        self.facts = facts
        self.machine = machine
        graph = facts.graph
        self.level = self._when()
        self.content = contents(graph)
        self.top = max(self.level.values(), default=0) + 1
        self.forward_end: dict[Value, int] = {}
        self.end: dict[Value, int] = {}
        for node in graph.nodes:
            at = self.level[node]
            for value in node.inputs:
                content = self.content[value]
                self.end[content] = max(self.end.get(content, 0), at)
                if node.phase is Phase.FORWARD:
                    self.forward_end[content] = max(self.forward_end.get(content, 0), at)
        self.values = [v for n in graph.nodes if not n.op.view for v in n.outputs if self._in_memory(n, v)]

    def _when(self) -> dict[Node, int]:
        """The level of each node; of one inside a later node's kernel, that node's."""
        level = levels(self.facts.graph)
        for node in reversed(self.facts.graph.nodes):
            if node.phase is not Phase.FORWARD and not any(self._in_memory(node, v) for v in node.outputs):
                level[node] = min(
                    (level[r] for v in node.outputs for r in self.facts.readers.get(v, ())), default=level[node]
                )
        return level

    def _in_memory(self, node: Node, value: Value) -> bool:
        if value in self.facts.kept_anyway:
            return False
        readers = self.facts.readers.get(value, ())
        return not isinstance(node.op, Pointwise) or any(
            r.phase is not node.phase or not isinstance(r.op, Pointwise) for r in readers
        )

    def of(self, choice: Choice, known: Mapping[Value, Recipe]) -> Estimate:
        """The proposal's estimate."""
        ends = self._ends(known)
        change = [0] * (self.top + 2)
        for value in self.values:
            made = value.producer
            assert isinstance(made, Node)
            start, size = self.level[made], self.facts.bytes[value]
            if value in choice.dropped:
                end = max(start, self.forward_end.get(value, 0))
            else:
                end = max(start, self.end.get(value, 0), ends.get(value, (0, 0))[1])
            change[start] += size
            change[end + 1] -= size
        for value, recipe in known.items():
            if recipe.in_memory and not recipe.only_views:
                back, last = ends[value]
                change[back] += self.facts.bytes[value]
                change[last + 1] -= self.facts.bytes[value]
        alive = most = 0
        for step in change:
            alive += step
            most = max(most, alive)
        return Estimate(most, sum(r.seconds(self.facts, self.machine) for r in known.values()))

    def _ends(self, known: Mapping[Value, Recipe]) -> dict[Value, tuple[int, int]]:
        """Of values that come back to memory: the levels of their first and last readers. Of what recipes read: (0, the
        level until which it must be there)."""
        found: dict[Value, tuple[int, int]] = {}
        for value, recipe in reversed(list(known.items())):
            first, last = found.get(value, (self.top, 0))
            until = max([self.level[r] for r in recipe.inline], default=0)
            if recipe.in_memory:
                at = [self.level[r] for r in recipe.in_memory]
                first, last = min([*at, first]), max([*at, last])
                found[value] = (first, last)
                until = max(until, last if recipe.only_views else first)
            for source in recipe.sources:
                if source in known:
                    begin, end = found.get(source, (self.top, 0))
                    found[source] = (min(begin, until), max(end, until))
                else:
                    content = self.content[source]
                    found[content] = (0, max(found.get(content, (0, 0))[1], until))
        return found
