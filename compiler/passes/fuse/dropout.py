"""Fuses dropout into neighbouring pointwise nodes and reductions, which recompute the mask instead of storing it.

Before::

    %3 = fused %x, %bias {gelu(x + bias)} : bf16[64, 4096]  # act forward
    %4 = dropout %3, %seed, %step, %row {p=0.1, ...} : bf16[64, 4096]  # drop forward
    %5 = add %4, %r : bf16[64, 4096]  # sum forward

After::

    %5 = fused %x, %bias, %seed, %step, %row, %r {dropout(gelu(x + bias)) + r} : bf16[64, 4096]  # sum forward

The producer of dropout's input is fused if dropout is its only consumer; so is dropout into its result's only consumer,
a pointwise node or a reduction as large as the result, with or without extra outputs::

    %6 = dropout %dy, %seed, %step, %row {p=0.1, ...} : bf16[64, 4096]  # drop backward
    %7, %8 = fused_sums %x, %bias, %6 {gelu_grad(x + bias, %6), ..., kept=(...)} : bf16[4096], bf16[64, 4096]

    %7, %8 = fused_sums %x, %bias, %dy, %seed, %step, %row {gelu_grad(x + bias, dropout(dy)), ..., kept=(...)}

So a gradient and its reduction for the bias take one pass over memory. Results keep their bits. GPU only; linear in
nodes and reads.
"""

from __future__ import annotations

from collections.abc import Mapping

from dslc.compiler.ir.graph import Graph, Node, Value
from dslc.compiler.ops.fused import MAX_STEPS
from dslc.compiler.ops.fused_sums import full_shape
from dslc.compiler.passes.fuse.body import body_of, draws, has_neighbours, is_pointwise
from dslc.compiler.passes.fuse.rebuild import inlined


def dropout(graph: Graph) -> Graph:
    """The graph in which no dropout is left that can be fused. Idempotent."""
    if not any(draws(n) for n in graph.nodes):
        return graph
    readers, roots = graph.readers(), set(graph.roots)

    def chosen(node: Node, new: Mapping[Value, Value]) -> dict[Value, Node]:
        taken: dict[Value, Node] = {}
        for value in dict.fromkeys(node.inputs):
            made = new.get(value, value).producer  # it may have taken its own inputs
            if isinstance(made, Node) and value not in roots and readers[value] == [node]:
                steps = sum(len(body_of(n)) for n in (node, made, *taken.values()))
                if _may_fuse(made, node, value) and steps <= MAX_STEPS:
                    taken[value] = made
        return taken

    return inlined(graph, chosen)


def _has_body(node: Node) -> bool:
    """Whether a node is pointwise, possibly with random draws."""
    return node.op.name != "fused_sums" and (draws(node) or is_pointwise(node))


def _may_fuse(made: Node, node: Node, value: Value) -> bool:
    """Whether ``made``, the producer of ``value``, is fused into ``node``: one of them is or contains a dropout."""
    if not _has_body(made) or len(made.outputs) > 1:
        return False
    if node.op.name == "fused_sums":
        return (draws(made) or draws(node)) and "finish" not in node.attrs and _is_summed(value, made, node)
    if not _has_body(node) or len(node.outputs) > 1:
        return False
    first = node.op.name != "dropout" or value is node.inputs[0]  # an operand, not one of dropout's scalars
    return first and (draws(made) or draws(node)) and value.type.shape == node.types[0].shape


def _is_summed(value: Value, made: Node, sums: Node) -> bool:
    """Whether the value has the shape of the summed tensor and another operand has it, too: that operand's layout
    decides the order of the sums."""
    read = {v.type.shape for v in (*sums.inputs, *made.inputs) if v is not value}
    return value.type.ints == full_shape(sums) and value.type.shape in read and has_neighbours(value)
