"""Turns slices into reads: pointwise nodes read a part of a tensor in place, without a copy.

Before::

    %3 = slice %gates {starts=(0, 0), stops=(64, 512), ...} : bf16[64, 512]  # cell forward
    %4 = slice %gates {starts=(0, 512), stops=(64, 1024), ...} : bf16[64, 512]  # cell forward
    %5 = fused %3, %4 {sigmoid(%3) * tanh(%4)} : bf16[64, 512]  # cell forward

After::

    %5 = fused %gates {sigmoid(slice(%gates)) * tanh(slice(%gates))} : bf16[64, 512]  # cell forward

A slice is fused, together with reshapes after it that drop or add axes of size 1. All of its readers must be pointwise
nodes of that shape, and the part must be loadable in vectors, or small, or all that one node reads. The tensor then
lives as long as its parts did. If some parts were needed longer than the tensor, these must together be as large as the
tensor. Linear in nodes and reads.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from dslc.compiler.ir.graph import Attr, Graph, Node, Phase, Value, origins_of
from dslc.compiler.ir.types import DType, alike
from dslc.compiler.ops.attrs import int_tuple
from dslc.compiler.ops.compound.fused import MAX_STEPS, fused
from dslc.compiler.passes.fuse.body import Body, body_of, is_pointwise
from dslc.compiler.passes.rebuild import reading

_VECTOR: Final = 16  # bytes
_SMALL: Final = 1 << 18  # bytes of a part that is loaded one by one in less time than a launch takes

#: The order in which the nodes of the phases run.
ORDER: Final = {Phase.FORWARD: 0, Phase.MIRROR: 1, Phase.BACKWARD: 1, Phase.UPDATE: 2}
#: A value that is read -> the slice and the reshapes that make it.
_Parts = dict[Value, list[Node]]


def slice_reads(graph: Graph) -> Graph:
    """The graph with such reads. Deterministic and idempotent."""
    parts = _parts(graph)
    instead: dict[Value, Value] = {}
    for node in graph.nodes:
        # reshapes on the path are rewritten, too, but no node reads them afterwards
        if is_pointwise(node) and any(v in parts for v in node.inputs):
            instead.update(zip(node.outputs, _reading_in_place(node, parts).outputs))
    return reading(graph, instead)


def _parts(graph: Graph) -> _Parts:
    readers, roots = graph.readers(), set(graph.roots)
    found: dict[Value, _Parts] = {}
    for node in graph.nodes:
        if node.op.name == "slice" and (_is_readable(node) or _is_read_alone(node, readers)):
            ends: _Parts = {}
            if _follow([node], readers, roots, ends):
                found.setdefault(node.inputs[0], {}).update(ends)
    return {
        value: way
        for source, ends in found.items()
        if _is_worth_it(source, ends, readers)
        for value, way in ends.items()
    }


def _is_readable(node: Node) -> bool:
    """Whether the slice has step 1, and is aligned to vectors or small."""
    whole, part = node.input_types[0], node.types[0]
    if whole.dtype is DType.B1 or set(int_tuple(node.attrs, "steps")) != {1} or not part.bytes:
        return False
    each, run = _VECTOR // min(_VECTOR, whole.dtype.itemsize), 1
    for size, start, count in reversed([*zip(whole.ints, int_tuple(node.attrs, "starts"), part.ints)]):
        if count != size:
            aligned = start * run % each == 0 and count * run % each == 0 and size * run % each == 0
            return aligned or part.bytes <= _SMALL
        run *= size
    return False  # the slice is the whole tensor


def _is_read_alone(node: Node, readers: Mapping[Value, list[Node]]) -> bool:
    """Whether one node reads the slice, of step 1, and nothing else that is large: loading it one by one takes no
    longer than the copy that this saves."""
    if set(int_tuple(node.attrs, "steps")) != {1} or node.types[0].dtype is DType.B1 or node.types == node.input_types:
        return False
    own = readers.get(node.out, [])
    return len(own) == 1 and all(v is node.out or v.type.bytes <= _SMALL for v in own[0].inputs)


def _follow(way: list[Node], readers: Mapping[Value, list[Node]], roots: set[Value], ends: _Parts) -> bool:
    """Whether only pointwise nodes read the result of the ``way``; adds that result to ``ends``."""
    value = way[-1].out
    own = readers.get(value, [])
    if value in roots or not own:
        return False
    for reader in own:
        if reader.op.name == "reshape" and alike(reader.input_types[0], reader.types[0]):
            if not _follow([*way, reader], readers, roots, ends):
                return False
        elif not is_pointwise(reader) or reader.types[0].shape != value.type.shape or not _has_room(reader, len(way)):
            return False
        else:
            ends[value] = way
    return True


def _has_room(node: Node, steps: int) -> bool:
    return len(body_of(node)) + steps * len(node.inputs) <= MAX_STEPS


def _is_worth_it(source: Value, ends: _Parts, readers: Mapping[Value, list[Node]]) -> bool:
    """Whether the tensor is kept as long as its parts are needed in any case, or takes no more bytes than they."""
    if not isinstance(source.producer, Node):
        return True
    last = max(ORDER[reader.phase] for reader in readers[source])
    longer = {way[0].out for value, way in ends.items() if any(ORDER[r.phase] > last for r in readers[value])}
    return not longer or sum(v.type.bytes for v in longer) >= source.type.bytes


def _reading_in_place(node: Node, parts: _Parts) -> Node:
    """The node as a fused one that reads the whole tensors and contains the slices as steps."""
    sources = {v: _source(v, parts) for v in node.inputs}
    body, ways = Body(sources.values()), list[Node]()
    for value in (v for v in sources if v in parts):
        first, *others = parts[value]
        body.add(first, [sources[value]])
        for step in others:
            body.add(step)
        ways += parts[value]
    body.add(node, [v if v in parts else sources[v] for v in node.inputs], is_last=True)
    attrs: dict[str, Attr] = {"body": tuple(body.steps)}
    if "results" in node.attrs:
        attrs["results"] = tuple(body.number[v] for v in node.outputs)
    return node.replaced(op=fused, inputs=body.inputs, attrs=attrs, origins=origins_of([*ways, node]))


def _source(value: Value, parts: _Parts) -> Value:
    return parts[value][0].inputs[0] if value in parts else value
