"""Recomputes each dropped value: into memory if a reader needs it there, else inside the kernels that read it.

Before, h is kept from the forward to the backward pass::

    %2 = tanh %1 : f32[64, 10]  # h forward
    %9 = matmul %2, %8 {...} : f32[10, 5]  # head backward

After::

    %2 = tanh %1 : f32[64, 10]  # h forward
    %9 = tanh %1 : f32[64, 10]  # h mirror
    %10 = matmul %9, %8 {...} : f32[10, 5]  # head backward

If ``%10`` were a pointwise node, fusion would make one kernel of both. Each value gets its own copies of the nodes
between it and memory, so they become one kernel with it. ``Phase.MIRROR`` keeps the copies apart from the forward pass.
"""

from __future__ import annotations

from collections.abc import Mapping

from dslc.compiler.ir.graph import Graph, Phase, Value
from dslc.compiler.passes.mirror.recipes import Recipe


def with_copies(graph: Graph, known: Mapping[Value, Recipe]) -> Graph:
    """The graph in which later phases read the copies. Linear in nodes, including those of the recipes."""
    copies: dict[Value, Value] = {}  # copies in memory
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
    """The recipe's value, recomputed by new nodes."""
    own: dict[Value, Value] = {}
    for node in recipe.nodes:
        inputs = tuple(own.get(v) or copies.get(v, v) for v in node.inputs)
        copy = node.replaced(inputs=inputs, phase=Phase.MIRROR, origins=())
        own.update(zip(node.outputs, copy.outputs))
    return own[recipe.value]
