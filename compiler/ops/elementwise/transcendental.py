"""Exponentials, logarithms, trigonometry, erf, rounding."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from dslc.compiler.ir import scalar as tree
from dslc.compiler.ir.function import function
from dslc.compiler.ir.graph import Attrs, Node
from dslc.compiler.ir.op import Builder, register
from dslc.compiler.ir.scalar import Expr
from dslc.compiler.ir.special import erf as erf_values
from dslc.compiler.ops.constants.constant import constant
from dslc.compiler.ops.elementwise.arithmetic import Elementwise, Gradients, Unary, add, div, mul, neg, only, scaled
from dslc.compiler.ops.lazy import np

if TYPE_CHECKING:
    from dslc.compiler.ir.op import Array


class Exp(Elementwise):
    """exp(x): e to the power ``x``.

    given: x: [B, 8]
    >>> exp(x)
    """

    name = "exp"
    wide = "exponent"
    arity = 1
    accepts = "float"
    needs = (frozenset({"y0"}), frozenset({"x0"}))

    def scalar(self, attrs: Attrs, *xs: Expr) -> Expr:
        return tree.call("exp", *xs)

    def compute(self, attrs: Mapping[str, Any], *xs: Array) -> Any:
        return np.exp(xs[0])

    def grad(self, node: Node, dys: Gradients, b: Builder) -> Gradients:
        return (b(mul, only(dys), node.out),)


class Expm1(Elementwise):
    """expm1(x): ``exp(x) - 1``, accurate near 0.

    given: x: [B, 8]
    >>> expm1(x)
    """

    name = "expm1"
    wide = "exponent"
    arity = 1
    accepts = "float"
    needs = (frozenset({"x0"}),)

    def scalar(self, attrs: Attrs, *xs: Expr) -> Expr:
        return tree.call("expm1", *xs)

    def compute(self, attrs: Mapping[str, Any], *xs: Array) -> Any:
        return np.expm1(xs[0])

    def grad(self, node: Node, dys: Gradients, b: Builder) -> Gradients:
        return (b(mul, only(dys), b(exp, node.inputs[0])),)  # not y + 1, which cancels for very negative x


class Log(Elementwise):
    """log(x): the natural logarithm; -inf at 0, nan for x < 0.

    given: x: [B, 8]
    >>> log(abs(x) + 1e-6)
    """

    name = "log"
    wide = "exponent"
    arity = 1
    accepts = "float"
    needs = (frozenset({"x0"}),)

    def scalar(self, attrs: Attrs, *xs: Expr) -> Expr:
        return tree.call("log", *xs)

    def compute(self, attrs: Mapping[str, Any], *xs: Array) -> Any:
        return np.log(xs[0])

    def grad(self, node: Node, dys: Gradients, b: Builder) -> Gradients:
        return (b(div, only(dys), node.inputs[0]),)


class Log1p(Elementwise):
    """log1p(x): ``log(1 + x)``, accurate near 0.

    given: x: [B, 8]
    >>> log1p(exp(x))
    """

    name = "log1p"
    wide = "exponent"
    arity = 1
    accepts = "float"
    needs = (frozenset({"x0"}),)

    def scalar(self, attrs: Attrs, *xs: Expr) -> Expr:
        return tree.call("log1p", *xs)

    def compute(self, attrs: Mapping[str, Any], *xs: Array) -> Any:
        return np.log1p(xs[0])

    def grad(self, node: Node, dys: Gradients, b: Builder) -> Gradients:
        x = node.inputs[0]
        return (b(div, only(dys), b(add, x, constant(b, 1.0, x))),)


class Sin(Elementwise):
    """sin(x): the sine of an angle in radians.

    given: x: [B, 8]
    >>> sin(x)
    """

    name = "sin"
    wide = "position"
    arity = 1
    accepts = "float"
    needs = (frozenset({"x0"}),)

    def scalar(self, attrs: Attrs, *xs: Expr) -> Expr:
        return tree.call("sin", *xs)

    def compute(self, attrs: Mapping[str, Any], *xs: Array) -> Any:
        return np.sin(xs[0])

    def grad(self, node: Node, dys: Gradients, b: Builder) -> Gradients:
        return (b(mul, only(dys), b(cos, node.inputs[0])),)


class Cos(Elementwise):
    """cos(x): the cosine of an angle in radians.

    given: x: [B, 8]
    >>> cos(x)
    """

    name = "cos"
    wide = "position"
    arity = 1
    accepts = "float"
    needs = (frozenset({"x0"}),)

    def scalar(self, attrs: Attrs, *xs: Expr) -> Expr:
        return tree.call("cos", *xs)

    def compute(self, attrs: Mapping[str, Any], *xs: Array) -> Any:
        return np.cos(xs[0])

    def grad(self, node: Node, dys: Gradients, b: Builder) -> Gradients:
        return (b(neg, b(mul, only(dys), b(sin, node.inputs[0]))),)


class Erf(Elementwise):
    """erf(x): the error function, 2/sqrt(pi) times the integral of exp(-t^2) from 0 to ``x``.

    given: x: [B, 8]
    >>> erf(x)
    """

    name = "erf"
    arity = 1
    accepts = "float"
    needs = (frozenset({"x0"}),)

    def scalar(self, attrs: Attrs, *xs: Expr) -> Expr:
        return tree.call("erf", *xs)

    def compute(self, attrs: Mapping[str, Any], *xs: Array) -> Any:
        return erf_values(xs[0])

    def grad(self, node: Node, dys: Gradients, b: Builder) -> Gradients:
        x = node.inputs[0]
        bell = b(exp, b(neg, b(mul, x, x)))
        return (b(mul, only(dys), scaled(b, 2.0 / math.sqrt(math.pi), bell)),)


class Floor(Elementwise):
    """floor(x): the greatest integer not greater than ``x``, as a float. No gradient flows through it.

    given: x: [B, 8]
    >>> floor(x)
    """

    name = "floor"
    wide = "position"
    arity = 1
    accepts = "float"

    def scalar(self, attrs: Attrs, *xs: Expr) -> Expr:
        return tree.call("floor", *xs)

    def compute(self, attrs: Mapping[str, Any], *xs: Array) -> Any:
        return np.floor(xs[0])

    def grad(self, node: Node, dys: Gradients, b: Builder) -> Gradients:
        return (None,)


class Round(Elementwise):
    """round(x): the nearest integer, with halves rounded to even, as a float. No gradient flows through it.

    given: x: [B, 8]
    >>> round(x)
    """

    name = "round"
    wide = "position"
    arity = 1
    accepts = "float"

    def scalar(self, attrs: Attrs, *xs: Expr) -> Expr:
        return tree.call("round", *xs)

    def compute(self, attrs: Mapping[str, Any], *xs: Array) -> Any:
        return np.rint(xs[0])

    def grad(self, node: Node, dys: Gradients, b: Builder) -> Gradients:
        return (None,)


exp = register(Exp())
expm1 = register(Expm1())
log = register(Log())
log1p = register(Log1p())
sin = register(Sin())
cos = register(Cos())
erf = register(Erf())
floor = register(Floor())
round_ = register(Round())


for _op in (exp, expm1, log, log1p, sin, cos, erf, floor, round_):
    function(Unary(_op))
