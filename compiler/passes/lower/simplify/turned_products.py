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

from collections import Counter

from dslc.compiler.ir.graph import Graph, Node, Value, made_by
from dslc.compiler.ir.op import Builder


def turned_products(graph: Graph) -> Graph:
    """The graph without such transposes; the same object if there are none. Linear in nodes."""
    found = [node for node in graph.nodes if _turned(node) is not None]
    reads = Counter(value for node in graph.nodes for value in dict.fromkeys(node.inputs))
    reads.update(graph.roots)
    alone = {node for node in found if reads[node.inputs[0]] == 1}
    if not alone:
        return graph
    old = iter(graph.nodes)

    def rule(node: Node) -> tuple[Value, ...] | None:
        product = _turned(node) if next(old) in alone else None
        return None if product is None else (_other(product),)

    return graph.rewrite(rule)


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
