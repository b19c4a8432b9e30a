"""Products, running sums and running products: prod, cumsum, cumprod."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from dslc.compiler.ir.function import Axes, Axis, Call, Function, function
from dslc.compiler.ir.graph import Attrs, Node, Value
from dslc.compiler.ir.op import Builder, Cost, Op, register
from dslc.compiler.ir.pull_back import Recorder, through
from dslc.compiler.ir.types import DType, TensorType
from dslc.compiler.ops.attrs import bool_attr, int_attr, int_tuple, ints_attr
from dslc.compiler.ops.axes import from_zero
from dslc.compiler.ops.elementwise.arithmetic import Gradients, mul, only
from dslc.compiler.ops.lazy import np
from dslc.compiler.ops.reduction.recurrence import before, recurrence
from dslc.compiler.ops.reduction.reduce import Reduction, all_axes, kept_shape, summed_dtype, summed_in, widened
from dslc.compiler.ops.shape.slicing import pad, piece
from dslc.compiler.ops.shape.views import reshape, transpose

if TYPE_CHECKING:
    from dslc.compiler.ir.op import Array


class Prod(Reduction):
    """prod(x): the product over the axes ``over``; an empty product is 1. In i64 for integers and b1, u64 for u64."""

    name = "prod"
    wide = "reduction"
    kind = "any"
    of_nothing = True
    needs = (frozenset({"x0"}),)

    def result(self, dtype: DType) -> DType:
        return summed_dtype(dtype)

    def reduce(self, x: Array, over: tuple[int, ...], keep: bool) -> Any:
        return np.prod(x, axis=over, keepdims=keep, dtype=summed_in(x))

    def grad(self, node: Node, dys: Gradients, b: Builder) -> Gradients:
        return (b(prod_grad, node.inputs[0], widened(b, node, only(dys)), over=node.attrs["over"]),)


class ProdGrad(Op):
    """prod_grad(x, dy): ``dy`` times the product of all other elements over the axes ``over``; zeros are allowed.

    ``dy`` has the shape of x with the axes ``over`` of size 1. The product of the elements before and of the elements
    after each element, in row-major order: there is no division.
    """

    name = "prod_grad"
    needs = (frozenset({"x0", "x1"}),)

    def infer(self, types: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
        x, dy = types
        assert x.dtype.is_float and dy == TensorType(x.dtype, kept_shape(x.shape, ints_attr(attrs, "over")))
        return (x,)

    def grad(self, node: Node, dys: Gradients, b: Builder) -> Gradients:
        x, dy = node.inputs
        over = ints_attr(node.attrs, "over")
        parts = Recorder().at(node, b.phase)
        y = parts(mul, _others(parts, x, over), dy)
        return through(parts.made, [y], node.inputs, dys, b)

    def meaning(self, xs: Sequence[Array], attrs: Mapping[str, Any]) -> Sequence[Array]:
        x, dy = xs
        over = int_tuple(attrs, "over")
        last = tuple(range(x.ndim - len(over), x.ndim))
        moved = np.moveaxis(x, over, last)
        kept = moved.shape[: x.ndim - len(over)]
        lines = moved.reshape(*kept, math.prod(moved.shape[len(kept) :]))
        others = np.ones_like(lines)
        with np.errstate(all="ignore"):
            others[..., 1:] = np.cumprod(lines[..., :-1], axis=-1)
            others[..., :-1] *= np.flip(np.cumprod(np.flip(lines[..., 1:], -1), axis=-1), -1)
            return [np.asarray(np.moveaxis(others.reshape(moved.shape), last, over) * dy)]

    def cost(self, node: Node) -> Cost:
        x = node.input_types[0]
        return Cost(4 * (x.bytes // x.dtype.itemsize), sum(t.bytes for t in (*node.input_types, *node.types)))

    def rows(self, node: Node, axes: Sequence[int | None]) -> tuple[int | None, ...] | None:
        return (axes[0],) if axes[0] == axes[1] and axes[0] not in ints_attr(node.attrs, "over") else None


def _others(b: Builder, x: Value, over: Sequence[int]) -> Value:
    """For each element of ``x``: the product of all others over the axes ``over``, composed of running products."""
    shape = x.type.ints
    order = (*(a for a in range(len(shape)) if a not in over), *over)
    moved = b(transpose, x, perm=order)
    axis = len(shape) - len(over)
    lines = b(reshape, moved, shape=(*moved.type.ints[:axis], math.prod(shape[a] for a in over)))
    sides = [before(b, b(cumprod, lines, axis=axis, reverse=reverse), axis, reverse, 1.0) for reverse in (False, True)]
    found = b(reshape, b(mul, *sides), shape=moved.type.ints)
    return b(transpose, found, perm=tuple(order.index(a) for a in range(len(shape))))


class Running(Op):
    """Combines each element with all before it along the attribute ``axis``; with ``reverse``, with all after it.

    In order, one after the other; integers and b1 in i64, u64 in u64.
    """

    combined: ClassVar[str]  # numpy's function
    input_reads = 1

    def infer(self, types: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
        [x] = types
        bool_attr(attrs, "reverse")
        assert 0 <= int_attr(attrs, "axis") < x.rank
        return (TensorType(summed_dtype(x.dtype), x.shape),)

    def meaning(self, xs: Sequence[Array], attrs: Mapping[str, Any]) -> Sequence[Array]:
        x, axis, function = xs[0], int(attrs["axis"]), getattr(np, self.combined)
        dtype = summed_in(x)
        with np.errstate(all="ignore"):
            if attrs["reverse"]:
                return [np.ascontiguousarray(np.flip(function(np.flip(x, axis), axis=axis, dtype=dtype), axis))]
            return [function(x, axis=axis, dtype=dtype)]

    def cost(self, node: Node) -> Cost:
        x, y = node.input_types[0], node.types[0]
        return Cost(x.bytes // x.dtype.itemsize, x.bytes + y.bytes)

    def rows(self, node: Node, axes: Sequence[int | None]) -> tuple[int | None, ...] | None:
        return None if axes[0] == int_attr(node.attrs, "axis") else (axes[0],)


class CumSum(Running):
    """cumsum(x): the sum of each element and all before it along ``axis``; with ``reverse``, all after it.

    Attributes ``axis`` (from 0) and ``reverse``. Added sequentially; integers and b1 in i64, u64 in u64.
    """

    name = "cumsum"
    wide = "reduction"
    combined = "cumsum"

    def grad(self, node: Node, dys: Gradients, b: Builder) -> Gradients:
        return (b(cumsum, only(dys), axis=node.attrs["axis"], reverse=not node.attrs["reverse"]),)


class CumProd(Running):
    """cumprod(x): the product of each element and all before it along ``axis``; with ``reverse``, all after it.

    Attributes ``axis`` (from 0) and ``reverse``. Multiplied sequentially; integers and b1 in i64, u64 in u64.
    """

    name = "cumprod"
    wide = "reduction"
    combined = "cumprod"
    needs = (frozenset({"x0", "y0"}),)

    def grad(self, node: Node, dys: Gradients, b: Builder) -> Gradients:
        """The product of the elements before each one, times the sum of ``dy`` from it on, each times the product of
        the elements between. Nothing is divided, so zeros are as any number."""
        [x], axis, reverse = node.inputs, int_attr(node.attrs, "axis"), bool_attr(node.attrs, "reverse")
        sums = b(recurrence, x, only(dys), axis=axis, reverse=not reverse, late=True)
        return (b(mul, before(b, node.out, axis, reverse, 1.0), sums),)


prod = register(Prod())
prod_grad = register(ProdGrad())
cumsum = register(CumSum())
cumprod = register(CumProd())


class ProdFunction(Function):
    """prod(x, over=none, keep=false): the product over an axis or a list of axes, by default over all axes.

    Integers and b1 are multiplied in i64, u64 in u64. ``keep`` leaves the axes with size 1.

    given: x: [B, 8]
    >>> prod(x, over=1)
    """

    name = "prod"

    def build(self, call: Call, x: Value, over: Axes | None = None, keep: bool = False) -> Value:
        return call.emit(prod, x, over=all_axes(x, over), keep=keep)


class CumSumFunction(Function):
    """cumsum(x, axis=-1, reverse=false, exclusive=false): the sum of each element and all before it along an axis.

    With ``reverse``, of each element and all after it; with ``exclusive``, without the element itself. Integers and b1
    are added in i64.

    given: x: [B, 8]
    >>> cumsum(x, axis=1)
    """

    name = "cumsum"

    def build(self, call: Call, x: Value, axis: Axis = -1, reverse: bool = False, exclusive: bool = False) -> Value:
        return _running(call, cumsum, x, from_zero(self.name, x.type, axis), reverse, 0 if exclusive else None)


def _running(call: Call, op: Op, x: Value, axis: int, reverse: bool, first: int | None) -> Value:
    """The results of ``op``; with ``first``, that and then the results without the last element: to take the element
    out of each result would cancel, or divide by 0."""
    size = x.type.shape[axis]
    if first is None or size == 0:
        return call.emit(op, x, axis=axis, reverse=reverse)
    part = piece(call, x, axis, 1, size) if reverse else piece(call, x, axis, 0, size - 1)
    found = call.emit(op, part, axis=axis, reverse=reverse)
    none, one = (0,) * x.type.rank, tuple(int(i == axis) for i in range(x.type.rank))
    low, high = (none, one) if reverse else (one, none)
    return call.emit(pad, found, low=low, high=high, interior=none, value=float(first))


class CumProdFunction(Function):
    """cumprod(x, axis=-1, reverse=false, exclusive=false): the product of each element and all before it along an axis.

    With ``reverse``, of each element and all after it; with ``exclusive``, without the element itself. Integers and b1
    are multiplied in i64, and u64 in u64. Zeros have a gradient.

    given: x: [B, 8]
    >>> cumprod(1 - sigmoid(x), axis=1)
    """

    name = "cumprod"

    def build(self, call: Call, x: Value, axis: Axis = -1, reverse: bool = False, exclusive: bool = False) -> Value:
        return _running(call, cumprod, x, from_zero(self.name, x.type, axis), reverse, 1 if exclusive else None)


function(ProdFunction())
function(CumProdFunction())
function(CumSumFunction())
