"""Reductions: sum, mean, max, min.

The order of additions depends only on the shape: it is numpy's for a contiguous array.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from dslc.compiler.ir.function import Axes, Call, Function, function
from dslc.compiler.ir.graph import Attrs, Node, Value
from dslc.compiler.ir.op import Builder, Cost, Mismatch, Op, register
from dslc.compiler.ir.sizes import Size, bounds, to_reach
from dslc.compiler.ir.types import DType, TensorType
from dslc.compiler.ops.attrs import bool_attr, int_tuple, ints_attr
from dslc.compiler.ops.constants.constant import constant
from dslc.compiler.ops.elementwise.arithmetic import Gradients, div, mul, only, require_kind
from dslc.compiler.ops.elementwise.convert import cast
from dslc.compiler.ops.elementwise.logic import eq
from dslc.compiler.ops.lazy import np
from dslc.compiler.ops.shape.broadcast import expand
from dslc.compiler.ops.shape.views import reshape

if TYPE_CHECKING:
    from dslc.compiler.ir.op import Array


def require_elements(op: str, sizes: Sequence[Size]) -> None:
    """Raises Mismatch E0308 unless there is at least one element to reduce, for every value of the dims."""
    for size in sizes:
        least = bounds(size)[0]
        if least < 1:
            help = "each reduced axis needs at least one"
            if not isinstance(size, int):
                declared = to_reach(size, 1) or "dim N in 8..64"
                help += f", and `{size}` may be {least}: raise the lower bound of its dim, as in `{declared}`"
            raise Mismatch(f"`{op}` over {size} elements", help, "E0308")


def kept_shape(shape: Sequence[Size], over: Sequence[int]) -> tuple[Size, ...]:
    """The shape with the axes in ``over`` reduced to 1."""
    return tuple(1 if axis in over else size for axis, size in enumerate(shape))


def position_after(axis: int, over: Sequence[int], keep: bool) -> int | None:
    """The index of an axis after a reduction; None if it is reduced."""
    if axis in over:
        return None
    return axis if keep else axis - sum(o < axis for o in over)


def summed_dtype(dtype: DType) -> DType:
    """The dtype of a sum or product of many: of integers i64, but u64 of u64."""
    return dtype if dtype.is_float or dtype is DType.U64 else DType.I64


def summed_in(x: Array) -> np.dtype[Any]:
    """``summed_dtype`` of an array, in numpy."""
    return x.dtype if x.dtype.kind == "f" or x.dtype == np.uint64 else np.dtype(np.int64)


class Reduction(Op):
    """Reduces all elements along the axes of the attribute ``over``; ``keep`` leaves them as axes of size 1."""

    kind: ClassVar[str] = "number"
    of_nothing: ClassVar[bool] = False
    input_reads = 1

    @abstractmethod
    def reduce(self, x: Array, over: tuple[int, ...], keep: bool) -> Any:
        """The result in numpy, of a contiguous array."""

    def result(self, dtype: DType) -> DType:
        return dtype

    def infer(self, types: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
        [x] = types
        over, keep = ints_attr(attrs, "over"), bool_attr(attrs, "keep")
        assert list(over) == sorted(set(over)) and all(0 <= axis < x.rank for axis in over), f"axes {over} of {x}"
        require_kind(self.name, x.dtype, self.kind)
        if not self.of_nothing:
            require_elements(self.name, [x.shape[axis] for axis in over])
        wide = kept_shape(x.shape, over)
        return (
            TensorType(self.result(x.dtype), wide if keep else tuple(s for i, s in enumerate(wide) if i not in over)),
        )

    def meaning(self, xs: Sequence[Array], attrs: Mapping[str, Any]) -> Sequence[Array]:
        x = np.ascontiguousarray(xs[0]).reshape(xs[0].shape)
        with np.errstate(all="ignore"):
            return [np.asarray(self.reduce(x, int_tuple(attrs, "over"), bool(attrs["keep"])))]

    def cost(self, node: Node) -> Cost:
        x = node.input_types[0]
        return Cost(x.bytes // x.dtype.itemsize, x.bytes + node.types[0].bytes)

    def rows(self, node: Node, axes: Sequence[int | None]) -> tuple[int | None, ...] | None:
        if axes[0] is None:
            return (None,)
        axis = position_after(axes[0], ints_attr(node.attrs, "over"), bool_attr(node.attrs, "keep"))
        return None if axis is None else (axis,)


def widened(b: Builder, node: Node, y: Value) -> Value:
    """``y``, with the shape of a reduction's output, with the reduced axes restored at size 1."""
    shape = kept_shape(node.inputs[0].type.shape, ints_attr(node.attrs, "over"))
    return y if y.type.shape == shape else b(reshape, y, shape=shape)


