"""Replaces a sum of padded parts with one tensor that has each part in its place: the gradient of a tensor read in
parts.

Before::

    %2 = pad %1 {low=(0, 0), high=(0, 5), ...} : f32[64, 8]  # backward
    %4 = pad %3 {low=(0, 6), high=(0, 0), ...} : f32[64, 8]  # backward
    %5 = add %2, %4 : f32[64, 8]  # backward

After::

    %4 = placed %1, %3 {shape=(64, 8), starts=((0, 0), (0, 6))} : f32[64, 8]  # backward

Parts of every k-th element along an axis, k of them, are stacked instead: ``x[::2]`` and ``x[1::2]`` become a
``concat`` along a new axis after that one, and a reshape. A chain of additions may have other
terms if these are added in the order that they had: one, or several before or after the parts. Parts with elements in
common stay as they are. An element gets the value that it had, except that a part's -0.0 stays -0.0 instead of
-0.0 + 0. Each pad would write all of the tensor. Linear in nodes, quadratic in the parts of one tensor.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import combinations
from math import prod
from typing import Final

from dslc.compiler.ir.graph import Graph, Node, Value
from dslc.compiler.ir.op import OPS, Builder
from dslc.compiler.ops.attrs import int_tuple, number_attr
from dslc.compiler.ops.compound.boxes import MAX_AXES, MAX_BOXES, Box, lines, placed
from dslc.compiler.passes.queries import has_one_reader
from dslc.compiler.passes.rebuild import chunks, reading

_MAX_TERMS: Final = 256  # of one sum


def placed_pads(graph: Graph) -> Graph:
    """The graph with such nodes. Deterministic and idempotent."""
    is_read_once = has_one_reader(graph)
    sums: dict[Node, list[Value]] = {}
    inner: set[Node] = set()
    for node in graph.nodes:
        if node.op.name != "add" or any(v.type != node.types[0] for v in node.inputs):
            continue
        terms: list[Value] = []
        for value in node.inputs:
            made = value.producer
            if isinstance(made, Node) and made in sums and is_read_once(value) and made.phase is node.phase:
                terms += sums[made]
                inner.add(made)
            else:
                terms.append(value)
        sums[node] = terms if len(terms) <= _MAX_TERMS else list(node.inputs)
    found = {node: terms for node, terms in sums.items() if node not in inner and _fits(node, terms, is_read_once)}
    return reading(graph, {node.out: _without_pads(node, terms) for node, terms in found.items()})


def _fits(node: Node, terms: Sequence[Value], is_read_once: Callable[[Value], bool]) -> bool:
    shape, pads = node.types[0].ints, [v for v in terms if _padded(v) is not None]
    if len(pads) < 2 or not all(map(is_read_once, pads)):
        return False
    first, last = terms.index(pads[0]), terms.index(pads[-1])
    if len(terms) - len(pads) > 1 and last - first + 1 > len(pads):
        return False  # an element of the last part has been added to more terms than one of the first
    if _interleaved(pads) is not None:
        return True
    if any(any(int_tuple(made.attrs, "interior")) for v in pads if (made := _padded(v)) is not None):
        return False
    boxes = [_box(v) for v in pads]
    return all(len(lines(box, shape)[1]) <= MAX_AXES and prod(box.shape) for box in boxes) and all(
        a.apart(b) for a, b in combinations(boxes, 2)
    )


def _padded(value: Value) -> Node | None:
    """The pad with zeros around a part that made a value."""
    made = value.producer
    if not isinstance(made, Node) or made.op.name != "pad":
        return None
    return made if number_attr(made.attrs, "value") == 0 else None


def _interleaved(pads: Sequence[Value]) -> tuple[int, list[Value]] | None:
    """The axis along which parts take turns, one element of each, and the parts in their order; None if they do not."""
    found: dict[int, Value] = {}
    nodes = [made for v in pads if (made := _padded(v)) is not None]
    axes, type_ = set[int](), nodes[0].inputs[0].type
    for made in nodes:
        low, high, interior = (int_tuple(made.attrs, name) for name in ("low", "high", "interior"))
        padded = [axis for axis, ends in enumerate(zip(low, high, interior)) if any(ends)]
        if len(padded) != 1 or made.inputs[0].type != type_:
            return None
        [axis] = padded
        if interior[axis] != len(pads) - 1 or low[axis] + high[axis] != interior[axis]:
            return None
        axes.add(axis)
        found[low[axis]] = made.inputs[0]
    return (axes.pop(), [found[i] for i in range(len(pads))]) if len(axes) == 1 and len(found) == len(pads) else None


def _box(value: Value) -> Box:
    made = _padded(value)
    assert made is not None
    return Box(int_tuple(made.attrs, "low"), made.input_types[0].ints)


def _without_pads(node: Node, terms: Sequence[Value]) -> Value:
    """The sum of the term that is no pad, if there is one, and of the tensors that have the parts in their places."""
    b = Builder().at(node, node.phase)
    pads = [v for v in terms if _padded(v) is not None]
    others = [v for v in terms if _padded(v) is None]
    before = 1 if len(others) == 1 else terms.index(pads[0])
    found, after = others[:before], others[before:]
    turns = _interleaved(pads)
    if turns is not None:
        found.append(_stacked(b, *turns, node.types[0].ints))
    for some in chunks([[] if turns is not None else pads], MAX_BOXES):
        parts = [made.inputs[0] for v in some if (made := _padded(v)) is not None]
        starts = tuple(_box(v).start for v in some)
        found.append(b(placed, *parts, shape=node.types[0].ints, starts=starts))
    whole, *rest = (*found, *after)
    for other in rest:
        whole = b(OPS["add"], whole, other)
    return whole


def _stacked(b: Builder, axis: int, parts: Sequence[Value], shape: tuple[int, ...]) -> Value:
    """The tensor of which the parts have one element each in turn along an axis."""
    part = parts[0].type.ints
    wide = (*part[: axis + 1], 1, *part[axis + 1 :])
    whole = b(OPS["concat"], *(b(OPS["reshape"], v, shape=wide) for v in parts), axis=axis + 1)
    return b(OPS["reshape"], whole, shape=shape)
