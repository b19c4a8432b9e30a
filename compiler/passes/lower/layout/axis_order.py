"""Axes in another order: what the passes that move transposes share.

A permutation p is that of ``transpose(u, p)``: axis i of the result is axis ``p[i]`` of u.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from dslc.compiler.ir.graph import Attr, Node, Value
from dslc.compiler.ir.op import OPS, Builder
from dslc.compiler.ir.sizes import Size
from dslc.compiler.ops.attrs import bool_attr, int_attr, int_tuple
from dslc.compiler.ops.reduction.reduce import Reduction
from dslc.compiler.ops.shape.broadcast import SumTo
from dslc.compiler.ops.shape.slicing import Concat
from dslc.compiler.passes.queries import moves_nothing

Perm: TypeAlias = tuple[int, ...]


def inverse(perm: Perm) -> Perm:
    return tuple(sorted(range(len(perm)), key=perm.__getitem__))


def through(first: Perm, then: Perm) -> Perm:
    """The permutation of a transpose by ``then`` of a transpose by ``first``."""
    return tuple(first[axis] for axis in then)


def at_producer(value: Value) -> Builder:
    """A builder for nodes that change the layout of a value: at the place and in the phase of its producer."""
    made = value.producer
    return Builder().at(made, made.phase) if isinstance(made, Node) else Builder(name=made.name, span=made.span)


def reshaped(value: Value, shape: Sequence[Size], at: Builder | None = None) -> Value:
    """The value in another shape; the value itself in its own. ``at``: builds the node; by default next to the value's
    producer."""
    shape = tuple(shape)
    return value if value.type.shape == shape else (at or at_producer(value))(OPS["reshape"], value, shape=shape)


def transposed(value: Value, perm: Perm, at: Builder | None = None) -> Value:
    """The transpose of a value; a reshape if only axes of size 1 move. ``at``: as in ``reshaped``."""
    if moves_nothing(value, perm):
        return reshaped(value, [value.type.shape[axis] for axis in perm], at)
    return (at or at_producer(value))(OPS["transpose"], value, perm=perm)


def attrs_along(node: Node, perm: Perm) -> dict[str, Attr] | None:
    """The attributes with which an op that moves elements along axes computes ``transpose(result, perm)`` from its
    inputs, transposed alike; None for other ops."""
    if isinstance(node.op, Concat):
        return {"axis": perm.index(int_attr(node.attrs, "axis"))}
    if not node.op.by_axis:
        return None
    numbers = {name: int_tuple(node.attrs, name) for name in node.op.by_axis}
    return {name: tuple(each[axis] for axis in perm) for name, each in numbers.items()}


def reduced_axes(node: Node, perm: Perm) -> tuple[int, ...] | None:
    """For a reduction of ``transpose(u, perm)``: the axes of u that it reduces. None for another op, and if the axes
    that remain are in another order in u."""
    if not isinstance(node.op, Reduction) or len(perm) != node.inputs[0].type.rank:
        return None
    over = int_tuple(node.attrs, "over")
    left = [axis for n, axis in enumerate(perm) if n not in over]
    if not bool_attr(node.attrs, "keep") and left != sorted(left):
        return None
    return tuple(sorted(perm[axis] for axis in over))


def summed_shape(node: Node, perm: Perm) -> tuple[int, ...] | None:
    """For a ``sum_to`` of ``transpose(u, perm)``: the shape to which u is summed, of u's rank. None for another op, and
    if the axes that remain are in another order in u."""
    if not isinstance(node.op, SumTo) or len(perm) != node.inputs[0].type.rank:
        return None
    shape = (*(1,) * (len(perm) - node.types[0].rank), *node.types[0].ints)
    left = [axis for axis, size in zip(perm, shape) if size != 1]
    return tuple(shape[axis] for axis in inverse(perm)) if left == sorted(left) else None
