"""Readers of a transposed tensor that can read the tensor itself: reductions, sums to a shape, sums of pointwise
results, and products that transpose it again."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from dslc.compiler.ir.graph import Node, Value
from dslc.compiler.ir.op import Builder
from dslc.compiler.ops.attrs import bool_attr, int_tuple
from dslc.compiler.ops.compound.fused import packed_inputs
from dslc.compiler.ops.compound.fused_sums import FusedSums, full_shape
from dslc.compiler.ops.spatial.channels_last import to_first
from dslc.compiler.passes.lower.layout.axis_order import Perm, reduced_axes, reshaped, summed_shape

_Turned = Mapping[Value, tuple[Perm, Value]]
#: Of a product: the attributes that transpose its operands.
_FLAGS: Final = ("transpose_a", "transpose_b")


def read_alike(node: Node, value: Value) -> Perm | None:
    """The permutation that moves channels, or the last axis of a product's operand, back: such a node needs no
    transpose of a value that it turned. None if it needs one."""
    rank = value.type.rank
    if _transposes(node, value):
        return _swapped(rank)
    perm = to_first(rank)
    reduces = (_reduced(node, perm), summed_shape(node, perm), _summed(node, perm))
    return None if reduces == (None, None, None) else perm


def untransposed(
    node: Node, perm: Perm, turned: _Turned, plain: Callable[[Value], Value], input: Callable[[Value], Value | None]
) -> Sequence[Value] | None:
    """The node's results, computed from values u of ``transpose(u, perm)``; None if that is impossible. ``turned``: the
    permutation of an old value and its u; ``plain``: the new value of any; ``input``: a value as u, if that moves no
    large tensor."""
    if node.op.name == "matmul":
        return _product(node, turned, plain)
    b, first = Builder().at(node, node.phase), turned.get(node.inputs[0])
    if (over := _summed(node, perm)) is not None:
        inputs = [value for old in node.inputs if (value := input(old)) is not None]
        whole = len(inputs) == len(node.inputs)
        return b.node(node.op, *inputs, **{**node.attrs, "over": over}).outputs if whole else None
    if first is None or first[0] != perm:
        return None
    if (over := _reduced(node, perm)) is not None:
        return (b(node.op, first[1], **{**node.attrs, "over": over}),)
    shape = summed_shape(node, perm)
    return None if shape is None else (reshaped(b(node.op, first[1], shape=shape), node.types[0].shape),)


def _reduced(node: Node, perm: Perm) -> tuple[int, ...] | None:
    """The axes that a reduction of a value turned by ``perm`` reduces; None if its result would be turned, too."""
    return None if node.attrs.get("keep") else reduced_axes(node, perm)


def _summed(node: Node, perm: Perm) -> tuple[int, ...] | None:
    """For sums of pointwise results of ``transpose(u, perm)``: the axes of u that they sum over. None for another op,
    with packed bits, and if the axes that remain are in another order in u."""
    if not isinstance(node.op, FusedSums) or {"finish", "kept"} & node.attrs.keys() or packed_inputs(node.attrs):
        return None
    over = int_tuple(node.attrs, "over")
    left = [axis for place, axis in enumerate(perm) if place not in over]
    alike = len(full_shape(node)) == len(perm) and left == sorted(left)
    return tuple(sorted(perm[axis] for axis in over)) if alike else None


def _swapped(rank: int) -> Perm:
    return (*range(rank - 2), rank - 1, rank - 2)


def _transposes(node: Node, value: Value) -> bool:
    """Whether the node is a product of matrices that transposes this operand."""
    if node.op.name != "matmul" or value.type.rank < 2:
        return False
    return any(x is value and bool_attr(node.attrs, flag) for x, flag in zip(node.inputs, _FLAGS))


def _product(node: Node, turned: _Turned, plain: Callable[[Value], Value]) -> Sequence[Value] | None:
    """The same product, which does not transpose operands that are transposes; None if none is."""
    again = {
        flag: turned[value][1]
        for value, flag in zip(node.inputs, _FLAGS)
        if value in turned and bool_attr(node.attrs, flag) and turned[value][0] == _swapped(value.type.rank)
    }
    if not again:
        return None
    inputs = [again[flag] if flag in again else plain(value) for value, flag in zip(node.inputs, _FLAGS)]
    attrs = {**node.attrs, **dict.fromkeys(again, False)}
    return Builder().at(node, node.phase).node(node.op, *inputs, **attrs).outputs
