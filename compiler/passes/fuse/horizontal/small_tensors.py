"""Batches launches for many small tensors: optimizer updates, casts of parameters, concatenated flags.

Before::

    %1 = cast %w1 {dtype=bf16} : bf16[64, 64, 1, 1]  # a.conv forward
    %2 = cast %w2 {dtype=bf16} : bf16[64, 256, 1, 1]  # b.conv forward
    %8 = slice %7 {starts=(2,), stops=(4,), steps=(1,)} : b1[2]  # nonfinite update
    %9 = concat %6, %8 {axis=0} : b1[3]  # nonfinite update

After::

    %1, %2 = casts %w1, %w2 {dtype=bf16} : bf16[64, 64, 1, 1], bf16[64, 256, 1, 1]  # "a.conv and 1 more" forward
    %9 = pick %6, %7 {place=(0, 2, 3), source=(0, 1, 1)} : b1[3]  # nonfinite update

Updates merged by ``optimizer.py`` become one launch. Flags (b1) are not cast to u8, since the bytes are the same. Casts
are batched only if the graph has a backward pass, which keeps most of their results alive in any case; large casts stay
separate. GPU only, where a launch costs more than such a tensor. Results keep their bits. Linear in nodes and reads.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from dslc.compiler.ir.graph import Graph, Input, Kind, Node, Phase, Value, origins_of
from dslc.compiler.ir.types import DType, TensorType
from dslc.compiler.ops.attrs import dtype_attr, int_tuple
from dslc.compiler.ops.compound.many import MAX_CASTS, casts, pick
from dslc.compiler.passes.rebuild import chunks, reading

MAX_CAST_BYTES: Final = 1 << 25  # of the result of a cast that is batched
_MAX_COPIED_PIECES: Final = 2  # of a concat that stays a copy
_MAX_PICKED: Final = 1024  # elements of a pick


def small_tensors(graph: Graph) -> Graph:
    """The graph with such nodes. Deterministic and idempotent."""
    instead: dict[Value, Value] = {}
    for nodes in _groups(graph):
        instead.update(zip((n.out for n in nodes), _one_cast(nodes).outputs))
    for node in graph.nodes:
        if node.op.name == "concat" and (found := _as_pick(node)):
            instead[node.out] = found.out
        elif node.op.name == "multi_update" and "together" not in node.attrs:
            whole = node.replaced(attrs={**node.attrs, "together": True})
            instead.update(zip(node.outputs, whole.outputs))
    flags = graph.outputs.get("nonfinite")
    if flags is not None and isinstance(flags.producer, Node) and flags.producer.op.name == "cast":
        [bits] = flags.producer.inputs  # the same bytes
        instead[flags] = instead.get(bits, bits)
    return reading(graph, instead)


def _one_cast(nodes: Sequence[Node]) -> Node:
    first, more = nodes[0], len(nodes) - 1
    return Node(
        casts, tuple(n.inputs[0] for n in nodes), tuple(n.types[0] for n in nodes), {"dtype": dtype_attr(first.attrs)},
        name=f"{first.name} and {more} more", span=first.span, phase=first.phase, origins=origins_of(nodes),
    )  # fmt: skip


def _groups(graph: Graph) -> list[Sequence[Node]]:
    """Groups of two or more casts to batch."""
    if not any(n.phase is Phase.BACKWARD for n in graph.nodes):
        return []
    groups: dict[tuple[DType, DType], list[Node]] = {}
    for node in graph.nodes:
        if node.op.name != "cast" or node.types[0].bytes > MAX_CAST_BYTES or not node.types[0].bytes:
            continue
        source = node.inputs[0].producer
        if isinstance(source, Input) and source.kind is Kind.PARAM:
            groups.setdefault((node.input_types[0].dtype, node.types[0].dtype), []).append(node)
    return [nodes for nodes in chunks(groups.values(), MAX_CASTS) if len(nodes) > 1]


def _as_pick(concat: Node) -> Node | None:
    """A ``pick`` that replaces a concat of several short vectors; it reads slices from their source."""
    type = concat.types[0]
    if type.rank != 1 or len(concat.inputs) <= _MAX_COPIED_PIECES or type.ints[0] > _MAX_PICKED:
        return None
    vectors: dict[Value, int] = {}
    sources: list[int] = []
    places: list[int] = []
    for value in concat.inputs:
        whole, first = _slice_of(value)
        number = vectors.setdefault(whole, len(vectors))
        sources += [number] * value.type.ints[0]
        places += range(first, first + value.type.ints[0])
    attrs = {"source": tuple(sources), "place": tuple(places)}
    types = (TensorType(type.dtype, type.shape),)
    return concat.replaced(op=pick, inputs=tuple(vectors), types=types, attrs=attrs)


def _slice_of(value: Value) -> tuple[Value, int]:
    """The vector of which the value is a slice and the start of the slice; or the value itself and 0."""
    node = value.producer
    if (
        isinstance(node, Node)
        and node.op.name == "slice"
        and node.inputs[0].type.rank == 1
        and node.attrs["steps"] == (1,)
    ):
        return node.inputs[0], int_tuple(node.attrs, "starts")[0]
    return value, 0
