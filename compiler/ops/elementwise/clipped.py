"""Activations with corners: hardtanh, relu6, hardsigmoid, hardshrink, softshrink, threshold."""

from __future__ import annotations

from collections.abc import Sequence

from dslc.compiler.ir import scalar as tree
from dslc.compiler.ir.function import Call, Function, Operand, function
from dslc.compiler.ir.graph import Attrs, Value
from dslc.compiler.ir.op import Mismatch, register
from dslc.compiler.ir.scalar import Expr
from dslc.compiler.ops.attrs import float_attr
from dslc.compiler.ops.elementwise.arithmetic import Unary
from dslc.compiler.ops.elementwise.formula import Of1


class Hardtanh(Of1):
    """hardtanh(x): ``x`` limited to the attributes ``low``..``high``; its slope is 0 on the limits, too."""

    name = "hardtanh"

    def scalar(self, attrs: Attrs, *xs: Expr) -> Expr:
        return tree.call("min", tree.call("max", xs[0], float_attr(attrs, "low")), float_attr(attrs, "high"))

    def backward(self, attrs: Attrs, *xs: Expr) -> Sequence[Expr]:
        x, dy = xs
        above = tree.select(x <= float_attr(attrs, "low"), 0, dy)
        return (tree.select(x >= float_attr(attrs, "high"), 0, above),)


class Hardsigmoid(Of1):
    """hardsigmoid(x): ``min(max(x + 3, 0), 6) / 6``. Its gradient is 0 at -3 and 3.

    given: x: [B, 8]
    >>> hardsigmoid(x)
    """

    name = "hardsigmoid"

    def scalar(self, attrs: Attrs, *xs: Expr) -> Expr:
        return tree.call("min", tree.call("max", xs[0] + 3, 0), 6) / 6

    def backward(self, attrs: Attrs, *xs: Expr) -> Sequence[Expr]:
        x, dy = xs
        return (tree.select(x >= 3, 0, tree.select(x <= -3, 0, dy * (1 / 6))),)


class Hardshrink(Of1):
    """hardshrink(x): 0 where ``abs(x) <= lambd``, an attribute, else ``x``."""

    name = "hardshrink"

    def scalar(self, attrs: Attrs, *xs: Expr) -> Expr:
        return tree.select(tree.call("abs", xs[0]) <= float_attr(attrs, "lambd"), 0, xs[0])

    def backward(self, attrs: Attrs, *xs: Expr) -> Sequence[Expr]:
        x, dy = xs
        return (tree.select(tree.call("abs", x) <= float_attr(attrs, "lambd"), 0, dy),)


class Softshrink(Hardshrink):
    """softshrink(x): ``x`` moved towards 0 by the attribute ``lambd``, 0 where ``abs(x) <= lambd``."""

    name = "softshrink"

    def scalar(self, attrs: Attrs, *xs: Expr) -> Expr:
        x, lambd = xs[0], float_attr(attrs, "lambd")
        moved = tree.select(x < 0, x + lambd, x - lambd)
        return tree.select(tree.call("abs", x) <= lambd, 0, moved)


class Threshold(Of1):
    """threshold(x): ``x`` where it is greater than the attribute ``threshold``, else the attribute ``value``."""

    name = "threshold"

    def scalar(self, attrs: Attrs, *xs: Expr) -> Expr:
        return tree.select(xs[0] <= float_attr(attrs, "threshold"), float_attr(attrs, "value"), xs[0])

    def backward(self, attrs: Attrs, *xs: Expr) -> Sequence[Expr]:
        x, dy = xs
        return (tree.select(x <= float_attr(attrs, "threshold"), 0, dy),)


hardtanh = register(Hardtanh())
hardsigmoid = register(Hardsigmoid())
hardshrink = register(Hardshrink())
softshrink = register(Softshrink())
threshold_ = register(Threshold())


class HardtanhFunction(Function):
    """hardtanh(x, low=-1, high=1): ``x`` limited to low..high. Unlike that of ``clip``, its gradient on a limit is 0.

    given: x: [B, 8]
    >>> hardtanh(x)
    """

    name = "hardtanh"

    def build(self, call: Call, x: Operand, low: float = -1.0, high: float = 1.0) -> Value:
        if low >= high:
            raise Mismatch(f"`hardtanh` from {low:g} to {high:g}", "put the lower limit first", "E0209")
        return call.emit(hardtanh, *call.operands(x), low=low, high=high)


class Relu6(Function):
    """relu6(x): ``min(max(x, 0), 6)``. Its gradient is 0 at 0 and 6.

    given: x: [B, 8]
    >>> relu6(x)
    """

    name = "relu6"

    def build(self, call: Call, x: Operand) -> Value:
        return call.emit(hardtanh, *call.operands(x), low=0.0, high=6.0)


def _checked(name: str, lambd: float) -> float:
    if lambd < 0:
        raise Mismatch(f"`{name}` with lambd = {lambd:g}", "lambd is a distance from 0: not negative", "E0209")
    return lambd


class HardshrinkFunction(Function):
    """hardshrink(x, lambd=0.5): 0 where ``abs(x) <= lambd``, else ``x``.

    given: x: [B, 8]
    >>> hardshrink(x)
    """

    name = "hardshrink"

    def build(self, call: Call, x: Operand, lambd: float = 0.5) -> Value:
        return call.emit(hardshrink, *call.operands(x), lambd=_checked(self.name, lambd))


class SoftshrinkFunction(Function):
    """softshrink(x, lambd=0.5): ``x`` moved towards 0 by ``lambd``, 0 where ``abs(x) <= lambd``.

    given: x: [B, 8]
    >>> softshrink(x)
    """

    name = "softshrink"

    def build(self, call: Call, x: Operand, lambd: float = 0.5) -> Value:
        return call.emit(softshrink, *call.operands(x), lambd=_checked(self.name, lambd))


class ThresholdFunction(Function):
    """threshold(x, threshold, value): ``x`` where it is greater than ``threshold``, else ``value``.

    given: x: [B, 8]
    >>> threshold(x, 0.1, 0)
    """

    name = "threshold"

    def build(self, call: Call, x: Operand, threshold: float, value: float) -> Value:
        return call.emit(threshold_, *call.operands(x), threshold=threshold, value=value)


function(Unary(hardsigmoid))
for _function in (HardtanhFunction, Relu6, HardshrinkFunction, SoftshrinkFunction, ThresholdFunction):
    function(_function())
