"""reshape, flatten and transpose."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from dslc.compiler.ir.function import Call, Function, Ints, Shape, function
from dslc.compiler.ir.graph import Attrs, Node, Value
from dslc.compiler.ir.op import Builder, Cost, Mismatch, Op, register
from dslc.compiler.ir.sizes import Size, exact_div, product, to_exact
from dslc.compiler.ir.types import TensorType
from dslc.compiler.ops.attrs import int_tuple, ints_attr, shape_attr
from dslc.compiler.ops.elementwise.arithmetic import Gradients, only
from dslc.compiler.ops.lazy import np
from dslc.compiler.ops.shape.broadcast import written

if TYPE_CHECKING:
    from dslc.compiler.ir.op import Array


class Reshape(Op):
    """reshape(x): the same elements in the same row-major order, in the attribute ``shape``. A view, at no cost."""

    name = "reshape"
    moves = True
    mirror = True
    view = True
    inplace = ((0, 0),)

    def infer(self, types: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
        shape = shape_attr(attrs)
        have, want = types[0].elements, product(shape)
        if have != want:
            why = f"{written(types[0].shape)} has {have} elements, {written(shape)} has {want}"
            help = to_exact(have - want) or "one size may be -1: it is derived from the others"
            raise Mismatch(why, help, "E0302")
        return (TensorType(types[0].dtype, shape),)

    def grad(self, node: Node, dys: Gradients, b: Builder) -> Gradients:
        return (b(reshape, only(dys), shape=node.inputs[0].type.shape),)

    def meaning(self, xs: Sequence[Array], attrs: Mapping[str, Any]) -> Sequence[Array]:
        return [xs[0].reshape(int_tuple(attrs, "shape"))]

    def cost(self, node: Node) -> Cost:
        return Cost(0, 0)

    def rows(self, node: Node, axes: Sequence[int | None]) -> tuple[int | None, ...] | None:
        # there may be as many rows as the axis has elements
        return (None,) if axes[0] is None else _rows_after(node, axes[0], node.input_types[0].shape[axes[0]])

    def rows_of(self, node: Node, axes: Sequence[int | None], count: int) -> tuple[int | None, ...] | None:
        return (None,) if axes[0] is None else _rows_after(node, axes[0], count)


def _rows_after(node: Node, axis: int, count: Size) -> tuple[int | None, ...] | None:
    """The axis of ``count`` rows after a reshape: one preceded by as many elements as before, of a size
    that ``count`` divides, so that each row is one or more whole indices of it."""
    before, after = node.input_types[0].shape, node.types[0].shape
    for new, size in enumerate(after):
        if product(after[:new]) == product(before[:axis]) and exact_div(size, count) is not None:
            return (new,)
    return None


class Transpose(Op):
    """transpose(x): axis ``i`` of the result is axis ``perm[i]`` of ``x``, with the attribute ``perm``."""

    name = "transpose"
    kernel_kind = "copies"
    input_reads = 1
    moves = True
    mirror = True

    def infer(self, types: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
        perm, shape = ints_attr(attrs, "perm"), types[0].shape
        if sorted(perm) != list(range(len(shape))):
            help = f"name each of 0 to {len(shape) - 1} once" if shape else "it has no axes"
            raise Mismatch(f"{list(perm)} is not a permutation of the axes of {written(shape)}", help, "E0306")
        return (TensorType(types[0].dtype, tuple(shape[p] for p in perm)),)

    def grad(self, node: Node, dys: Gradients, b: Builder) -> Gradients:
        perm = ints_attr(node.attrs, "perm")
        return (b(transpose, only(dys), perm=tuple(perm.index(axis) for axis in range(len(perm)))),)

    def meaning(self, xs: Sequence[Array], attrs: Mapping[str, Any]) -> Sequence[Array]:
        return [np.ascontiguousarray(xs[0].transpose(int_tuple(attrs, "perm"))).reshape(self._shape(xs[0], attrs))]

    @staticmethod
    def _shape(x: Array, attrs: Mapping[str, Any]) -> tuple[int, ...]:
        return tuple(x.shape[p] for p in attrs["perm"])  # ascontiguousarray turns rank 0 into rank 1

    def cost(self, node: Node) -> Cost:
        return Cost(0, node.input_types[0].bytes + node.types[0].bytes)

    def rows(self, node: Node, axes: Sequence[int | None]) -> tuple[int | None, ...] | None:
        return (None if axes[0] is None else ints_attr(node.attrs, "perm").index(axes[0]),)


reshape = register(Reshape())
transpose = register(Transpose())


def filled(shape: Shape, elements: Size) -> Shape:
    """The shape with its -1 replaced by the remaining factor of ``elements``; raises Mismatch."""
    if -1 not in shape:
        return shape
    known = product(tuple(s for s in shape if s != -1))
    left = exact_div(elements, known)
    if shape.count(-1) > 1 or left is None:
        why = "two sizes are -1" if shape.count(-1) > 1 else f"{elements} elements are not divisible by {known}"
        raise Mismatch(why, "write the sizes", "E0303")
    return tuple(left if s == -1 else s for s in shape)


class ReshapeFunction(Function):
    """reshape(x, shape): the same elements in the same row-major order; one size may be -1: it is derived.

    given: x: [B, 8]
    >>> reshape(x, [B, 2, 4])
    """

    name = "reshape"

    def build(self, call: Call, x: Value, shape: Shape) -> Value:
        return call.emit(reshape, x, shape=filled(shape, x.type.elements))


class Flatten(Function):
    """flatten(x, start=1): all axes from ``start`` on become one; ``flatten`` alone keeps the batch.

    given: x: [B, 2, 4]
    >>> x |> flatten
    """

    name = "flatten"

    def build(self, call: Call, x: Value, start: int = 1) -> Value:
        shape = x.type.shape
        if not 0 <= start < max(1, len(shape)):
            raise Mismatch(f"`flatten` from axis {start} of {written(shape)}", "count axes from 0", "E0306")
        return call.emit(reshape, x, shape=(*shape[:start], product(shape[start:])))


class TransposeFunction(Function):
    """transpose(x, perm=none): axis ``i`` of the result is axis ``perm[i]`` of ``x``; default: the last two swap.

    given: x: [B, 2, 4]
    >>> transpose(x, [0, 2, 1])
    """

    name = "transpose"

    def build(self, call: Call, x: Value, perm: Ints | None = None) -> Value:
        rank = x.type.rank
        if perm is None:
            if rank < 2:
                raise Mismatch(f"{x.type} has no two axes to swap", "reshape it first", "E0306")
            perm = (*range(rank - 2), rank - 1, rank - 2)
        return call.emit(transpose, x, perm=tuple(p + rank if p < 0 else p for p in perm))


function(ReshapeFunction())
function(Flatten())
function(TransposeFunction())
