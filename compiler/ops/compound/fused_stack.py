"""``fused_stack``: the parts of one tensor, each computed by pointwise steps and written to its place. Passes make it;
the language has no function for it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import TYPE_CHECKING, Any

from dslc.compiler.ir.graph import Attrs, Node
from dslc.compiler.ir.op import Cost, Mismatch, register
from dslc.compiler.ir.types import TensorType
from dslc.compiler.ops.attrs import int_attr, int_tuple
from dslc.compiler.ops.compound.fused import Fused, read_bytes
from dslc.compiler.ops.lazy import np

if TYPE_CHECKING:
    from dslc.compiler.ir.op import Array


class FusedStack(Fused):
    """fused_stack(x0, x1, ...): several results of the attribute ``body``, stacked along a new axis.

    ``body`` and ``results`` are as in ``fused``: ``results[i]`` is the number of part ``i``. All parts have one shape
    and dtype; the attribute ``axis`` is the place of the new axis among theirs. ``perm``, if it is there, is the order
    of these axes in the result, as in ``transpose``. A part may be an input.
    """

    name = "fused_stack"
    kernel_kind = "elements"
    inplace = ()  # a part lies elsewhere than what it is computed from

    def infer(self, types: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
        first, *others = parts = super().infer(types, attrs)
        if any(each != first for each in others):
            raise Mismatch(f"parts {', '.join(map(str, parts))}", "all of one type")
        axis = int_attr(attrs, "axis")
        if not 0 <= axis <= first.rank:
            raise Mismatch(f"a new axis {axis} of {first}", f"0 to {first.rank}")
        shape = (*first.shape[:axis], len(parts), *first.shape[axis:])
        perm = order_of(attrs, len(shape))
        if sorted(perm) != [*range(len(shape))]:
            raise Mismatch(f"the order {perm} of {len(shape)} axes", "each axis once")
        return (TensorType(first.dtype, tuple(shape[i] for i in perm)),)

    def meaning(self, xs: Sequence[Array], attrs: Mapping[str, Any]) -> Sequence[Array]:
        whole = np.stack(super().meaning(xs, attrs), axis=attrs["axis"])
        return [whole.transpose(order_of(attrs, whole.ndim))]

    def cost(self, node: Node) -> Cost:
        whole = super().cost(node)
        return Cost(whole.flops, read_bytes(node) + node.types[0].bytes)

    def rows(self, node: Node, axes: Sequence[int | None]) -> tuple[int | None, ...] | None:
        found = super().rows(node, axes)
        if found is None or len(set(found)) > 1:
            return None
        row, axis = found[0], int_attr(node.attrs, "axis")
        if row is None:
            return (None,)
        return (order_of(node.attrs, node.types[0].rank).index(row if row < axis else row + 1),)


def order_of(attrs: Mapping[str, Any], rank: int) -> tuple[int, ...]:
    """The axes of the stacked parts in the order of the result's."""
    return int_tuple(attrs, "perm") if "perm" in attrs else tuple(range(rank))


def part_type(node: Node) -> TensorType:
    """The type of each part of a ``fused_stack``, whose sizes are ints."""
    shape, axis = node.types[0].ints, int_attr(node.attrs, "axis")
    perm = order_of(node.attrs, len(shape))
    return TensorType(node.types[0].dtype, tuple(shape[perm.index(i)] for i in range(len(shape)) if i != axis))


def strides_of(node: Node) -> tuple[tuple[int, ...], int]:
    """The strides of a part's axes in the result of a ``fused_stack``, whose sizes are ints, and the distance between
    neighbouring parts, in elements."""
    shape, axis = node.types[0].ints, int_attr(node.attrs, "axis")
    perm = order_of(node.attrs, len(shape))
    found = [prod(shape[perm.index(i) + 1 :]) for i in range(len(shape))]
    return (*found[:axis], *found[axis + 1 :]), found[axis]


fused_stack = register(FusedStack())
