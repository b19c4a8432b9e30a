"""gelu, by erf or by tanh, and its gradient."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from dslc.compiler.ir import scalar as tree
from dslc.compiler.ir.function import Call, Function, Operand, function
from dslc.compiler.ir.graph import Attrs, Node, Value
from dslc.compiler.ir.op import Builder, Mismatch, NoGradient, register
from dslc.compiler.ir.scalar import Expr
from dslc.compiler.ir.special import erf
from dslc.compiler.ops.attrs import bool_attr
from dslc.compiler.ops.elementwise.arithmetic import Elementwise, Gradients, only
from dslc.compiler.ops.elementwise.formula import built
from dslc.compiler.ops.lazy import np

if TYPE_CHECKING:
    from dslc.compiler.ir.op import Array

# gelu(x) = x * P(X <= x) for a standard normal X; the approximation is Hendrycks and Gimpel's, arXiv:1606.08415.
_ROOT_HALF = math.sqrt(0.5)
_DENSITY = 1.0 / math.sqrt(2.0 * math.pi)
_TANH_OUTER = math.sqrt(2.0 / math.pi)
_TANH_CUBIC = 0.044715


class Gelu(Elementwise):
    """gelu(x): ``x`` times the probability that a standard normal variable is less than ``x``.

    Attribute ``approximate``: false, by erf; true, ``0.5 * x * (1 + tanh(sqrt(2/pi) * (x + 0.044715 * x^3)))``.
    """

    name = "gelu"
    arity = 1
    accepts = "float"
    needs = (frozenset({"x0"}),)

    def scalar(self, attrs: Attrs, *xs: Expr) -> Expr:
        x = xs[0]
        if bool_attr(attrs, "approximate"):
            return x * 0.5 * (1 + tree.call("tanh", (x + x * x * x * _TANH_CUBIC) * _TANH_OUTER))
        return x * 0.5 * (1 + tree.call("erf", x * _ROOT_HALF))

    def compute(self, attrs: Mapping[str, Any], *xs: Array) -> Any:
        x = xs[0]
        if attrs["approximate"]:
            return x * 0.5 * (1 + np.tanh((x + x * x * x * _TANH_CUBIC) * _TANH_OUTER))
        return x * 0.5 * (1 + erf(x * x.dtype.type(_ROOT_HALF)))

    def grad(self, node: Node, dys: Gradients, b: Builder) -> Gradients:
        return (b(gelu_grad, node.inputs[0], only(dys), **node.attrs),)

    def in_gradient(self, node: Node, b: Builder) -> Sequence[Value | None]:
        return [built(self.scalar(node.attrs, tree.argument(0)), node.inputs, b)]


class GeluGrad(Elementwise):
    """gelu_grad(x, dy): ``dy`` times the derivative of gelu at ``x``; attribute ``approximate`` as in gelu."""

    name = "gelu_grad"
    arity = 2
    accepts = "float"

    def scalar(self, attrs: Attrs, *xs: Expr) -> Expr:
        x, dy = xs
        if bool_attr(attrs, "approximate"):
            t = tree.call("tanh", (x + x * x * x * _TANH_CUBIC) * _TANH_OUTER)
            inner = (1 + x * x * (3 * _TANH_CUBIC)) * _TANH_OUTER
            return dy * ((1 + t) * 0.5 + x * 0.5 * (1 - t * t) * inner)
        below = (1 + tree.call("erf", x * _ROOT_HALF)) * 0.5
        return dy * (below + x * tree.call("exp", x * x * -0.5) * _DENSITY)

    def compute(self, attrs: Mapping[str, Any], *xs: Array) -> Any:
        x, dy = xs
        if attrs["approximate"]:
            t = np.tanh((x + x * x * x * _TANH_CUBIC) * _TANH_OUTER)
            inner = (1 + x * x * (3 * _TANH_CUBIC)) * _TANH_OUTER
            return dy * ((1 + t) * 0.5 + x * 0.5 * (1 - t * t) * inner)
        below = (1 + erf(x * x.dtype.type(_ROOT_HALF))) * 0.5
        return dy * (below + x * np.exp(x * x * -0.5) * _DENSITY)

    def grad(self, node: Node, dys: Gradients, b: Builder) -> Gradients:
        raise NoGradient("`gradient` composes `gelu` of other ops")


gelu = register(Gelu())
gelu_grad = register(GeluGrad())


class GeluFunction(Function):
    """gelu(x, approximate="none"): ``x`` times the probability that a standard normal variable is less than ``x``.

    By erf, or with ``approximate="tanh"`` as ``0.5 * x * (1 + tanh(sqrt(2/pi) * (x + 0.044715 * x^3)))``.

    given: x: [B, 8]
    >>> gelu(x, approximate="tanh")
    """

    name = "gelu"

    def build(self, call: Call, x: Operand, approximate: str = "none") -> Value:
        if approximate not in ("none", "tanh"):
            raise Mismatch(f"`gelu` has no approximation {approximate!r}", 'write "none" or "tanh"', "E0209")
        return call.emit(gelu, *call.operands(x), approximate=approximate == "tanh")


function(GeluFunction())
