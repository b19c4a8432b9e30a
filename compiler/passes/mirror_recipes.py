"""How each dropped value comes back: in memory of its own, where a reader wants it there, else inside the kernels that
read it; and the graph that does so.

Before, h kept from the forward to the backward pass::

    %2 = tanh %1 : f32[64, 10]  # h forward
    %9 = matmul %2, %8 {...} : f32[10, 5]  # head backward

After::

    %2 = tanh %1 : f32[64, 10]  # h forward
    %9 = tanh %1 : f32[64, 10]  # h mirror
    %10 = matmul %9, %8 {...} : f32[10, 5]  # head backward

Were ``%10`` a pointwise node, fusion would make one kernel of both. What lies between a value and memory is computed
anew for each value, so that it becomes one kernel with it; ``Phase.MIRROR`` keeps the copies apart from the forward
pass.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from dslc.compiler.cost import Machine, operations
from dslc.compiler.ir.graph import Graph, Node, Phase, Value
from dslc.compiler.ir.op import Pointwise
from dslc.compiler.passes.mirror_rule import Choice, Facts, is_inline


@dataclass(frozen=True, slots=True)
class Recipe:
    """``nodes``: what computes the value, in order; ``sources``: the values in memory that these read; ``in_memory``:
    the nodes of later phases that want it there, ``inline``: those that compute it for themselves; ``beside``: a kernel
    of the backward pass that reads the sources anyhow may write it (``beside.py``)."""

    value: Value
    nodes: tuple[Node, ...]
    sources: tuple[Value, ...]
    in_memory: tuple[Node, ...]
    inline: tuple[Node, ...]
    beside: bool

    @property
    def only_views(self) -> bool:
        """Whether the value lies in memory anyway, and nothing has to be computed."""
        return all(n.op.view for n in self.nodes)

    def seconds(self, facts: Facts, machine: Machine) -> float:
        """Modelled time that it takes more than keeping the value."""
        if self.only_views:
            return 0.0
        arithmetic = sum(operations(n) for n in self.nodes if not n.op.view) / machine.scalar
        read, size = _large(facts, self.sources), facts.bytes[self.value]
        spent = 0.0
        if self.in_memory:
            alone = machine.launch + max((read + size) / machine.bandwidth, arithmetic)
            spent += size / machine.bandwidth if self.beside else alone
        if self.inline:  # kernels that wait for memory read the sources in place of the value; on a CPU they compute
            spent += max(0, read - size) / machine.bandwidth
            spent += arithmetic if machine.scalar < machine.bandwidth else 0.0
        return spent


def _large(facts: Facts, values: Sequence[Value]) -> int:
    """Bytes of the values that count."""
    return sum(facts.bytes[v] for v in values if facts.bytes[v] > facts.small)


def recipes(facts: Facts, choice: Choice) -> dict[Value, Recipe]:
    """The recipe of each dropped value that a later phase reads, in the order of the forward pass."""
    found: dict[Value, Recipe] = {}
    for node in facts.forward:
        for value in node.outputs:
            if value in choice.dropped and value in facts.wanted:
                found[value] = _recipe(facts, choice, found, value)
    for source in {v for recipe in found.values() for v in recipe.sources if v in found}:
        found[source] = replace(found[source], beside=False)  # wanted before that kernel runs
    return found


def _recipe(facts: Facts, choice: Choice, known: Mapping[Value, Recipe], value: Value) -> Recipe:
    nodes, sources = _closure(choice, known, value)
    readers = facts.wanted[value]
    one_kernel = all(isinstance(n.op, Pointwise) for n in nodes)
    inline: tuple[Node, ...] = ()
    if one_kernel and _large(facts, sources) <= 2 * facts.bytes[value]:
        inline = tuple(r for r in readers if is_inline(r, value))
    if len(inline) < len(readers) and not facts.beside:
        inline = ()  # it lies in memory anyway
    in_memory = tuple(r for r in readers if r not in inline)
    beside = facts.beside and one_kernel and (bool(inline) or all(map(facts.read_by_elements, sources)))
    return Recipe(value, tuple(nodes), tuple(sources), in_memory, inline, beside)


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
    inline: dict[Value, Value] = {}
    for value, recipe in known.items():
        if recipe.inline:
            inline[value] = _made(recipe, copies)
        if recipe.in_memory:
            copies[value] = _made(recipe, copies)
    new: dict[Value, Value] = {}
    for node in graph.nodes:
        if node.phase is Phase.FORWARD:
            continue
        inputs = []
        for value in node.inputs:
            recipe_of = known.get(value)
            if recipe_of is None:
                inputs.append(new.get(value, value))
            else:
                inputs.append(inline[value] if node in recipe_of.inline else copies[value])
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
