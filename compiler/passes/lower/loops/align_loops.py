"""Pads the elements of a loop's sequences for kernels that load several at once. A part of ``simplify``.

Before, where an element takes 12 bytes::

    %2, %3 = scan %h, %x {consts=0, count=5, ...} : f32[3], f32[5, 3]

After, where it takes 16::

    %2 = pad %x {high=(0, 1), ...} : f32[5, 4]
    %3, %4 = scan %h, %2 {consts=0, count=5, ...} : f32[3], f32[5, 4]
    %5 = slice %4 {stops=(5, 3), ...} : f32[5, 3]

A kernel of a GPU loads and stores up to 16 bytes at once, at addresses that are multiples of 16. The address of an
element of a sequence is a multiple of the element's bytes, so these are made a multiple of 16. Values are the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Final

from dslc.compiler.ir.graph import Graph, Input, Node, Value
from dslc.compiler.ir.op import OPS, Builder
from dslc.compiler.ir.scan import Loop, loop_node, new_input, scan
from dslc.compiler.ir.types import TensorType
from dslc.compiler.passes.rebuild import nodes_reading

#: Bytes of the largest load or store of a GPU's kernels.
VECTOR: Final = 16


def align_loops(graph: Graph) -> Graph:
    """The graph whose loops have such sequences; the same object if nothing changes."""
    return graph.rewrite(lambda node: _aligned(node) if node.op is scan else None)


def _is_unaligned(type: TensorType) -> bool:
    return type.bytes % VECTOR != 0


def _aligned(node: Node) -> Sequence[Value] | None:
    loop, b = Loop.of(node), Builder().at(node, node.phase)
    yields = list(loop.graph.outputs.values())
    if not any(_is_unaligned(v.type) for v in (*(s.value for s in loop.sequence_inputs), *yields)):
        return None
    sequences, nodes, new = _padded_sequences(loop, b)
    nodes += nodes_reading(loop.graph.nodes, new)
    results: list[Value] = []
    for value in (new.get(v, v) for v in yields):
        padded, more = _padded_result(value, b)
        results.append(padded)
        nodes += more
    made = loop_node(
        b,
        dict(zip(loop.const_inputs, loop.consts)),
        {s: (value, new.get(v, v)) for (s, v), value in zip(loop.graph.updates, loop.carries)},
        sequences,
        results,
        tuple(nodes),
        loop.count,
        loop.reverse,
    )
    carries = len(loop.carries)
    return [*made.outputs[:carries], *(_cut(v, each.type, b) for v, each in zip(made.outputs[carries:], yields))]


def _padded_sequences(loop: Loop, b: Builder) -> tuple[dict[Input, Value], list[Node], dict[Value, Value]]:
    """The sequences with rows of whole vectors: the body's inputs and the values outside; the nodes inside that cut an
    input to its own shape; and what replaces the old inputs."""
    sequences: dict[Input, Value] = {}
    nodes: list[Node] = []
    new: dict[Value, Value] = {}
    for source, value in zip(loop.sequence_inputs, loop.sequences):
        inner = source.value.type
        if not _is_unaligned(inner):
            sequences[source] = value
            continue
        size, room = prod(inner.ints), _room(inner)
        rows = b(OPS["reshape"], value, shape=(loop.count, size))
        wide = new_input("x", len(sequences), TensorType(inner.dtype, (room,)))
        sequences[wide] = _padded(b, rows, room - size)
        cut = b.node(OPS["slice"], wide.value, starts=(0,), stops=(size,), steps=(1,))
        shaped = b.node(OPS["reshape"], cut.out, shape=inner.shape)
        nodes += [cut, shaped]
        new[source.value] = shaped.out
    return sequences, nodes, new


def _padded_result(value: Value, b: Builder) -> tuple[Value, list[Node]]:
    """A result of the body as a line of whole vectors, and the nodes that make it one."""
    if not _is_unaligned(value.type):
        return value, []
    flat = b.node(OPS["reshape"], value, shape=(prod(value.type.ints),))
    wide = _padded(b, flat.out, _room(value.type) - prod(value.type.ints))
    assert isinstance(wide.producer, Node)
    return wide, [flat, wide.producer]


def _cut(sequence: Value, row: TensorType, b: Builder) -> Value:
    """A sequence of results in the shape that its rows had."""
    if not _is_unaligned(row):
        return sequence
    count = sequence.type.ints[0]
    cut = b.node(OPS["slice"], sequence, starts=(0, 0), stops=(count, prod(row.ints)), steps=(1, 1))
    return b(OPS["reshape"], cut.out, shape=(count, *row.ints))


def _room(type: TensorType) -> int:
    """The elements of a type, with those that make its bytes a multiple."""
    return -(-type.bytes // VECTOR) * VECTOR // type.dtype.itemsize


def _padded(b: Builder, x: Value, more: int) -> Value:
    """``x`` with more elements at the end of its last axis."""
    none = (0,) * x.type.rank
    return b(OPS["pad"], x, low=none, high=(*none[1:], more), interior=none, value=0)
