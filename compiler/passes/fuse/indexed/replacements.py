"""Makes one node of a scatter that replaces elements or adds to a tensor, if kernels take lines of any length along any
axis.

Before::

    %1 = scatter_reduce %none, %places, %ids {axis=0, how=max} : i32[1000, 64]  # the last place of each id, or -1
    %2 = gather %src, max(%1, 0) : f32[1000, 64]
    %3 = where %1 >= 0, %2, %x : f32[1000, 64]

After::

    %3 = scatter_last %src, %ids, %x {axis=0} : f32[1000, 64]

The rules, those of gradients among them, are in ``last_indices.py``. Results keep their bits.

Before::

    %1 = scatter_rows_add %rows, %ids {count=50257} : f32[50257, 768]
    %2 = add %x, %1 : f32[50257, 768]

After::

    %2 = scatter_rows_add %rows, %ids, %x {count=50257} : f32[50257, 768]

The result may take the place of ``x``, so the kernels do not pass three more times over a table that is large compared
with the rows. Rows with equal ids are added to ``x`` one after the other; before, they were added to each other first.
"""

from __future__ import annotations

import dataclasses
from collections import Counter

from dslc.compiler.ir.graph import Graph, Node, Value, made_by
from dslc.compiler.ir.op import Builder
from dslc.compiler.ir.types import DType
from dslc.compiler.passes.fuse.indexed.last_indices import last_indices


def replacements(graph: Graph) -> Graph:
    """The graph with such nodes; the same object if it has no such scatter. Linear in nodes."""
    changed = _added(last_indices(graph, any_axis=True))
    return graph if changed is graph else dataclasses.replace(changed, nodes=changed.live_nodes())


def _added(graph: Graph) -> Graph:
    """The graph without sums of a tensor and rows that are added to zeros."""
    if not any(node.op.name == "scatter_rows_add" for node in graph.nodes):
        return graph
    reads = Counter(value for node in graph.nodes for value in node.inputs)
    reads.update(graph.roots)
    alone = {
        value
        for value, count in reads.items()
        if count == 1 and made_by(value, "scatter_rows_add") is not None and value.type.dtype in (DType.F32, DType.F64)
    }
    old = iter(graph.nodes)
    return graph.rewrite(lambda node: _sum(node, next(old), alone))


def _sum(node: Node, old: Node, alone: set[Value]) -> tuple[Value, ...] | None:
    """What replaces a sum of a tensor and rows that nothing else reads; ``old``: the node with its former inputs."""
    if node.op.name != "add" or any(value.type != node.types[0] for value in node.inputs):
        return None
    for was, scatter, x in zip(old.inputs, node.inputs, reversed(node.inputs)):
        made = made_by(scatter, "scatter_rows_add")
        if was in alone and made is not None and len(made.inputs) == 2:
            return (Builder().at(node, node.phase)(made.op, *made.inputs, x, **made.attrs),)
    return None
