"""Tensors made of equal parts: which parts they are, and how a value is split into parts of the same places."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Final, NamedTuple

from dslc.compiler.ir.graph import Node, Value
from dslc.compiler.ir.types import TensorType, alike
from dslc.compiler.ops.attrs import int_attr
from dslc.compiler.ops.compound.boxes import placed, places_of
from dslc.compiler.passes.queries import before_reshapes

MAX_PARTS: Final = 8  # each is an output of the kernel


class Stack(NamedTuple):
    """``parts`` of one shape, stacked along a new axis at ``axis`` of that shape, have the elements of a tensor in
    row-major order. ``chains``: for each part, the value that the tensor's node reads, and those before it."""

    parts: tuple[Value, ...]
    axis: int
    chains: tuple[tuple[Value, ...], ...]


@dataclass(frozen=True, slots=True)
class Split:
    """``count`` equal parts along ``axis`` of the shape ``whole``: of neighbours, or of every ``count``-th element."""

    whole: tuple[int, ...]
    axis: int
    count: int
    neighbours: bool

    @property
    def place(self) -> int:
        """The new axis of the parts, stacked."""
        return self.axis if self.neighbours else self.axis + 1

    def along(self, shape: tuple[int, ...]) -> int | None:
        """The axis of a tensor that broadcasts to ``whole`` along which it is split; None if it is the same for all
        parts."""
        axis = self.axis - (len(self.whole) - len(shape))
        return axis if axis >= 0 and shape[axis] != 1 else None

    def cut(self, size: int, part: int) -> tuple[int, int, int]:
        """The start, stop and step of a part along the axis, which has ``size`` elements."""
        each = size // self.count
        return (part * each, (part + 1) * each, 1) if self.neighbours else (part, size, self.count)


def stack_of(node: Node) -> Stack | None:
    """The equal parts of a node's result."""
    cut = _parts(node)
    if cut is None:
        return None
    inputs, axis = cut
    chains = [_chain(v) for v in inputs]
    ends = _alike_ends([[v.type for v in chain] for chain in chains])
    parts = tuple(chain[end] for chain, end in zip(chains, ends))
    before, shape = prod(inputs[0].type.ints[:axis]), parts[0].type.ints
    place = next(i for i in range(len(shape) + 1) if prod(shape[:i]) == before)
    return Stack(parts, place, tuple(chain[: end + 1] for chain, end in zip(chains, ends)))


def split_by(stack: Stack, whole: tuple[int, ...]) -> Split | None:
    """How a tensor of this shape, which has the elements of a stack in row-major order, is split into its parts."""
    shape, count = stack.parts[0].type.ints, len(stack.parts)
    if len(shape) != len(whole):
        return None
    for axis, (part, size) in enumerate(zip(shape, whole)):
        if part != size:
            rest = (*whole[:axis], part, *whole[axis + 1 :])
            fits = part * count == size and rest == shape and stack.axis in (axis, axis + 1)
            return Split(whole, axis, count, stack.axis == axis) if fits else None
    return None


def made_of(value: Value) -> tuple[Node, Stack] | None:
    """The node that makes a value, before reshapes, and the parts of its result."""
    made = before_reshapes(value).producer
    stack = stack_of(made) if isinstance(made, Node) else None
    return None if stack is None or not isinstance(made, Node) else (made, stack)


def _parts(node: Node) -> tuple[tuple[Value, ...], int] | None:
    """The inputs of a node that make up its result in order along an axis, if all are of one type."""
    if not 2 <= len(node.inputs) <= MAX_PARTS or any(v.type != node.inputs[0].type for v in node.inputs):
        return None
    if node.op.name == "concat":
        return (node.inputs, int_attr(node.attrs, "axis")) if node.types[0].bytes else None
    if node.op is not placed:
        return None
    whole, part = node.types[0].ints, node.input_types[0].ints
    axes = [axis for axis, (n, size) in enumerate(zip(part, whole)) if n != size]
    if len(axes) != 1 or part[axes[0]] * len(node.inputs) != whole[axes[0]]:
        return None
    boxes = places_of(node.input_types, node.attrs)
    order = sorted(range(len(boxes)), key=lambda i: boxes[i].start)
    return tuple(node.inputs[i] for i in order), axes[0]


def _alike_ends(types: Sequence[Sequence[TensorType]]) -> list[int]:
    """For each chain, the place of a value whose type all chains have, as far from their ends as possible."""
    common = [t for t in dict.fromkeys(types[0]) if all(t in each for each in types)]
    ends = [[max(i for i, own in enumerate(each) if own == t) for each in types] for t in common]
    return max(ends, key=min)


def _chain(value: Value) -> tuple[Value, ...]:
    """A value, and what it is before reshapes that only add or drop axes of size 1."""
    found, made = [value], value.producer
    while isinstance(made, Node) and made.op.name == "reshape" and alike(made.input_types[0], value.type):
        found.append(made.inputs[0])
        made = made.inputs[0].producer
    return tuple(found)
