"""A cast to a narrower float comes before ops that only move elements: the moves take half the bytes.

Before::

    %2 = pad %1 {high=(0, 0, 3), ...} : f32[4, 249, 252]
    %3 = cast %2 {dtype=bf16} : bf16[4, 249, 252]

After::

    %2 = cast %1 {dtype=bf16} : bf16[4, 249, 249]
    %3 = pad %2 {high=(0, 0, 3), ...} : bf16[4, 249, 252]

Part of ``simplify``. A move stays if others read its wide values, and so does a slice of less than half of a tensor:
fewer elements are then cast after it.
"""

from __future__ import annotations

from math import prod
from typing import Final

from dslc.compiler.ir.graph import Graph, Node, Value
from dslc.compiler.ir.op import Builder
from dslc.compiler.ops.attrs import number_attr
from dslc.compiler.passes.lower.simplify.lone_readers import join_lone_readers

_MOVES: Final = ("reshape", "transpose", "slice", "roll", "flip")


def early_casts(graph: Graph) -> Graph:
    """The graph with such casts; the same object if there are none. Linear in nodes, for each move in a row."""
    while (earlier := join_lone_readers(graph, _move, _cast_early)) is not graph:
        graph = earlier
    return graph


def _move(node: Node) -> Node | None:
    """The move that a narrowing cast reads; None for other nodes."""
    if node.op.name != "cast" or not isinstance(made := node.inputs[0].producer, Node):
        return None
    source, to = node.input_types[0].dtype, node.types[0].dtype
    if not (source.is_float and to.is_float and to.itemsize < source.itemsize):
        return None
    moves = made.op.name in _MOVES or (made.op.name == "pad" and not number_attr(made.attrs, "value"))
    return made if moves and prod(made.input_types[0].ints) <= 2 * prod(made.types[0].ints) else None


def _cast_early(move: Node, cast: Node) -> Value:
    at = Builder().at(cast, cast.phase)
    return at(move.op, at(cast.op, move.inputs[0], **cast.attrs), **move.attrs)