class Sum(Reduction):
    """sum(x): the sum over the axes ``over``; an empty sum is 0. Integers and b1 are added in i64, u64 in u64."""

    name = "sum"
    kernel_kind = "sums"
    wide = "reduction"
    mirror = True
    kind = "any"
    of_nothing = True

    def result(self, dtype: DType) -> DType:
        return summed_dtype(dtype)

    def reduce(self, x: Array, over: tuple[int, ...], keep: bool) -> Any:
        return np.sum(x, axis=over, keepdims=keep, dtype=summed_in(x))

    def grad(self, node: Node, dys: Gradients, b: Builder) -> Gradients:
        return (b(expand, widened(b, node, only(dys)), shape=node.inputs[0].type.shape),)


class Mean(Reduction):
    """mean(x): the mean over the axes ``over``, the sum divided by the number of elements."""

    name = "mean"
    kernel_kind = "sums"
    wide = "reduction"
    mirror = True
    kind = "float"

    def reduce(self, x: Array, over: tuple[int, ...], keep: bool) -> Any:
        count = math.prod(x.shape[axis] for axis in over)
        return np.sum(x, axis=over, keepdims=keep, dtype=x.dtype) / x.dtype.type(count)

    def grad(self, node: Node, dys: Gradients, b: Builder) -> Gradients:
        shape = node.inputs[0].type.ints
        count = math.prod(shape[axis] for axis in ints_attr(node.attrs, "over"))
        dy = only(dys)
        part = b(div, dy, constant(b, float(count), dy))
        return (b(expand, widened(b, node, part), shape=shape),)


class Extreme(Reduction):
    """The greatest or the least element; the gradient is shared evenly among all that are equal to it."""

    needs = (frozenset({"x0", "y0"}),)

    def grad(self, node: Node, dys: Gradients, b: Builder) -> Gradients:
        x, dy = node.inputs[0], only(dys)
        hit = b(cast, b(eq, x, widened(b, node, node.out)), dtype=x.type.dtype)
        count = b(sum_, hit, over=node.attrs["over"], keep=True)
        return (b(mul, hit, b(div, widened(b, node, dy), count)),)


class Max(Extreme):
    """max(x): the greatest element over the axes ``over``, nan if there is one; a zero is always 0.0.
    Equal elements share the gradient."""

    name = "max"
    mirror = True

    def reduce(self, x: Array, over: tuple[int, ...], keep: bool) -> Any:
        return np.max(x, axis=over, keepdims=keep) + x.dtype.type(0)


class Min(Extreme):
    """min(x): the least element over the axes ``over``, nan if there is one; a zero is always 0.0.
    Equal elements share the gradient."""

    name = "min"
    mirror = True

    def reduce(self, x: Array, over: tuple[int, ...], keep: bool) -> Any:
        return np.min(x, axis=over, keepdims=keep) + x.dtype.type(0)


sum_ = register(Sum())
mean = register(Mean())
max_ = register(Max())
min_ = register(Min())


def all_axes(x: Value, over: Axes | None) -> Axes:
    """The axes to reduce; all if none is named."""
    return tuple(range(x.type.rank)) if over is None else over


class SumFunction(Function):
    """sum(x, over=none, keep=false): the sum over an axis or a list of axes, by default over all axes.

    Integers and b1 are added in i64. ``keep`` leaves the axes with size 1.

    given: x: [B, 8]
    >>> sum(x, over=1)
    """

    name = "sum"

    def build(self, call: Call, x: Value, over: Axes | None = None, keep: bool = False) -> Value:
        return call.emit(sum_, x, over=all_axes(x, over), keep=keep)


class MeanFunction(Function):
    """mean(x, over=none, keep=false): the mean over an axis or a list of axes, by default over all axes.

    ``keep`` leaves the axes with size 1.

    given: x: [B, 8]
    >>> mean(x, over=[0, 1])
    """

    name = "mean"

    def build(self, call: Call, x: Value, over: Axes | None = None, keep: bool = False) -> Value:
        return call.emit(mean, x, over=all_axes(x, over), keep=keep)


class MaxFunction(Function):
    """max(x, over=none, keep=false): the greatest element over an axis or a list of axes, by default over all axes.

    ``keep`` leaves the axes with size 1. Equal greatest elements share the gradient evenly. nan if there is one; a
    greatest element of zero is 0.0, never -0.0.

    given: x: [B, 8]
    >>> max(x, over=1, keep=true)
    """

    name = "max"

    def build(self, call: Call, x: Value, over: Axes | None = None, keep: bool = False) -> Value:
        return call.emit(max_, x, over=all_axes(x, over), keep=keep)


class MinFunction(Function):
    """min(x, over=none, keep=false): the least element over an axis or a list of axes, by default over all axes.

    ``keep`` leaves the axes with size 1. Equal least elements share the gradient evenly. nan if there is one; a
    least element of zero is 0.0, never -0.0.

    given: x: [B, 8]
    >>> min(x, over=1)
    """

    name = "min"

    def build(self, call: Call, x: Value, over: Axes | None = None, keep: bool = False) -> Value:
        return call.emit(min_, x, over=all_axes(x, over), keep=keep)


for _function in (SumFunction, MeanFunction, MaxFunction, MinFunction):
    function(_function())
