"""Order along an axis: argmax, argmin and topk."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from dslc.compiler.ir.function import Axis, Call, Function, function
from dslc.compiler.ir.graph import Attrs, Node, Value
from dslc.compiler.ir.op import Builder, Cost, Mismatch, NoGradient, Op, register
from dslc.compiler.ir.sizes import bounds, to_reach
from dslc.compiler.ir.types import DType, TensorType
from dslc.compiler.ops.attrs import bool_attr, int_attr
from dslc.compiler.ops.axes import from_zero
from dslc.compiler.ops.elementwise.arithmetic import Gradients, require_kind
from dslc.compiler.ops.index.indexing import scatter_add
from dslc.compiler.ops.lazy import np
from dslc.compiler.ops.reduction.reduce import position_after, require_elements
from dslc.compiler.ops.shape.views import reshape

if TYPE_CHECKING:
    from dslc.compiler.ir.op import Array


class ArgExtreme(Op):
    """The index of the first greatest or least element along the attribute ``axis``, as i32."""

    wide = "position"
    input_reads = 2

    @abstractmethod
    def places(self, x: Array, axis: int) -> Any:
        """The indices in numpy, of any integer dtype."""

    def infer(self, types: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
        axis, shape = int_attr(attrs, "axis"), types[0].shape
        assert 0 <= axis < len(shape)
        require_kind(self.name, types[0].dtype, "number")
        require_elements(self.name, [shape[axis]])
        return (TensorType(DType.I32, (*shape[:axis], *shape[axis + 1 :])),)

    def grad(self, node: Node, dys: Gradients, b: Builder) -> Gradients:
        return (None,)

    def meaning(self, xs: Sequence[Array], attrs: Mapping[str, Any]) -> Sequence[Array]:
        return [np.asarray(self.places(xs[0], int(attrs["axis"]))).astype(np.int32)]

    def cost(self, node: Node) -> Cost:
        x = node.input_types[0]
        return Cost(x.bytes // x.dtype.itemsize, x.bytes + node.types[0].bytes)

    def rows(self, node: Node, axes: Sequence[int | None]) -> tuple[int | None, ...] | None:
        if axes[0] is None:
            return (None,)
        axis = position_after(axes[0], (int_attr(node.attrs, "axis"),), False)
        return None if axis is None else (axis,)


class ArgMax(ArgExtreme):
    """argmax(x): the index of the first greatest element along the attribute ``axis``, as i32; nan counts as such."""

    name = "argmax"

    def places(self, x: Array, axis: int) -> Any:
        return np.argmax(x, axis=axis)


class ArgMin(ArgExtreme):
    """argmin(x): the index of the first least element along the attribute ``axis``, as i32; nan counts as such."""

    name = "argmin"

    def places(self, x: Array, axis: int) -> Any:
        return np.argmin(x, axis=axis)


def order(x: Array, axis: int, descending: bool) -> Array:
    """The indices of the elements along the axis in order, equal elements in ascending index order."""
    if not descending:
        return np.argsort(x, axis=axis, kind="stable")
    # a stable sort of the reversed line, read from its end
    return np.asarray(x.shape[axis] - 1 - np.flip(np.argsort(np.flip(x, axis), axis=axis, kind="stable"), axis))


class TopK(Op):
    """topk(x): the ``k`` greatest elements along ``axis``, the greatest first, and their indices along it as i32.

    Attributes ``axis`` (from 0), ``k``, ``largest``: false gives the least, the least first. Among equal elements the
    one with the lower index comes first; nan counts as greatest. The gradient goes to the elements taken.
    """

    name = "topk"
    wide = "position"
    needs = (frozenset({"y1"}),)

    def infer(self, types: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
        [x] = types
        axis, k = int_attr(attrs, "axis"), int_attr(attrs, "k")
        bool_attr(attrs, "largest")
        assert 0 <= axis < x.rank
        require_kind("topk", x.dtype, "number")
        least = bounds(x.shape[axis])[0]
        if not 1 <= k <= least:
            help = f"`k` from 1 to {least}" if least else "give that axis at least one element"
            declared = to_reach(x.shape[axis], k) if k > 0 else None
            help = help if declared is None else f"raise the lower bound of the dim: `{declared}`"
            raise Mismatch(f"the {k} greatest of {x.shape[axis]} elements", help, "E0209" if least else "E0308")
        shape = (*x.shape[:axis], k, *x.shape[axis + 1 :])
        return TensorType(x.dtype, shape), TensorType(DType.I32, shape)

    def grad(self, node: Node, dys: Gradients, b: Builder) -> Gradients:
        if dys[0] is None:
            raise NoGradient("no gradient flows through the indices of `topk`")
        axis = int_attr(node.attrs, "axis")
        return (b(scatter_add, dys[0], node.outputs[1], axis=axis, count=node.inputs[0].type.shape[axis]),)

    def meaning(self, xs: Sequence[Array], attrs: Mapping[str, Any]) -> Sequence[Array]:
        x, axis, k = xs[0], int(attrs["axis"]), int(attrs["k"])
        place = np.take(order(x, axis, attrs["largest"]), np.arange(k), axis=axis)
        return np.take_along_axis(x, place, axis), place.astype(np.int32)

    def cost(self, node: Node) -> Cost:
        [x] = node.input_types
        k = int_attr(node.attrs, "k")
        return Cost((x.bytes // x.dtype.itemsize) * k.bit_length(), x.bytes + sum(t.bytes for t in node.types))

    def rows(self, node: Node, axes: Sequence[int | None]) -> tuple[int | None, ...] | None:
        return None if axes[0] == int_attr(node.attrs, "axis") else (axes[0], axes[0])


argmax = register(ArgMax())
argmin = register(ArgMin())
topk = register(TopK())


def _place(call: Call, op: Op, x: Value, axis: int, keep: bool) -> Value:
    y, shape = call.emit(op, x, axis=axis), x.type.shape
    return call.emit(reshape, y, shape=(*shape[:axis], 1, *shape[axis + 1 :])) if keep else y


class ArgMaxFunction(Function):
    """argmax(x, axis=-1, keep=false): the index of the first greatest element along an axis, as i32.

    ``keep`` leaves the axis with size 1.

    given: x: [B, 8]
    >>> argmax(x)
    """

    name = "argmax"

    def build(self, call: Call, x: Value, axis: Axis = -1, keep: bool = False) -> Value:
        return _place(call, argmax, x, from_zero(self.name, x.type, axis), keep)


class ArgMinFunction(Function):
    """argmin(x, axis=-1, keep=false): the index of the first least element along an axis, as i32.

    ``keep`` leaves the axis with size 1.

    given: x: [B, 8]
    >>> argmin(x)
    """

    name = "argmin"

    def build(self, call: Call, x: Value, axis: Axis = -1, keep: bool = False) -> Value:
        return _place(call, argmin, x, from_zero(self.name, x.type, axis), keep)


class TopKFunction(Function):
    """topk(x, k, axis=-1, largest=true): the ``k`` greatest elements along an axis, descending, and their indices.

    Two results: the values, and their indices along the axis as i32. ``largest=false``: the least, ascending. Among
    equal elements the one with the lower index comes first. The gradient goes to the elements taken.

    given: x: [B, 8]
    >>> values, indices = topk(x, 3)
    """

    name = "topk"

    def build(self, call: Call, x: Value, k: int, axis: Axis = -1, largest: bool = True) -> tuple[Value, ...]:
        return call.emit_all(topk, x, k=k, axis=from_zero(self.name, x.type, axis), largest=largest)


for _function in (ArgMaxFunction, ArgMinFunction, TopKFunction):
    function(_function())
