"""Activations: relu, leaky_relu, elu, silu, hardswish, sigmoid, tanh, softplus."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from dslc.compiler.ir import scalar as tree
from dslc.compiler.ir.function import Call, Function, Operand, function
from dslc.compiler.ir.graph import Attrs, Node, Value
from dslc.compiler.ir.op import Builder, register
from dslc.compiler.ir.scalar import Expr
from dslc.compiler.ir.special import choose, larger
from dslc.compiler.ops.attrs import float_attr
from dslc.compiler.ops.constants.constant import constant
from dslc.compiler.ops.elementwise.arithmetic import Elementwise, Gradients, Unary, add, mul, only, scaled, sub
from dslc.compiler.ops.elementwise.logic import gt, le
from dslc.compiler.ops.elementwise.selection import where
from dslc.compiler.ops.elementwise.transcendental import exp
from dslc.compiler.ops.lazy import np

if TYPE_CHECKING:
    from dslc.compiler.ir.op import Array


def _logistic(x: Array) -> Any:
    """``1 / (1 + exp(-x))`` without overflow: the argument of the exponential is never positive."""
    e = np.asarray(np.exp(-np.abs(x)))
    return choose(x < 0, e, np.ones((), x.dtype)) / (1 + e)


def _logistic_tree(x: Expr) -> Expr:
    e = tree.call("exp", -tree.call("abs", x))
    return tree.select(x < 0, e, 1) / (1 + e)


class Relu(Elementwise):
    """relu(x): ``max(x, 0)``; relu(-0.0) is 0.0. The gradient at 0 is 0.

    given: x: [B, 8]
    >>> relu(x)
    """

    name = "relu"
    cheap = True
    arity = 1
    needs = (frozenset({"y0"}), frozenset({"x0"}))

    def scalar(self, attrs: Attrs, *xs: Expr) -> Expr:
        return tree.call("max", xs[0], 0)

    def compute(self, attrs: Mapping[str, Any], *xs: Array) -> Any:
        return larger(xs[0], xs[0].dtype.type(0))

    def grad(self, node: Node, dys: Gradients, b: Builder) -> Gradients:
        zero = constant(b, 0.0, node.out)
        return (b(where, b(le, node.out, zero), zero, only(dys)),)


class LeakyRelu(Elementwise):
    """leaky_relu(x): ``x`` for x > 0, else ``slope * x``, with the attribute ``slope``."""

    name = "leaky_relu"
    arity = 1
    accepts = "float"
    needs = (frozenset({"x0"}),)

    def scalar(self, attrs: Attrs, *xs: Expr) -> Expr:
        return tree.select(xs[0] > 0, xs[0], xs[0] * float_attr(attrs, "slope"))

    def compute(self, attrs: Mapping[str, Any], *xs: Array) -> Any:
        return choose(xs[0] > 0, xs[0], np.asarray(xs[0] * xs[0].dtype.type(attrs["slope"])))

    def grad(self, node: Node, dys: Gradients, b: Builder) -> Gradients:
        x, dy = node.inputs[0], only(dys)
        return (b(where, b(gt, x, constant(b, 0.0, x)), dy, scaled(b, float_attr(node.attrs, "slope"), dy)),)


class Elu(Elementwise):
    """elu(x): ``x`` for x > 0, else ``alpha * (exp(x) - 1)``, with the attribute ``alpha``."""

    name = "elu"
    arity = 1
    accepts = "float"
    needs = (frozenset({"x0"}),)

    def scalar(self, attrs: Attrs, *xs: Expr) -> Expr:
        return tree.select(xs[0] > 0, xs[0], tree.call("expm1", xs[0]) * float_attr(attrs, "alpha"))

    def compute(self, attrs: Mapping[str, Any], *xs: Array) -> Any:
        return choose(xs[0] > 0, xs[0], np.asarray(np.expm1(xs[0]) * xs[0].dtype.type(attrs["alpha"])))

    def grad(self, node: Node, dys: Gradients, b: Builder) -> Gradients:
        x, dy = node.inputs[0], only(dys)
        slope = scaled(b, float_attr(node.attrs, "alpha"), b(exp, x))  # not y + alpha: that cancels for very negative x
        return (b(where, b(gt, x, constant(b, 0.0, x)), dy, b(mul, dy, slope)),)


class Sigmoid(Elementwise):
    """sigmoid(x): ``1 / (1 + exp(-x))``, without overflow.

    given: x: [B, 8]
    >>> sigmoid(x)
    """

    name = "sigmoid"
    arity = 1
    accepts = "float"
    needs = (frozenset({"y0"}), frozenset({"x0"}))

    def scalar(self, attrs: Attrs, *xs: Expr) -> Expr:
        return _logistic_tree(xs[0])

    def compute(self, attrs: Mapping[str, Any], *xs: Array) -> Any:
        return _logistic(xs[0])

    def grad(self, node: Node, dys: Gradients, b: Builder) -> Gradients:
        y = node.out
        return (b(mul, only(dys), b(mul, y, b(sub, constant(b, 1.0, y), y))),)


class Tanh(Elementwise):
    """tanh(x): the hyperbolic tangent.

    given: x: [B, 8]
    >>> tanh(x)
    """

    name = "tanh"
    arity = 1
    accepts = "float"
    needs = (frozenset({"y0"}), frozenset({"x0"}))

    def scalar(self, attrs: Attrs, *xs: Expr) -> Expr:
        return tree.call("tanh", xs[0])

    def compute(self, attrs: Mapping[str, Any], *xs: Array) -> Any:
        return np.tanh(xs[0])

    def grad(self, node: Node, dys: Gradients, b: Builder) -> Gradients:
        y = node.out
        return (b(mul, only(dys), b(sub, constant(b, 1.0, y), b(mul, y, y))),)


class Silu(Elementwise):
    """silu(x): ``x * sigmoid(x)``, also called swish.

    given: x: [B, 8]
    >>> silu(x)
    """

    name = "silu"
    arity = 1
    accepts = "float"
    needs = (frozenset({"x0"}),)

    def scalar(self, attrs: Attrs, *xs: Expr) -> Expr:
        return xs[0] * _logistic_tree(xs[0])

    def compute(self, attrs: Mapping[str, Any], *xs: Array) -> Any:
        return xs[0] * _logistic(xs[0])

    def grad(self, node: Node, dys: Gradients, b: Builder) -> Gradients:
        x = node.inputs[0]
        one, s = constant(b, 1.0, x), b(sigmoid, x)
        slope = b(mul, s, b(add, one, b(mul, x, b(sub, one, s))))
        return (b(mul, only(dys), slope),)


class Softplus(Elementwise):
    """softplus(x): ``log(1 + exp(x))``, without overflow.

    given: x: [B, 8]
    >>> softplus(x)
    """

    name = "softplus"
    arity = 1
    accepts = "float"
    needs = (frozenset({"x0"}),)

    def scalar(self, attrs: Attrs, *xs: Expr) -> Expr:
        return tree.call("max", xs[0], 0) + tree.call("log1p", tree.call("exp", -tree.call("abs", xs[0])))

    def compute(self, attrs: Mapping[str, Any], *xs: Array) -> Any:
        return np.maximum(xs[0], xs[0].dtype.type(0)) + np.log1p(np.exp(-np.abs(xs[0])))

    def grad(self, node: Node, dys: Gradients, b: Builder) -> Gradients:
        return (b(mul, only(dys), b(sigmoid, node.inputs[0])),)


class Hardswish(Elementwise):
    """hardswish(x): ``x * min(max(x + 3, 0), 6) / 6`` (Howard et al. 2019). Its gradient is 0 at -3, 1.5 at 3.

    given: x: [B, 8]
    >>> hardswish(x)
    """

    name = "hardswish"
    arity = 1
    accepts = "float"
    needs = (frozenset({"x0"}),)

    def scalar(self, attrs: Attrs, *xs: Expr) -> Expr:
        return xs[0] * tree.call("min", tree.call("max", xs[0] + 3, 0), 6) / 6

    def compute(self, attrs: Mapping[str, Any], *xs: Array) -> Any:
        inner = xs[0].dtype.type
        return xs[0] * np.minimum(np.maximum(xs[0] + inner(3), inner(0)), inner(6)) / inner(6)

    def grad(self, node: Node, dys: Gradients, b: Builder) -> Gradients:
        x, dy = node.inputs[0], only(dys)
        slope = b(add, scaled(b, 1 / 3, x), constant(b, 0.5, x))
        inside = b(where, b(le, x, constant(b, -3.0, x)), constant(b, 0.0, x), slope)
        return (b(mul, dy, b(where, b(gt, x, constant(b, 3.0, x)), constant(b, 1.0, x), inside)),)


relu = register(Relu())
leaky_relu = register(LeakyRelu())
elu = register(Elu())
sigmoid = register(Sigmoid())
tanh = register(Tanh())
silu = register(Silu())
softplus = register(Softplus())
hardswish = register(Hardswish())


class LeakyReluFunction(Function):
    """leaky_relu(x, slope=0.01): ``x`` for x > 0, else ``slope * x``.

    given: x: [B, 8]
    >>> leaky_relu(x, 0.2)
    """

    name = "leaky_relu"

    def build(self, call: Call, x: Operand, slope: float = 0.01) -> Value:
        return call.emit(leaky_relu, *call.operands(x), slope=slope)


class EluFunction(Function):
    """elu(x, alpha=1): ``x`` for x > 0, else ``alpha * (exp(x) - 1)``.

    given: x: [B, 8]
    >>> elu(x)
    """

    name = "elu"

    def build(self, call: Call, x: Operand, alpha: float = 1.0) -> Value:
        return call.emit(elu, *call.operands(x), alpha=alpha)


for _op in (relu, sigmoid, tanh, silu, softplus, hardswish):
    function(Unary(_op))
function(LeakyReluFunction())
function(EluFunction())
