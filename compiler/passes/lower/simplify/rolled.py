"""Rules of ``simplify`` for ``roll``: the parts of a tensor in another order round an axis, and rolls of rolls.

Before::

    %1 = slice %0 {starts=(0, 3), stops=(2, 8), steps=(1, 1)} : f32[2, 5, 4]
    %2 = slice %0 {starts=(0, 0), stops=(2, 3), steps=(1, 1)} : f32[2, 3, 4]
    %3 = concat %1, %2 {axis=1} : f32[2, 8, 4]

After::

    %3 = roll %0 {shifts=(0, -3, 0)} : f32[2, 8, 4]

One kernel moves each element once, where a copy for each slice and one for each ``concat`` would move it twice an axis.
"""

from __future__ import annotations

from itertools import pairwise
from math import prod

from dslc.compiler.ir.graph import Node, Value, made_by
from dslc.compiler.ir.op import OPS, Builder
from dslc.compiler.ops.attrs import int_attr, int_tuple


def round_an_axis(node: Node) -> Node | None:
    """A ``concat`` of all parts of one tensor, which are in its order but begin elsewhere, as a roll; not along the
    innermost axis, where kernels read parts in place."""
    axis, shape = int_attr(node.attrs, "axis"), node.types[0].ints
    slices = [made for value in node.inputs if (made := made_by(value, "slice")) is not None]
    of = {made.inputs[0] for made in slices}
    if len(slices) < len(node.inputs) or len(of) != 1 or prod(shape[axis + 1 :]) == 1:
        return None
    [x] = of
    if x.type != node.types[0]:
        return None
    whole = [(0, size) for size in shape]
    spans = []
    for part in slices:
        found = list(zip(int_tuple(part.attrs, "starts"), int_tuple(part.attrs, "stops")))
        spans.append(found.pop(axis))
        if any(step != 1 for step in int_tuple(part.attrs, "steps")) or found != whole[:axis] + whole[axis + 1 :]:
            return None
    if any(start != stop % shape[axis] for (_, stop), (start, _) in pairwise(spans)):
        return None
    shifts = tuple(-spans[0][0] if n == axis else 0 for n in range(len(shape)))
    return Builder().at(node, node.phase).node(OPS["roll"], x, shifts=shifts)


def rolled_once(node: Node) -> Value | Node | None:
    """A roll of a roll as one; a roll by whole turns is nothing."""
    by, shape = int_tuple(node.attrs, "shifts"), node.types[0].ints
    if all(shift % max(1, size) == 0 for shift, size in zip(by, shape)):
        return node.inputs[0]
    inner = made_by(node.inputs[0], "roll")
    if inner is None:
        return None
    shifts = tuple(a + b for a, b in zip(by, int_tuple(inner.attrs, "shifts")))
    return Builder().at(node, node.phase).node(node.op, inner.inputs[0], shifts=shifts)
