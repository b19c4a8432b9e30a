"""A cast to a wider float comes after ops that only move elements, next to what reads the wide values, whose kernel
then casts them: the moves take half the bytes.

Before::

    %2 = cast %1 {dtype=f32} : f32[8, 512, 512]
    %3 = gather %2, %places {axis=2} : f32[8, 512, 512]
    %4 = reshape %3 {shape=(2, 4, 512, 512)} : f32[2, 4, 512, 512]

After::

    %2 = gather %1, %places {axis=2} : bf16[8, 512, 512]
    %3 = reshape %2 {shape=(2, 4, 512, 512)} : bf16[2, 4, 512, 512]
    %4 = cast %3 {dtype=f32} : f32[2, 4, 512, 512]

Part of ``simplify``. A cast of what a pointwise op computes stays, as that op's kernel writes the wide values, and so
does one that others read. A transpose moves only before pointwise ops: products read a transposed operand in place.
"""

from __future__ import annotations

from typing import Final

from dslc.compiler.ir.graph import Graph, Node, Value, made_by
from dslc.compiler.ir.op import Builder, Pointwise
from dslc.compiler.ops.attrs import number_attr
from dslc.compiler.passes.lower.simplify.lone_readers import join_lone_readers
from dslc.compiler.passes.lower.simplify.simplify_rules import is_pointwise, widens

#: Ops whose results are elements of their first input.
_MOVES: Final = ("reshape", "slice", "gather", "gather_rows", "take", "roll", "flip")


def late_casts(graph: Graph) -> Graph:
    """The graph with such casts; the same object if there are none. Linear in nodes, for each move in a row."""
    while (later := _after_next_move(graph)) is not graph:
        graph = later
    return graph


def _after_next_move(graph: Graph) -> Graph:
    readers = graph.readers()

    def early(node: Node) -> Node | None:
        """The cast that a move reads; None for other nodes."""
        made = made_by(node.inputs[0], "cast") if node.inputs else None
        if made is None or not widens(made) or is_pointwise(made.inputs[0]):
            return None
        if node.op.name == "transpose":
            return made if all(isinstance(r.op, Pointwise) for r in readers.get(node.out, ())) else None
        return (
            made if node.op.name in _MOVES or (node.op.name == "pad" and not number_attr(node.attrs, "value")) else None
        )

    return join_lone_readers(graph, early, _cast_late)


def _cast_late(cast: Node, move: Node) -> Value:
    at = Builder().at(move, move.phase)
    return at(cast.op, at(move.op, cast.inputs[0], *move.inputs[1:], **move.attrs), **cast.attrs)
