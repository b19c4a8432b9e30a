"""where, minimum, maximum, clip: elementwise selection."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import isfinite
from typing import TYPE_CHECKING, Any, ClassVar

from dslc.compiler.ir import scalar as tree
from dslc.compiler.ir.function import Call, Function, Operand, function
from dslc.compiler.ir.graph import Attr, Attrs, Node, Value
from dslc.compiler.ir.op import Builder, Mismatch, register
from dslc.compiler.ir.scalar import Expr
from dslc.compiler.ir.special import choose, larger, lesser
from dslc.compiler.ir.types import DType
from dslc.compiler.ops.constants.constant import constant
from dslc.compiler.ops.elementwise.arithmetic import Binary, Elementwise, Gradients, only, scaled
from dslc.compiler.ops.elementwise.logic import eq, gt, lt

if TYPE_CHECKING:
    from dslc.compiler.ir.op import Array


class Where(Elementwise):
    """where(cond, x, y): ``x`` where ``cond`` (b1) is true, else ``y``.

    given: x: [B, 8], y: [8]
    >>> where(x > y, x, 0)
    """

    name = "where"
    cheap = True
    arity = 3
    needs = (frozenset({"x0"}),)

    def result(self, dtypes: Sequence[DType], attrs: Attrs) -> DType:
        if dtypes[0] is not DType.B1:
            raise Mismatch(f"the condition of `where` is {dtypes[0]}, not b1", "compare it: `where(c != 0, ...)`")
        if dtypes[1] is not dtypes[2]:
            raise Mismatch(f"`where` of {dtypes[1]} and {dtypes[2]}", "convert one side with `cast`", "E0204")
        return dtypes[1]

    def scalar(self, attrs: Attrs, *xs: Expr) -> Expr:
        return tree.select(xs[0], xs[1], xs[2])

    def compute(self, attrs: Mapping[str, Any], *xs: Array) -> Any:
        return choose(xs[0], xs[1], xs[2])

    def grad(self, node: Node, dys: Gradients, b: Builder) -> Gradients:
        dy = only(dys)
        zero = constant(b, 0.0, dy)
        return None, b(where, node.inputs[0], dy, zero), b(where, node.inputs[0], zero, dy)


class Extremum(Elementwise):
    """The smaller or the greater of two; a tie's gradient goes half to each side, as in PyTorch."""

    arity = 2
    needs = (frozenset({"x0", "x1"}),)
    least: ClassVar[bool]
    cheap = True

    def scalar(self, attrs: Attrs, *xs: Expr) -> Expr:
        return tree.call("min" if self.least else "max", *xs)

    def compute(self, attrs: Mapping[str, Any], *xs: Array) -> Any:
        return (lesser if self.least else larger)(xs[0], xs[1])

    def grad(self, node: Node, dys: Gradients, b: Builder) -> Gradients:
        x, y = node.inputs
        dy = only(dys)
        zero, half, tie = constant(b, 0.0, dy), scaled(b, 0.5, dy), b(eq, x, y)
        first = b(lt if self.least else gt, x, y)
        return (
            b(where, tie, half, b(where, first, dy, zero)),
            b(where, tie, half, b(where, first, zero, dy)),
        )


class Minimum(Extremum):
    """minimum(x, y): the smaller of the two, nan if one is nan; -0.0 is less than 0.0.

    The gradient of a tie goes half to each side.

    given: x: [B, 8], y: [8]
    >>> minimum(x, y)
    """

    name = "minimum"
    least = True


class Maximum(Extremum):
    """maximum(x, y): the greater of the two, nan if one is nan; 0.0 is greater than -0.0.

    The gradient of a tie goes half to each side.

    given: x: [B, 8]
    >>> maximum(x, 0)
    """

    name = "maximum"
    least = False


