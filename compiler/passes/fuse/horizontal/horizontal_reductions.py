"""Merges reductions of small tensors with one shape into one node with several results, to save launches.

Before::

    %5 = sum_to %1 {shape=(512,)} : f32[512]  # a backward
    %9 = sum_to %7 {shape=(512,)} : f32[512]  # b backward

After::

    %5, %9 = fused_sums %1, %7 {body=(), over=(0,), summed=(0, 1)} : f32[512], f32[512]  # b backward

Sums and means are merged if they reduce the same axes of tensors with one shape, dtype and phase. Only optimizer
updates may read their results within the program, so no path leads from one to another. The order of a sum depends only
on shape and dtype, so results keep their bits. GPU only; linear in nodes and reads.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from math import prod
from typing import Final

from dslc.compiler.ir.graph import Attr, Graph, Node, Phase, Value, origins_of
from dslc.compiler.ops.attrs import int_tuple
from dslc.compiler.ops.compound.fused_sums import finished_sums, fused_sums
from dslc.compiler.passes.fuse.reduction.reduction_outputs import summed_over
from dslc.compiler.passes.rebuild import chunks, reading

MAX_SUMMED_BYTES: Final = 1 << 20  # of a summed tensor
_MAX_SUMS: Final = 4  # per node: they fit a thread's registers


def horizontal_reductions(graph: Graph) -> Graph:
    """The graph with such nodes. Deterministic and idempotent."""
    groups = _groups(graph)
    if not groups:
        return graph
    instead: dict[Value, Value] = {}
    for nodes in groups:
        instead.update(zip((node.out for node in nodes), _merged(nodes).outputs))
    return reading(graph, instead)


def _groups(graph: Graph) -> list[Sequence[Node]]:
    """Groups of two or more nodes to merge."""
    readers = graph.readers()
    found: dict[Hashable, list[Node]] = {}
    updates: set[object] = set()  # optimizer updates and their dependents
    for node in graph.nodes:
        if node.phase is Phase.UPDATE or any(v.producer in updates for v in node.inputs):
            updates.add(node)
            continue
        over = _over(node)
        if over is None or node.input_types[0].bytes > MAX_SUMMED_BYTES:
            continue
        if all(reader.phase is Phase.UPDATE for reader in readers.get(node.out, ())):
            found.setdefault((node.input_types[0], over, node.phase), []).append(node)
    return [nodes for nodes in chunks(found.values(), _MAX_SUMS) if len(nodes) > 1]


def _over(node: Node) -> tuple[int, ...] | None:
    """The axes of a sum or mean that may be merged; None for any other node."""
    if node.op.name != "mean":
        return summed_over(node)
    rounds = node.types[0].dtype is not node.types[0].dtype.computed  # the mean is rounded once, after the division
    return None if node.attrs["keep"] or rounds else int_tuple(node.attrs, "over")


def _merged(nodes: Sequence[Node]) -> Node:
    """One node for all. A tensor that is reduced twice, e.g. for a sum and a mean, is read once."""
    last, type = nodes[-1], nodes[0].input_types[0]
    over = _over(last)
    assert over is not None
    inputs = list(dict.fromkeys(node.inputs[0] for node in nodes))
    attrs: dict[str, Attr] = {"body": (), "summed": tuple(range(len(inputs))), "over": over}
    places = [inputs.index(node.inputs[0]) for node in nodes]
    finish: list[Attr] = []
    if any(node.op.name == "mean" for node in nodes):
        count = prod(type.ints[axis] for axis in over)
        full = (("dtype", type.dtype), ("shape", ()), ("value", float(count)))
        finish.append(("full", (), full))
        for number, node in enumerate(nodes):
            if node.op.name == "mean":
                finish.append(("div", (places[number], len(inputs)), ()))
                places[number] = len(inputs) + len(finish) - 1
    if finish or len(inputs) < len(nodes):
        attrs |= {"late": 0, "finish": tuple(finish), "results": tuple(places)}
    return last.replaced(
        op=finished_sums if finish else fused_sums,
        inputs=tuple(inputs),
        types=tuple(node.types[0] for node in nodes),
        attrs=attrs,
        origins=origins_of(nodes),
    )
