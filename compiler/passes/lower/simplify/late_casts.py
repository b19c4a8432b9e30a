"""A cast to a wider float comes after a reshape, next to what reads the wide values, whose kernel then casts them.

Before::

    %2 = cast %1 {dtype=f32} : f32[4, 1, 24, 64]
    %3 = reshape %2 {shape=(4, 24, 64)} : f32[4, 24, 64]

After::

    %2 = reshape %1 {shape=(4, 24, 64)} : bf16[4, 24, 64]
    %3 = cast %2 {dtype=f32} : f32[4, 24, 64]

Part of ``simplify``. A cast of what a pointwise op computes stays, as that op's kernel writes the wide values, and so
does one that others read.
"""

from __future__ import annotations

from collections import Counter

from dslc.compiler.ir.graph import Graph, Node, Value, made_by
from dslc.compiler.ir.op import Builder
from dslc.compiler.passes.lower.simplify.simplify_rules import is_pointwise, widens


def late_casts(graph: Graph) -> Graph:
    """The graph with such casts; the same object if there are none. Linear in nodes."""
    found = [node for node in graph.nodes if _early(node) is not None]
    reads = Counter(value for node in graph.nodes for value in dict.fromkeys(node.inputs)) if found else Counter()
    reads.update(graph.roots)
    alone = {node for node in found if reads[node.inputs[0]] == 1}
    if not alone:
        return graph
    old = iter(graph.nodes)

    def rule(node: Node) -> tuple[Value, ...] | None:
        cast = _early(node) if next(old) in alone else None
        if cast is None:
            return None
        at = Builder().at(node, node.phase)
        return (at(cast.op, at(node.op, cast.inputs[0], **node.attrs), **cast.attrs),)

    return graph.rewrite(rule)


def _early(node: Node) -> Node | None:
    """The cast that a reshape reads; None for other nodes."""
    made = made_by(node.inputs[0], "cast") if node.op.name == "reshape" else None
    return made if made is not None and widens(made) and not is_pointwise(made.inputs[0]) else None
