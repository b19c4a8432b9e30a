"""Rounds the factors of f32 products to TF32 (10 bits of mantissa) for tensor cores; sums stay f32.

Before::

    %2 = matmul %0, %1 {...} : f32[64, 512]  # fc forward

After::

    %2 = matmul %0, %1 {..., tf32=True} : f32[64, 512]  # fc forward

Runs if the precision is tf32, which only GPUs have. Applies to matmuls and convolutions with their gradients, with or
without an epilogue, and to the products of attention, unless ``attention_forms`` has marked them. Linear in nodes.
"""

from __future__ import annotations

from dslc.compiler.ir.graph import Graph, Node
from dslc.compiler.passes.rounding import tf32_rounded


def tf32(graph: Graph) -> Graph:
    """The graph with f32 products marked as tf32. Idempotent."""

    def rule(node: Node) -> Node | None:
        found = tf32_rounded(node)
        return None if found is node else found

    return graph.rewrite(rule)
