"""How each dropped value comes back: once, in memory of its own, or inside the kernels that read it; and the graph
that does so.

Before, h kept from the forward to the backward pass::

    %2 = tanh %1 : f32[64, 10]  # h forward
    %9 = matmul %2, %8 {...} : f32[10, 5]  # head backward
    %10 = mul %2, %2 : f32[64, 10]  # h backward

After, for a reader that wants it in memory, and for one that does not::

    %9 = tanh %1 : f32[64, 10]  # h mirror
    %10 = matmul %9, %8 {...} : f32[10, 5]  # head backward
    %11 = tanh %1 : f32[64, 10]  # h mirror
    %12 = mul %11, %11 : f32[64, 10]  # h backward

Fusion then makes one kernel of the last two. What lies between a value and memory is computed anew for each value, so
that it becomes one kernel with it; ``Phase.MIRROR`` keeps the copies apart from the forward pass.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from dslc.compiler.cost import Machine, operations
from dslc.compiler.ir.graph import Graph, Node, Phase, Value
from dslc.compiler.passes.mirror_rule import Choice, Facts, is_inline


@dataclass(frozen=True, slots=True)
class Recipe:
    """``nodes``: what computes the value, in order; ``sources``: the values in memory that these read.

    ``in_memory``: some readers want it there. ``inline``: those that compute it for themselves.
    """

    value: Value
    nodes: tuple[Node, ...]
    sources: tuple[Value, ...]
    in_memory: tuple[Node, ...]
    inline: tuple[Node, ...]

    @property
    def only_views(self) -> bool:
        """Whether the value lies in memory anyway, and nothing has to be computed."""
        return all(n.op.view for n in self.nodes)

    def bytes_moved(self, facts: Facts) -> int:
        """Bytes moved more than by keeping the value: its sources are read for each time that it is made, and one
        that is made inside its reader's kernel is not read there."""
        size = facts.bytes
        read = sum(size[v] for v in self.sources if size[v] > facts.small)
        made = (read + size[self.value]) if self.in_memory else 0
        return made + (max(0, read - 2 * size[self.value]) if self.inline else 0)

    def seconds(self, facts: Facts, machine: Machine) -> float:
        """Modelled time that it takes more than keeping the value."""
        if self.only_views:
            return 0.0
        arithmetic = sum(operations(n) for n in self.nodes if not n.op.view) / machine.scalar
        moving = self.bytes_moved(facts) / machine.bandwidth
        if not self.in_memory:  # part of kernels that wait for memory; on a CPU, arithmetic is what they wait for
            return moving + (arithmetic if machine.scalar < machine.bandwidth else 0.0)
        return machine.launch + max(moving, arithmetic)


def recipes(facts: Facts, choice: Choice) -> dict[Value, Recipe]:
    """The recipe of each dropped value that a later phase reads, in the order of the forward pass."""
    found: dict[Value, Recipe] = {}
    for node in facts.forward:
        for value in node.outputs:
            if value in choice.dropped and value in facts.wanted:
                found[value] = _recipe(facts, choice, found, value)
    return found


def _recipe(facts: Facts, choice: Choice, known: Mapping[Value, Recipe], value: Value) -> Recipe:
    nodes, sources = _closure(choice, known, value)
    wide = sum(facts.bytes[v] for v in sources if facts.bytes[v] > facts.small) > 2 * facts.bytes[value]
    readers = facts.wanted[value]
    inline = () if wide else tuple(r for r in readers if is_inline(r, value))
    in_memory = tuple(r for r in readers if r not in inline)
    return Recipe(value, tuple(nodes), tuple(sources), in_memory, inline)


def _closure(choice: Choice, known: Mapping[Value, Recipe], value: Value) -> tuple[list[Node], list[Value]]:
    """The nodes between memory and a dropped value, in order, and what they read there."""
    nodes: list[Node] = []
    sources: dict[Value, None] = {}
    assert isinstance(value.producer, Node)
    seen = {value.producer}
    stack = [(value.producer, iter(value.producer.inputs))]
    while stack:
        node, inputs = stack[-1]
        for read in inputs:
            if read not in choice.dropped or (read in known and known[read].in_memory):
                sources[read] = None
            elif isinstance(read.producer, Node) and read.producer not in seen:
                seen.add(read.producer)
                stack.append((read.producer, iter(read.producer.inputs)))
                break
        else:
            nodes.append(node)
            stack.pop()
    return nodes, list(sources)


def with_copies(graph: Graph, known: Mapping[Value, Recipe]) -> Graph:
    """The graph in which later phases read the copies. Linear in nodes and those of the recipes."""
    copies: dict[Value, Value] = {}  # in memory
    new: dict[Value, Value] = {}
    for value, recipe in known.items():
        if recipe.in_memory:
            copies[value] = _made(recipe, copies)
    inline: dict[Value, Value] = {}
    for node in graph.nodes:
        if node.phase is Phase.FORWARD:
            continue
        inputs = []
        for value in node.inputs:
            found = known.get(value)
            if found is None:
                inputs.append(new.get(value, value))
            elif node in found.inline:
                if value not in inline:
                    inline[value] = _made(found, copies)
                inputs.append(inline[value])
            else:
                inputs.append(copies[value])
        fresh = node.with_inputs(tuple(inputs))
        if fresh is not node:
            new.update(zip(node.outputs, fresh.outputs))
    return graph.replace_values(new)


def _made(recipe: Recipe, copies: Mapping[Value, Value]) -> Value:
    """The recipe's value computed once more."""
    own: dict[Value, Value] = {}
    for node in recipe.nodes:
        inputs = tuple(own.get(v) or copies.get(v, v) for v in node.inputs)
        again = Node(node.op, inputs, node.types, node.attrs, name=node.name, span=node.span, phase=Phase.MIRROR)
        own.update(zip(node.outputs, again.outputs))
    return own[recipe.value]
