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

#: Bytes of the largest load or store of a GPU's kernels.
VECTOR: Final = 16


def align_loops(graph: Graph) -> Graph:
    """The graph whose loops have such sequences; the same object if nothing changes."""
    return graph.rewrite(lambda node: _aligned(node) if node.op is scan else None)


def _wrong(type: TensorType) -> bool:
    return type.bytes % VECTOR != 0


def _aligned(node: Node) -> Sequence[Value] | None:
    loop, b = Loop.of(node), Builder().at(node, node.phase)
    yields = list(loop.graph.outputs.values())
    if not any(_wrong(v.type) for v in (*(s.value for s in loop.sequence_inputs), *yields)):
        return None
    count = loop.count
    assert isinstance(count, int), "sizes are known"
    sequences: dict[Input, Value] = {}
    new: dict[Value, Value] = {}
    first: list[Node] = []
    for source, value in zip(loop.sequence_inputs, loop.sequences):
        inner = source.value.type
        if not _wrong(inner):
            sequences[source] = value
            continue
        size, room = prod(inner.ints), _room(inner)
        rows = b(OPS["reshape"], value, shape=(count, size))
        wide = new_input("x", len(sequences), TensorType(inner.dtype, (room,)))
        sequences[wide] = _padded(b, rows, room - size)
        cut = b.node(OPS["slice"], wide.value, starts=(0,), stops=(size,), steps=(1,))
        shaped = b.node(OPS["reshape"], cut.out, shape=inner.shape)
        first += [cut, shaped]
        new[source.value] = shaped.out
    nodes = list(first)
    for each in loop.graph.nodes:
        nodes.append(each.reading(new))
        new.update((old, v) for old, v in zip(each.outputs, nodes[-1].outputs) if old is not v)
    results: list[Value] = []
    for value in (new.get(v, v) for v in yields):
        if not _wrong(value.type):
            results.append(value)
            continue
        flat = b.node(OPS["reshape"], value, shape=(prod(value.type.ints),))
        wider = _padded(b, flat.out, _room(value.type) - prod(value.type.ints))
        assert isinstance(wider.producer, Node)
        nodes += [flat, wider.producer]
        results.append(wider)
    made = loop_node(
        b,
        dict(zip(loop.const_inputs, loop.consts)),
        {s: (value, new.get(v, v)) for (s, v), value in zip(loop.graph.updates, loop.carries)},
        sequences,
        results,
        tuple(nodes),
        count,
        loop.reverse,
    )
    outputs = list(made.outputs)
    for i, value in enumerate(yields):
        if _wrong(value.type):
            at, size = len(loop.carries) + i, prod(value.type.ints)
            cut = b.node(OPS["slice"], outputs[at], starts=(0, 0), stops=(count, size), steps=(1, 1))
            outputs[at] = b(OPS["reshape"], cut.out, shape=(count, *value.type.ints))
    return outputs


def _room(type: TensorType) -> int:
    """The elements of a type, with those that make its bytes a multiple."""
    return -(-type.bytes // VECTOR) * VECTOR // type.dtype.itemsize


def _padded(b: Builder, x: Value, more: int) -> Value:
    """``x`` with more elements at the end of its last axis."""
    none = (0,) * x.type.rank
    return b(OPS["pad"], x, low=none, high=(*none[1:], more), interior=none, value=0)
