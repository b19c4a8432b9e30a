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

from dslc.compiler.ir.graph import Graph, Node, Value, made_by
from dslc.compiler.ir.op import Builder
from dslc.compiler.passes.lower.simplify.lone_readers import join_lone_readers
from dslc.compiler.passes.lower.simplify.simplify_rules import is_pointwise, widens


def late_casts(graph: Graph) -> Graph:
    """The graph with such casts; the same object if there are none. Linear in nodes."""
    return join_lone_readers(graph, _early, _cast_late)


def _early(node: Node) -> Node | None:
    """The cast that a reshape reads; None for other nodes."""
    made = made_by(node.inputs[0], "cast") if node.op.name == "reshape" else None
    return made if made is not None and widens(made) and not is_pointwise(made.inputs[0]) else None


def _cast_late(cast: Node, reshape: Node) -> Value:
    at = Builder().at(reshape, reshape.phase)
    return at(cast.op, at(reshape.op, cast.inputs[0], **reshape.attrs), **cast.attrs)
