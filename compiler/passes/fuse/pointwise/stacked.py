"""Computes the parts of a concatenated tensor where they belong: no part is written elsewhere and copied.

Before::

    %3 = fused %a, %b, %cos, %sin {a*cos - b*sin} : bf16[8, 64, 32]  # rotary forward
    %4 = fused %a, %b, %cos, %sin {b*cos + a*sin} : bf16[8, 64, 32]  # rotary forward
    %5 = concat %3, %4 {axis=2} : bf16[8, 64, 64]  # rotary forward

After::

    %4 = fused_stack %a, %b, %cos, %sin {a*cos - b*sin, b*cos + a*sin, axis=2} : bf16[8, 64, 2, 32]  # rotary forward
    %5 = reshape %4 {shape=(8, 64, 64)} : bf16[8, 64, 64]  # rotary forward

Parts of one shape are computed by one node if some of them are results of pointwise nodes, or slices, that nothing else
reads. The others are copied as before. ``placed`` parts that together are the whole tensor, as in the gradient of a
split, are a concatenation, too. If only one pointwise node reads the concatenated tensor, that node is computed part by
part instead, with parts of its other inputs::

    %3 = concat %b, %a {axis=2} : bf16[8, 64, 64]
    %4 = fused %x, %3, %cos, %sin {x*cos + %3*sin} : bf16[8, 64, 64]

becomes a node with the parts ``x[:, :, :32]*cos[:, :32] + b*sin[:, :32]`` and ``x[:, :, 32:]*cos[:, 32:] +
a*sin[:, 32:]``. If a transpose alone reads the tensor and its last axis stays the last, the parts are written to their
transposed places. Results keep their bits. Linear in nodes and reads.
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from typing import Final, NamedTuple, TypeAlias

from dslc.compiler.ir.graph import Graph, Node, Origin, Value, origins_of
from dslc.compiler.ir.op import OPS, Builder
from dslc.compiler.ir.types import alike
from dslc.compiler.ops.attrs import int_tuple
from dslc.compiler.ops.compound.fused import PLACES
from dslc.compiler.ops.compound.fused_stack import fused_stack
from dslc.compiler.passes.fuse.body import is_pointwise, packs_bits
from dslc.compiler.passes.fuse.pointwise.parts import Parts, Unfit
from dslc.compiler.passes.fuse.pointwise.stacks import Split, Stack, split_by, stack_of
from dslc.compiler.passes.rebuild import reading

_SECTOR: Final = 32  # bytes that memory moves at once
_Readers: TypeAlias = Mapping[Value, list[Node]]


class _Made(NamedTuple):
    """What replaces a node: the parts, the new axis, the nodes that they are made of, and the order of the axes."""

    parts: Parts
    axis: int
    origins: frozenset[Node]
    perm: tuple[int, ...] = ()


def stacked(graph: Graph) -> Graph:
    """The graph with such nodes. Deterministic and idempotent: a tensor of which one of two readers is computed part by
    part has one reader in the next round."""
    while (after := _stacked_once(graph)) is not graph:
        graph = after
    return graph


def _stacked_once(graph: Graph) -> Graph:
    readers, roots = graph.readers(), set(graph.roots)
    found: dict[Node, _Made] = {}
    for node in graph.nodes:
        stack = stack_of(node)
        if stack is None:
            continue
        moved = _moved(node, stack, readers, roots, found.keys())
        own = readers.get(node.out, [])
        turned = own[0] if len(own) == 1 and own[0].op.name == "transpose" and node.out not in roots else None
        reader = _only_reader(node, readers, roots)
        split = None if reader is None else split_by(stack, reader.types[0].ints)
        if reader is not None and split is not None and (made := _split(reader, split, node, moved, readers, roots)):
            found[reader] = made
        elif turned is not None and (made := _turned(turned, _stacked(node, stack, moved))):
            found[turned] = made
        elif any(each.op.name != "reshape" for each in moved) and (made := _stacked(node, stack, moved)):
            found[node] = made
    order = {node: place for place, node in enumerate(graph.nodes)}
    instead: dict[Value, Value] = {}
    for node, made in found.items():
        origins = origins_of(sorted(made.origins, key=order.__getitem__))
        instead[node.out] = _written(node, made, origins)
    return reading(graph, instead)


def _moved(node: Node, stack: Stack, readers: _Readers, roots: set[Value], done: Container[Node]) -> frozenset[Node]:
    """The nodes of parts that nothing else reads and that can be computed with the others. Those of ``done`` are
    computed part by part themselves."""
    alone = set[Value]()
    for chain in stack.chains:
        users = [node, *(v.producer for v in chain[:-1])]
        if all(v not in roots and {*readers[v]} == {user} for v, user in zip(chain, users)):
            alone.add(chain[-1])
    made = {v.producer for v in alone if isinstance(v.producer, Node) and v.producer not in done}
    found = {each for each in made if alone.issuperset(each.outputs) and _joins(each, node)}
    while more := {each for each in _places(found) if each.out not in roots and found.issuperset(readers[each.out])}:
        found |= more
    return frozenset(found)


def _places(nodes: set[Node]) -> set[Node]:
    """The slices, and the reshapes that only add or drop axes of size 1, that make inputs of nodes, but are none."""
    made = {v.producer for node in nodes for v in node.inputs}
    return {each for each in made if isinstance(each, Node) and _is_place(each) and each not in nodes}


def _is_place(node: Node) -> bool:
    return node.op.name == "slice" or (node.op.name == "reshape" and alike(node.input_types[0], node.types[0]))


def _joins(made: Node, node: Node) -> bool:
    if made.phase is not node.phase:
        return False
    return _is_place(made) or (is_pointwise(made) and not packs_bits(made))


def _only_reader(node: Node, readers: _Readers, roots: set[Value]) -> Node | None:
    """The pointwise node that alone reads a node's result, possibly reshaped to the shape of its own."""
    value = node.out
    while value not in roots and len(own := readers.get(value, [])) == 1:
        [reader] = own
        if reader.op.name != "reshape":
            fits = (
                len(reader.outputs) == 1
                and not _is_place(reader)
                and _joins(reader, node)
                and reader.types[0].shape == value.type.shape
            )
            return reader if fits else None
        value = reader.out
    return None


