"""A product whose result is only read transposed: its factors change places.

Before::

    %2 = matmul %0, %1 {transpose_a=True, transpose_b=False} : f32[768, 50257]
    %3 = transpose %2 {perm=(1, 0)} : f32[50257, 768]

After::

    %2 = matmul %1, %0 {transpose_a=True, transpose_b=False} : f32[50257, 768]

This is the gradient of a tied embedding. Part of ``simplify``; the same numbers are summed, and the provider decides
whether it adds them in the same order.
"""

from __future__ import annotations

from dslc.compiler.ir.graph import Graph, Node, Value, made_by
from dslc.compiler.ir.op import Builder
from dslc.compiler.passes.lower.simplify.lone_readers import join_lone_readers


def turned_products(graph: Graph) -> Graph:
    """The graph without such transposes; the same object if there are none. Linear in nodes."""
    return join_lone_readers(graph, _turned, lambda product, transpose: _other(product))


def _turned(node: Node) -> Node | None:
    """The product of which a node swaps the last two axes; None for other nodes."""
    made = made_by(node.inputs[0], "matmul") if node.op.name == "transpose" else None
    rank = node.types[0].rank
    return made if made is not None and node.attrs["perm"] == (*range(rank - 2), rank - 1, rank - 2) else None


def _other(product: Node) -> Value:
    """The transpose of a product."""
    a, b = product.inputs
    flags = {"transpose_a": not product.attrs["transpose_b"], "transpose_b": not product.attrs["transpose_a"]}
    return Builder().at(product, product.phase)(product.op, b, a, **flags)
