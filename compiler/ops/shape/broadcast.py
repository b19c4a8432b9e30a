"""expand and its gradient sum_to: broadcasting made explicit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from dslc.compiler.ir.function import Call, Function, Shape, function
from dslc.compiler.ir.graph import Attrs, Node, Value
from dslc.compiler.ir.op import Builder, Cost, Mismatch, Op, broadcast, register
from dslc.compiler.ir.sizes import Size
from dslc.compiler.ir.types import TensorType
from dslc.compiler.ops.attrs import int_tuple, shape_attr
from dslc.compiler.ops.elementwise.arithmetic import Gradients, only
from dslc.compiler.ops.lazy import np

if TYPE_CHECKING:
    from dslc.compiler.ir.op import Array


def written(shape: Sequence[Size]) -> str:
    """A shape in the syntax of the language."""
    return f"[{', '.join(map(str, shape))}]"


def _require_expands(small: tuple[Size, ...], large: tuple[Size, ...]) -> None:
    """Raises Mismatch unless ``small`` broadcasts to ``large`` as in numpy."""
    if len(small) <= len(large) and broadcast([small, large]) == large:
        return
    raise Mismatch(f"{written(small)} does not expand to {written(large)}", "only axes of size 1 expand", "E0301")


class Expand(Op):
    """expand(x): ``x`` repeated to the attribute ``shape`` by numpy's broadcasting, also to new leading axes."""

    name = "expand"
    kernel_kind = "copies"
    moves = True
    mirror = True

    def infer(self, types: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
        shape = shape_attr(attrs)
        _require_expands(types[0].shape, shape)
        return (TensorType(types[0].dtype, shape),)

    def grad(self, node: Node, dys: Gradients, b: Builder) -> Gradients:
        return (b(sum_to, only(dys), shape=node.inputs[0].type.shape),)

    def meaning(self, xs: Sequence[Array], attrs: Mapping[str, Any]) -> Sequence[Array]:
        return [np.array(np.broadcast_to(xs[0], int_tuple(attrs, "shape")), order="C")]

    def cost(self, node: Node) -> Cost:
        return Cost(0, node.input_types[0].bytes + node.types[0].bytes)

    def rows(self, node: Node, axes: Sequence[int | None]) -> tuple[int | None, ...] | None:
        return (None if axes[0] is None else axes[0] + node.types[0].rank - node.input_types[0].rank,)


class SumTo(Op):
    """sum_to(x): ``x`` summed to the attribute ``shape``, over the axes along which that shape would be broadcast.

    The order of the sum depends only on the shapes: it is numpy's for a contiguous array.
    """

    name = "sum_to"
    kernel_kind = "sums"
    input_reads = 1
    mirror = True

    def infer(self, types: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
        shape = shape_attr(attrs)
        _require_expands(shape, types[0].shape)
        return (TensorType(types[0].dtype, shape),)

    def grad(self, node: Node, dys: Gradients, b: Builder) -> Gradients:
        return (b(expand, only(dys), shape=node.inputs[0].type.shape),)

    def meaning(self, xs: Sequence[Array], attrs: Mapping[str, Any]) -> Sequence[Array]:
        x, shape = np.ascontiguousarray(xs[0]), int_tuple(attrs, "shape")
        new = x.ndim - len(shape)
        axes = tuple(a for a in range(x.ndim) if a < new or shape[a - new] != x.shape[a])
        return [np.asarray(np.sum(x, axis=axes, dtype=x.dtype)).reshape(shape)]  # numpy turns rank 0 into scalars

    def cost(self, node: Node) -> Cost:
        source = node.input_types[0]
        return Cost(source.bytes // source.dtype.itemsize, source.bytes + node.types[0].bytes)

    def rows(self, node: Node, axes: Sequence[int | None]) -> tuple[int | None, ...] | None:
        if axes[0] is None:
            return (None,)
        kept = axes[0] - (node.input_types[0].rank - node.types[0].rank)
        if kept < 0 or node.types[0].shape[kept] != node.input_types[0].shape[axes[0]]:
            return None
        return (kept,)


expand = register(Expand())
sum_to = register(SumTo())


class BroadcastTo(Function):
    """broadcast_to(x, shape): ``x`` repeated to ``shape``: axes of size 1, and new leading ones, as in numpy.

    A size of -1 keeps that of ``x``, as in PyTorch's ``expand``.

    given: x: [8]
    >>> broadcast_to(x, [4, 8])
    """

    name = "broadcast_to"

    def build(self, call: Call, x: Value, shape: Shape) -> Value:
        new = len(shape) - x.type.rank
        if -1 in shape[: max(new, 0)]:
            raise Mismatch("a new axis has no size to keep", "-1 is for an axis of `x`", "E0304")
        sizes = tuple(x.type.shape[i - new] if size == -1 and i >= new else size for i, size in enumerate(shape))
        return x if x.type.shape == sizes else call.emit(expand, x, shape=sizes)


function(BroadcastTo())