def _stacked(node: Node, stack: Stack, moved: frozenset[Node]) -> _Made | None:
    """The parts of a node's result, some of them computed."""
    parts = Parts(moved)
    try:
        parts.finish([parts.value(v) for v in stack.parts])
    except Unfit:
        return None
    return _Made(parts, stack.axis, moved | {node})


def _turned(node: Node, made: _Made | None) -> _Made | None:
    """The parts of a stack, written where a transpose of it has them."""
    if made is None:
        return None
    [stacked] = node.inputs
    part = made.parts.shape
    shape = (*part[: made.axis], len(made.parts.results), *part[made.axis :])
    groups, at = list[tuple[int, ...]](), 0
    for size in stacked.type.ints:  # the axes of the stack that an axis of the transposed tensor is
        end, count = at, 1
        while count < size or (end < len(shape) and shape[end] == 1):
            count, end = count * shape[end], end + 1
        if count != size:
            return None
        groups.append(tuple(range(at, end)))
        at = end
    perm = tuple(axis for p in int_tuple(node.attrs, "perm") for axis in groups[p])
    last = len(shape) - 1
    whole_sectors = made.axis != last and part[-1] * stacked.type.dtype.itemsize % _SECTOR == 0
    if perm[-1] != last or not whole_sectors or sorted(perm) != [*range(len(shape))]:
        return None
    return made._replace(perm=perm, origins=made.origins | {node})


def _split(
    reader: Node, split: Split, node: Node, moved: frozenset[Node], readers: _Readers, roots: set[Value]
) -> _Made | None:
    """The parts of the result of a pointwise node that reads a stack."""
    inner = _inner(reader, split, {node, *moved}, readers, roots)
    for chosen in (inner, frozenset[Node]()) if inner else (inner,):
        parts = Parts(moved, split, chosen)
        try:
            parts.finish([parts.part_of_node(reader, number) for number in range(split.count)])
        except Unfit:
            continue
        return _Made(parts, split.place, chosen | moved | {node, reader})
    return None


def _inner(reader: Node, split: Split, group: set[Node], readers: _Readers, roots: set[Value]) -> frozenset[Node]:
    """Pointwise nodes of the split's shape of which only the reader of a stack and the ``group`` need the results: it
    and its parts, which may read slices of them."""
    found, group = set[Node](), {reader, *group}

    def joins(made: Node) -> bool:
        if made in group or len(made.outputs) != 1 or made.out in roots or not group.issuperset(readers[made.out]):
            return False
        return made.op.name in PLACES or (_joins(made, reader) and made.types[0].ints == split.whole)

    while more := {
        v.producer for each in group for v in each.inputs if isinstance(v.producer, Node) and joins(v.producer)
    }:
        group |= more
        found |= {each for each in more if each.op.name not in PLACES}
    return frozenset(found)


def _written(node: Node, made: _Made, origins: tuple[Origin, ...]) -> Value:
    """The result of the node as the node that computes all of its parts."""
    b = Builder().at(node, node.phase)
    order = {"perm": made.perm} if made.perm else {}
    whole = b.node(
        fused_stack, *made.parts.inputs, body=made.parts.body, results=made.parts.results, axis=made.axis, **order
    )
    return b(OPS["reshape"], whole.replaced(origins=origins).out, shape=node.types[0].ints)
