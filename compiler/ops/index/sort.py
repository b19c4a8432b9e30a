"""Sorting along an axis: the op sort, its gradient unsort, and the functions sort and argsort."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from dslc.compiler.ir.function import Axis, Call, Function, function
from dslc.compiler.ir.graph import Attrs, Node, Value
from dslc.compiler.ir.op import Builder, Cost, NoGradient, Op, register
from dslc.compiler.ir.sizes import Size
from dslc.compiler.ir.types import DType, TensorType
from dslc.compiler.ops.attrs import bool_attr, int_attr
from dslc.compiler.ops.axes import from_zero
from dslc.compiler.ops.elementwise.arithmetic import Gradients, only, require_kind
from dslc.compiler.ops.index.embedding import existing
from dslc.compiler.ops.index.indexing import gather, require_agreement
from dslc.compiler.ops.index.ordering import order
from dslc.compiler.ops.lazy import np

if TYPE_CHECKING:
    from dslc.compiler.ir.op import Array


class Sort(Op):
    """sort(x): the elements along ``axis``, the least first, or the greatest if ``descending``; and their i32 indices.

    Equal elements keep their order, and so do zeros of either sign; nan counts as greatest, as in PyTorch.
    """

    name = "sort"
    wide = "position"
    needs = (frozenset({"y1"}),)

    def infer(self, types: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
        [x] = types
        bool_attr(attrs, "descending")
        assert 0 <= int_attr(attrs, "axis") < x.rank
        require_kind("sort", x.dtype, "number")
        return x, TensorType(DType.I32, x.shape)

    def grad(self, node: Node, dys: Gradients, b: Builder) -> Gradients:
        if dys[0] is None:
            raise NoGradient("no gradient flows through the indices of `sort`")
        return (b(unsort, dys[0], node.outputs[1], axis=node.attrs["axis"]),)

    def meaning(self, xs: Sequence[Array], attrs: Mapping[str, Any]) -> Sequence[Array]:
        [x], axis = xs, int(attrs["axis"])
        place = order(x, axis, attrs["descending"])
        return np.take_along_axis(x, place, axis), place.astype(np.int32)

    def cost(self, node: Node) -> Cost:
        [x] = node.input_types
        count = x.ints[int_attr(node.attrs, "axis")]
        return Cost((x.bytes // x.dtype.itemsize) * count.bit_length(), x.bytes + sum(t.bytes for t in node.types))

    def rows(self, node: Node, axes: Sequence[int | None]) -> tuple[int | None, ...] | None:
        return None if axes[0] == int_attr(node.attrs, "axis") else (axes[0], axes[0])


class Unsort(Op):
    """unsort(y, index): element [i, index[i, j, k], k] of the result is ``y[i, j, k]`` for axis 1.

    The gradient of sort. Along the axis, the indices are 0..n-1 in any order, so each element is written once.
    """

    name = "unsort"
    needs = (frozenset({"x1"}),)

    def infer(self, types: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
        y, index = types
        require_agreement("unsort", y, index, int_attr(attrs, "axis"))
        assert y.shape == index.shape
        return (y,)

    def grad(self, node: Node, dys: Gradients, b: Builder) -> Gradients:
        return b(gather, only(dys), node.inputs[1], axis=node.attrs["axis"]), None

    def meaning(self, xs: Sequence[Array], attrs: Mapping[str, Any]) -> Sequence[Array]:
        (y, index), axis = xs, int(attrs["axis"])
        x = np.zeros_like(y)
        np.put_along_axis(x, existing(index, y.shape[axis])[0], y, axis)
        return [x]

    def cost(self, node: Node) -> Cost:
        return Cost(0, sum(t.bytes for t in (*node.input_types, *node.types)))

    def index_range(self, node: Node, index: int) -> tuple[int, Size] | None:
        return (0, node.inputs[0].type.shape[int_attr(node.attrs, "axis")]) if index == 1 else None

    def rows(self, node: Node, axes: Sequence[int | None]) -> tuple[int | None, ...] | None:
        return (axes[0],) if axes[0] == axes[1] != int_attr(node.attrs, "axis") else None


sort = register(Sort())
unsort = register(Unsort())


class SortFunction(Function):
    """sort(x, axis=-1, descending=false): the elements along an axis in order, and their indices.

    Two results: the values, the least first, and their indices along the axis as i32. Equal elements keep their order;
    nan comes last, or first if ``descending``. The gradient of a value goes to the element that it is.

    given: x: [B, 8]
    >>> values, indices = sort(x, descending=true)
    """

    name = "sort"

    def build(self, call: Call, x: Value, axis: Axis = -1, descending: bool = False) -> tuple[Value, ...]:
        return call.emit_all(sort, x, axis=from_zero(self.name, x.type, axis), descending=descending)


class ArgSort(Function):
    """argsort(x, axis=-1, descending=false): the indices of the elements along an axis in order, as i32.

    The second result of ``sort``.

    given: x: [B, 8]
    >>> argsort(x)
    """

    name = "argsort"

    def build(self, call: Call, x: Value, axis: Axis = -1, descending: bool = False) -> Value:
        return call.emit_all(sort, x, axis=from_zero(self.name, x.type, axis), descending=descending)[1]


function(SortFunction())
function(ArgSort())
