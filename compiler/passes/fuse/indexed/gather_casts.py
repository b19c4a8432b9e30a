"""Casts the rows that a model reads from a table, not the whole table.

Before::

    %1 = cast %table {dtype=bf16} : bf16[100000, 64]  # rows forward
    %2 = gather_rows %1, %ids : bf16[2048, 64]  # rows forward

After::

    %1 = gather_rows %table, %ids {dtype=bf16} : bf16[2048, 64]  # rows forward

A table whose cast is read by other nodes, too, such as the product of a tied head, stays as it is; so does a table of
which a program reads as many elements as it has. Each element is the same. GPU only. Linear in nodes and reads.
"""

from __future__ import annotations

from math import prod
from typing import Final

from dslc.compiler.ir.graph import Graph, Node, Value
from dslc.compiler.ir.types import DType
from dslc.compiler.ops.attrs import dtype_attr
from dslc.compiler.passes.rebuild import reading

_CAST: Final = {DType.F32: (DType.BF16, DType.F16)}


def gather_casts(graph: Graph) -> Graph:
    """The graph with such nodes. Deterministic and idempotent."""
    readers, roots = graph.readers(), set(graph.roots)

    def late(node: Node) -> bool:
        """Whether a node is a cast that its readers may do."""
        if node.op.name != "cast" or dtype_attr(node.attrs) not in _CAST.get(node.input_types[0].dtype, ()):
            return False
        reading = readers.get(node.out, ())
        rows = all(r.op.name == "gather_rows" and r.inputs[0] is node.out and "dtype" not in r.attrs for r in reading)
        read = sum(prod(r.types[0].ints) for r in reading)
        return node.out not in roots and rows and 0 < read < prod(node.types[0].ints)

    casts = {node.out: node for node in graph.nodes if late(node)}
    instead: dict[Value, Value] = {}
    for node in graph.nodes:
        made = casts.get(node.inputs[0]) if node.op.name == "gather_rows" else None
        if made is not None:
            attrs = {**node.attrs, "dtype": dtype_attr(made.attrs)}
            instead[node.out] = node.replaced(inputs=(made.inputs[0], node.inputs[1]), attrs=attrs).out
    return reading(graph, instead)
