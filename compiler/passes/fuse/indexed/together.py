"""Puts gathers from several tables into one node, scatters to them, and orders of their ids, to save launches.

Before::

    %1 = gather_rows %users, %user : f32[2048, 64]  # user forward
    %2 = gather_rows %items, %item : f32[2048, 32]  # item forward

After::

    %1, %2 = together %users, %user, %items, %item {member="gather_rows", ...} : f32[2048, 64], f32[2048, 32]

Nodes are put together if they have the same op, phase and depth, the length of the longest path to them. So no path
leads from one to another, even through other nodes that are put together. Large results stay separate: they are worth a
launch, and their memory is needed later or freed sooner. Results keep their bits. GPU only. Linear in nodes and reads.
"""

from __future__ import annotations

from collections.abc import Hashable
from math import prod
from typing import Final

from dslc.compiler.ir.graph import Graph, Node, Value
from dslc.compiler.ir.index_limits import I32_ELEMENTS
from dslc.compiler.ops.compound.together import MAX_MEMBERS, grouped
from dslc.compiler.ops.index.ordered import MANY_ELEMENTS
from dslc.compiler.passes.rebuild import chunks, reading

MAX_BYTES: Final = 1 << 21  # of a result: written in about the time of a launch
#: Ids of an order, each of which has a thread: those of a large GPU, 2,048 on each of 132 multiprocessors. The launches
#: of a sort depend on one another, so a small sort leaves most of the GPU idle.
MAX_ORDERED: Final = 1 << 18


def together(graph: Graph) -> Graph:
    """The graph with such nodes. Deterministic and idempotent."""
    depth: dict[Node, int] = {}
    found: dict[Hashable, list[Node]] = {}
    for node in graph.nodes:
        made = [v.producer for v in node.inputs]
        depth[node] = 1 + max((depth[each] for each in made if isinstance(each, Node)), default=0)
        if _fits(node):
            found.setdefault((node.op.name, node.phase, depth[node]), []).append(node)
    instead: dict[Value, Value] = {}
    for nodes in chunks(found.values(), MAX_MEMBERS):
        if len(nodes) > 1:
            instead.update(zip((value for node in nodes for value in node.outputs), grouped(nodes).outputs))
    return reading(graph, instead)


def _fits(node: Node) -> bool:
    if node.op.name == "row_order":
        most = max(each.ints[0] for each in node.types)
        return 0 < prod(node.input_types[0].ints) <= MAX_ORDERED and most < I32_ELEMENTS - 1
    if node.op.name not in ("gather_rows", "scatter_rows_add") or not 0 < node.types[0].bytes <= MAX_BYTES:
        return False
    rows, ids = node.input_types
    count, itemsize = prod(ids.ints), node.types[0].dtype.itemsize
    if node.op.name == "gather_rows":
        return 0 < prod(node.types[0].ints) < I32_ELEMENTS and itemsize <= 8
    return 0 < count <= MANY_ELEMENTS and rows.dtype.computed.itemsize >= 4
