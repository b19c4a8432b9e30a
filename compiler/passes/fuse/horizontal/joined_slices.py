"""Joins small slices of one tensor into one node, to save launches.

Before::

    %1 = slice %0 {starts=(0, 0), stops=(64, 8), ...} : f32[64, 8]  # split forward
    %2 = slice %0 {starts=(0, 8), stops=(64, 24), ...} : f32[64, 16]  # split forward

After::

    %1, %2 = slices %0 {starts=((0, 0), (0, 8)), shapes=((64, 8), (64, 16))} : f32[64, 8], f32[64, 16]  # split forward

Slices are joined if they have steps of 1 and one phase. Large ones stay separate, since all results of a node are in
memory together. The pass follows those that let readers read a slice in place; slices of f32 that are cast to 16 bits
are joined, too. GPU only. Results keep their bits. Linear in nodes.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from math import prod
from typing import Final

from dslc.compiler.ir.graph import Graph, Node, Value, origins_of
from dslc.compiler.ir.index_limits import I32_ELEMENTS
from dslc.compiler.ir.types import DType
from dslc.compiler.ops.attrs import int_tuple
from dslc.compiler.ops.compound.boxes import MAX_AXES, MAX_BOXES, Box, as_attrs, lines, slices
from dslc.compiler.ops.compound.fused import expanded, fused
from dslc.compiler.passes.rebuild import chunks, reading

MAX_BYTES: Final = 1 << 20  # of a slice: copied in less time than a launch takes


def joined_slices(graph: Graph) -> Graph:
    """The graph with such nodes. Deterministic and idempotent."""
    found: dict[Hashable, list[Node]] = {}
    for node in graph.nodes:
        part = _slice(node)
        if part is not None and _fits(part):
            found.setdefault((node.inputs[0], node.phase, node.types[0].dtype), []).append(node)
    instead: dict[Value, Value] = {}
    for nodes in chunks(found.values(), MAX_BOXES):
        if len(nodes) > 1:
            instead.update(zip((node.out for node in nodes), _one_slice_node(nodes).outputs))
    return reading(graph, instead)


def _slice(node: Node) -> Node | None:
    """The slice that a node is, alone or before a cast from f32 to 16 bits."""
    if node.op.name == "slice":
        return node
    if node.op is not fused or len(node.inputs) != 1 or len(node.outputs) != 1 or "results" in node.attrs:
        return None
    steps = expanded(node.inputs, node.attrs)
    if [step.op.name for step in steps] != ["slice", "cast"] or steps[1].inputs[0] is not steps[0].out:
        return None
    source, target = node.input_types[0].dtype, node.types[0].dtype
    return steps[0] if source is DType.F32 and target in (DType.BF16, DType.F16) else None


def _fits(node: Node) -> bool:
    out, whole = node.types[0], node.input_types[0].ints
    if any(step != 1 for step in int_tuple(node.attrs, "steps")) or not 0 < out.bytes <= MAX_BYTES:
        return False
    return prod(whole) < I32_ELEMENTS and len(lines(_box(node), whole)[1]) <= MAX_AXES


def _box(node: Node) -> Box:
    part = _slice(node)
    assert part is not None
    return Box(int_tuple(part.attrs, "starts"), part.types[0].ints)


def _one_slice_node(nodes: Sequence[Node]) -> Node:
    first, source = nodes[0], nodes[0].inputs[0]
    dtype = first.types[0].dtype
    attrs = as_attrs([_box(node) for node in nodes])
    return first.replaced(
        op=slices,
        inputs=(source,),
        types=tuple(node.types[0] for node in nodes),
        attrs=attrs if dtype is source.type.dtype else {**attrs, "dtype": dtype},
        origins=origins_of(nodes),
    )
