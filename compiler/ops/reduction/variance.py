"""var and std, composed of means; any and all, composed of counts."""

from __future__ import annotations

from dslc.compiler.ir.function import Axes, Call, Function, function
from dslc.compiler.ir.graph import Value
from dslc.compiler.ir.op import Mismatch
from dslc.compiler.ir.sizes import bounds, product
from dslc.compiler.ops.constants.constant import full
from dslc.compiler.ops.elementwise.arithmetic import div, mul, require_kind, sub
from dslc.compiler.ops.elementwise.convert import stop_gradient
from dslc.compiler.ops.elementwise.logic import eq, gt, logical_not, ne
from dslc.compiler.ops.elementwise.powers import sqrt
from dslc.compiler.ops.elementwise.selection import where
from dslc.compiler.ops.reduction.reduce import all_axes, mean, sum_
from dslc.compiler.ops.shape.slicing import slice_


class Var(Function):
    """var(x, over=none, keep=false, correction=0): the mean square distance from the mean.

    The sum of squares is divided by the number of elements minus ``correction``; 1 gives the unbiased estimate, as
    PyTorch's function does by default. A large common offset of x costs no digits.

    given: x: [B, 8]
    >>> var(x, over=1)
    """

    name = "var"

    def build(self, call: Call, x: Value, over: Axes | None = None, keep: bool = False, correction: int = 0) -> Value:
        axes = all_axes(x, over)
        count = product(tuple(x.type.shape[axis] for axis in axes))
        if correction < 0 or bounds(count - correction)[0] < 1:
            why = f"`var` of {count} elements with correction {correction}"
            raise Mismatch(why, "correction is 0 or 1, and less than the number of elements", "E0308")
        # distances from a first element are exact for a large common offset; the rounded mean is not
        apart = call.emit(sub, x, call.emit(stop_gradient, _first(call, x, axes)))
        centred = call.emit(sub, apart, call.emit(mean, apart, over=axes, keep=True))
        squares = call.emit(mul, centred, centred)
        if not correction:
            return call.emit(mean, squares, over=axes, keep=keep)
        total = call.emit(sum_, squares, over=axes, keep=keep)
        return call.emit(div, total, call.emit(full, value=count - correction, dtype=total.type.dtype, shape=()))


def _first(call: Call, x: Value, axes: Axes) -> Value:
    """The first elements of x along ``axes``, which stay with size 1."""
    shape = x.type.shape
    stops = tuple(1 if axis in axes else size for axis, size in enumerate(shape))
    return call.emit(slice_, x, starts=(0,) * len(shape), stops=stops, steps=(1,) * len(shape))


class Std(Function):
    """std(x, over=none, keep=false, correction=0): the square root of ``var``. Its gradient is 0 where all are equal.

    given: x: [B, 8]
    >>> std(x, over=1)
    """

    name = "std"

    def build(self, call: Call, x: Value, over: Axes | None = None, keep: bool = False, correction: int = 0) -> Value:
        found = Var().build(call, x, over, keep, correction)
        spread = call.emit(gt, *call.operands(found, 0.0))
        root = call.emit(sqrt, call.emit(where, spread, *call.operands(found, 1.0)))
        return call.emit(where, spread, root, found)  # 0 and nan stay


def _count(call: Call, x: Value, over: Axes | None, keep: bool) -> Value:
    """How many are true."""
    require_kind("any", x.type.dtype, "bool")
    return call.emit(sum_, x, over=all_axes(x, over), keep=keep)


class Any(Function):
    """any(x, over=none, keep=false): true if at least one element of a b1 tensor is true; false for an empty axis.

    given: x: [B, 8]
    >>> any(x > 0, over=1)
    """

    name = "any"

    def build(self, call: Call, x: Value, over: Axes | None = None, keep: bool = False) -> Value:
        return call.emit(ne, *call.operands(_count(call, x, over, keep), 0))


class All(Function):
    """all(x, over=none, keep=false): true if all elements of a b1 tensor are true; true for an empty axis.

    given: x: [B, 8]
    >>> all(x > 0, over=1)
    """

    name = "all"

    def build(self, call: Call, x: Value, over: Axes | None = None, keep: bool = False) -> Value:
        require_kind(self.name, x.type.dtype, "bool")
        return call.emit(eq, *call.operands(_count(call, call.emit(logical_not, x), over, keep), 0))


for _function in (Var, Std, Any, All):
    function(_function())
