"""Recomputes a pointwise node inside each of its consumers if that moves fewer bytes than storing its result.

Before, y and dz are in memory::

    %1 = fused %y, %dz {where(y > 0, dz, 0)} : bf16[8, 14, 14, 64]
    %2, %3 = fused_sums %1, %x, ... {...} : f32[64], f32[64]
    %4 = fused %1, %x, ... {...} : bf16[8, 14, 14, 64]

After::

    %2, %3 = fused_sums %y, %dz, %x, ... {where(y > 0, dz, 0), ...} : f32[64], f32[64]
    %4 = fused %y, %dz, %x, ... {where(y > 0, dz, 0), ...} : bf16[8, 14, 14, 64]

All consumers must be pointwise nodes or reductions, and the value must not be a graph output. The inputs, read once per
consumer, must have at most as many bytes as making, writing and re-reading the value. So each consumer that needs f32
casts a 16-bit tensor itself; no f32 copy is stored. Results keep their bits. GPU only; linear in nodes, except for
chains of such nodes.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from dslc.compiler.ir.graph import Graph, Node, Value
from dslc.compiler.ops.fused import MAX_STEPS
from dslc.compiler.passes.fuse.body import body_of, is_pointwise
from dslc.compiler.passes.fuse.rebuild import inlined


def duplicate(graph: Graph) -> Graph:
    """The graph after absorbing every such node. Idempotent."""
    while True:
        readers, roots = graph.readers(), set(graph.roots)
        chosen = {
            n
            for n in graph.nodes
            if n.outputs[0] not in roots and _is_cheaper_recomputed(n, readers.get(n.outputs[0], []))
        }
        # a chain goes one link at a time, the last node first
        chosen = {n for n in chosen if not any(r in chosen for r in readers[n.outputs[0]])}
        if not chosen:
            return graph
        producers = {n.out: n for n in chosen}
        graph = inlined(graph, partial(_chosen_inputs, producers))


def _is_cheaper_recomputed(node: Node, readers: list[Node]) -> bool:
    if not is_pointwise(node) or len(node.outputs) > 1 or not readers or not node.inputs:
        return False
    if len(readers) == 1 and readers[0].op.name != "fused_sums":
        return False  # the fuse pass has already decided
    own, read, count = node.types[0].bytes, sum(v.type.bytes for v in dict.fromkeys(node.inputs)), len(readers)
    if read * count > read + own + own * count:
        return False
    return all(_may_compute(reader, node) for reader in readers)


def _may_compute(reader: Node, node: Node) -> bool:
    one_result = is_pointwise(reader) and len(reader.outputs) == 1
    if not (one_result or reader.op.name == "fused_sums"):
        return False
    wide = reader.inputs if reader.op.name == "fused_sums" else reader.outputs
    same_shape = any(v.type.shape == node.types[0].shape for v in wide)
    return same_shape and len(body_of(reader)) + len(body_of(node)) <= MAX_STEPS


def _chosen_inputs(producers: Mapping[Value, Node], node: Node, _: Mapping[Value, Value]) -> dict[Value, Node]:
    """The inputs of a node that have one of these producers."""
    return {v: producers[v] for v in dict.fromkeys(node.inputs) if v in producers}
