"""Moves transposes of heads next to attention in tiles, past norms, rotary embeddings and gates.

Before::

    %1 = transpose %0 {perm=(0, 2, 1, 3)} : bf16[8, 12, 1024, 64]  # q forward
    %2, %3 = rmsnorm %1, %weight {axis=3} : bf16[8, 12, 1024, 64], f32[8, 12, 1024]  # q_norm forward
    %4, %5 = sdpa %2, %k, %v {...} : bf16[8, 12, 1024, 64], f32[8, 12, 1024]  # sdpa forward
    %6 = mul %4, %gate : bf16[8, 12, 1024, 64]  # gate forward
    %7 = transpose %6 {perm=(0, 2, 1, 3)} : bf16[8, 1024, 12, 64]  # out forward

After, with ``%gate`` turned, too::

    %1, %2 = rmsnorm %0, %weight {axis=3} : bf16[8, 1024, 12, 64], f32[8, 1024, 12]  # q_norm forward
    %3 = transpose %1 {perm=(0, 2, 1, 3)} : bf16[8, 12, 1024, 64]  # q_norm forward
    %4, %5 = sdpa %3, %k, %v {...} : bf16[8, 12, 1024, 64], f32[8, 12, 1024]  # sdpa forward
    %6 = transpose %4 {perm=(0, 2, 1, 3)} : bf16[8, 1024, 12, 64]  # sdpa forward
    %7 = mul %6, %gate : bf16[8, 1024, 12, 64]  # gate forward

``attention_views.py`` makes the transposes next to attention parts of its reads and writes. The rules are those of
``transposes.py``: no program gets more transposes that move memory. For targets whose attention reads and writes in
place. Results keep their bits up to the order of sums over rows, as of a norm's weight. Linear in nodes and reads.
"""

from __future__ import annotations

from typing import Final

from dslc.compiler.ir.graph import Graph
from dslc.compiler.ops.compound.strided_attention import fits_tiles
from dslc.compiler.ops.products.attention import sdpa, sdpa_grad
from dslc.compiler.passes.lower.layout.transposes import without

_HEADS: Final = (0, 2, 1, 3)  # of [batch, rows, heads, features]


def attention_transposes(graph: Graph) -> Graph:
    """The graph with such transposes; the same object if there are none."""
    found = [node for node in graph.nodes if node.op in (sdpa, sdpa_grad) and node.types[0].rank == len(_HEADS)]
    ends = {node: _HEADS for node in found if fits_tiles(node)}
    return without(graph, lambda perm: perm == _HEADS, lambda node: True, ends) if ends else graph