class Clip(Elementwise):
    """clip(x, low, high): ``x`` limited to low..high; the gradient is 1 inside and on the limits, 0 outside."""

    name = "clip"
    arity = 1
    needs = (frozenset({"x0"}),)

    def result(self, dtypes: Sequence[DType], attrs: Attrs) -> DType:
        dtype = super().result(dtypes, attrs)
        low, high = (attrs.get(k) for k in ("low", "high"))
        for limit in (low, high):
            if dtype.is_int and isinstance(limit, float):
                raise Mismatch(f"`clip` of {dtype} with the limit {limit}", "write the limit as an integer", "E0204")
            if dtype.is_int and isinstance(limit, int) and not dtype.limits[0] <= limit <= dtype.limits[1]:
                help = f"{dtype} holds {dtype.limits[0]} to {dtype.limits[1]}: leave this limit out"
                raise Mismatch(f"`clip` of {dtype} with the limit {limit}", help, "E0209")
        if isinstance(low, int | float) and isinstance(high, int | float) and low > high:
            raise Mismatch(f"`clip` from {low} to {high}", "put the lower limit first", "E0209")
        return dtype

    def scalar(self, attrs: Attrs, *xs: Expr) -> Expr:
        x = xs[0]
        for bound, pick in (("low", "max"), ("high", "min")):
            limit = attrs.get(bound)
            if isinstance(limit, int | float):
                x = tree.call(pick, x, limit)
        return x

    def compute(self, attrs: Mapping[str, Any], *xs: Array) -> Any:
        x = xs[0]
        if "low" in attrs:
            x = larger(x, x.dtype.type(attrs["low"]))
        if "high" in attrs:
            x = lesser(x, x.dtype.type(attrs["high"]))
        return x

    def grad(self, node: Node, dys: Gradients, b: Builder) -> Gradients:
        dx = only(dys)
        zero = constant(b, 0.0, dx)
        for bound, outside in (("low", lt), ("high", gt)):
            limit = node.attrs.get(bound)
            if isinstance(limit, int | float):
                x = node.inputs[0]
                dx = b(where, b(outside, x, constant(b, limit, x)), zero, dx)
        return (dx,)


where = register(Where())
minimum = register(Minimum())
maximum = register(Maximum())
clip = register(Clip())


class WhereFunction(Function):
    """where(cond, x, y): ``x`` where ``cond`` (b1) is true, else ``y``.

    A number takes the dtype of the other side. Two numbers, as in ``where(x > y, 0, 1)``, give floats, and two of
    ``true`` and ``false`` give b1.

    given: x: [B, 8], y: [8]
    >>> where(x > y, x, 0)
    """

    name = "where"

    def build(self, call: Call, cond: Value, x: Operand, y: Operand) -> Value:
        return call.emit(where, cond, *call.operands(x, y))


class ClipFunction(Function):
    """clip(x, low=none, high=none): ``x`` limited to low..high.

    The gradient is 1 inside and on the limits, 0 outside. nan stays nan. A limit may be a tensor that broadcasts with
    x; then this is ``minimum(maximum(x, low), high)``, whose gradient of a tie goes half to each side.

    given: x: [B, 8]
    >>> clip(x, -1, 1)
    """

    name = "clip"

    def build(self, call: Call, x: Value, low: Operand | None = None, high: Operand | None = None) -> Value:
        if low is None and high is None:
            raise Mismatch("`clip` without a limit", "give `low`, `high` or both: `clip(x, low=0)`", "E0201")
        numbers = {"low": low, "high": high}
        if all(limit is None or isinstance(limit, (int, float)) for limit in numbers.values()):
            return call.emit(clip, x, **{k: _limit(x.type.dtype, v) for k, v in numbers.items() if v is not None})
        for limit, pick in ((low, maximum), (high, minimum)):
            if limit is not None:
                x = call.emit(pick, *call.operands(x, limit))
        return x


def _limit(dtype: DType, number: Any) -> Attr:
    """A limit as an attribute: an int for a tensor of integers, whose op refuses a fraction."""
    if isinstance(number, bool):
        raise Mismatch(f"a limit of `clip` is {str(number).lower()}", "write a number", "E0202")
    if not isfinite(number):
        raise Mismatch(f"a limit of `clip` is {number}", "leave this limit out", "E0209")
    return int(number) if dtype.is_int and float(number).is_integer() else float(number)


for _op in (minimum, maximum):
    function(Binary(_op))
function(WhereFunction())
function(ClipFunction())
