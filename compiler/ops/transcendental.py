"""Powers, roots, exponentials, trigonometry, rounding."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from dslc.compiler.ir import scalar as tree
from dslc.compiler.ir.function import Call, Function, Operand, function
from dslc.compiler.ir.graph import Attrs, Node, Value
from dslc.compiler.ir.op import Builder, Mismatch, register
from dslc.compiler.ir.scalar import Expr
from dslc.compiler.ir.special import erf as erf_values
from dslc.compiler.ir.types import DType
from dslc.compiler.ops.attrs import int_attr
from dslc.compiler.ops.constant import constant
from dslc.compiler.ops.elementwise import Elementwise, Gradients, Unary, add, div, mul, neg, only, scaled, sub
from dslc.compiler.ops.lazy import np
from dslc.compiler.ops.logic import eq, where

if TYPE_CHECKING:
    from dslc.compiler.ir.op import Array

# Up to this exponent the scalar tree of powi multiplies, above it calls pow.
_MULTIPLIED = 8


class Pow(Elementwise):
    """pow(x, y): ``x`` to the power ``y``, of float tensors; nan for ``x < 0`` and a ``y`` that is no integer.

    The gradient with respect to ``y`` is 0 where ``x`` is 0, as in PyTorch for ``y >= 0``.
    """

    name = "pow"
    arity = 2
    accepts = "float"
    needs = (frozenset({"x0", "x1", "y0"}),)

    def scalar(self, attrs: Attrs, *xs: Expr) -> Expr:
        return tree.call("pow", *xs)

    def compute(self, attrs: Mapping[str, Any], *xs: Array) -> Any:
        return np.power(xs[0], xs[1])

    def grad(self, node: Node, dys: Gradients, b: Builder) -> Gradients:
        x, y = node.inputs
        dy = only(dys)
        one, zero = constant(b, 1.0, x), constant(b, 0.0, x)
        # y * x^(y-1) is 0 for y = 0, even where x^(y-1) is infinite
        dx = b(where, b(eq, y, zero), zero, b(mul, dy, b(mul, y, b(pow_, x, b(sub, y, one)))))
        at_zero = b(eq, x, zero)
        safe = b(where, at_zero, one, x)
        return dx, b(where, at_zero, zero, b(mul, dy, b(mul, node.out, b(log, safe))))


class Powi(Elementwise):
    """powi(x): ``x`` to the power of the attribute ``exponent``, an int; of an integer tensor not negative."""

    name = "powi"
    arity = 1
    needs = (frozenset({"x0"}),)

    def result(self, dtypes: Sequence[DType], attrs: Attrs) -> DType:
        dtype = super().result(dtypes, attrs)
        exponent = int_attr(attrs, "exponent")
        if dtype.is_int and exponent < 0:
            raise Mismatch(f"{dtype} to the power {exponent} is no integer", 'use `cast(x, "float")` first')
        return dtype

    def scalar(self, attrs: Attrs, *xs: Expr) -> Expr:
        x, exponent = xs[0], int_attr(attrs, "exponent")
        if not 1 <= abs(exponent) <= _MULTIPLIED:
            return tree.call("pow", x, exponent)
        result = x
        for digit in bin(abs(exponent))[3:]:
            result = result * result
            if digit == "1":
                result = result * x
        return result if exponent > 0 else 1 / result

    def compute(self, attrs: Mapping[str, Any], *xs: Array) -> Any:
        x, exponent = xs[0], attrs["exponent"]
        return np.multiply(x, x) if exponent == 2 else np.power(x, x.dtype.type(exponent))

    def grad(self, node: Node, dys: Gradients, b: Builder) -> Gradients:
        exponent = int_attr(node.attrs, "exponent")
        if exponent == 0:
            return (None,)
        if exponent == 1:
            return (only(dys),)
        x = node.inputs[0]
        slope = x if exponent == 2 else b(powi, x, exponent=exponent - 1)
        return (b(mul, only(dys), scaled(b, float(exponent), slope)),)


class Exp(Elementwise):
    """exp(x): e to the power ``x``.

    given: x: [B, 8]
    >>> exp(x)
    """

    name = "exp"
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
    """expm1(x): ``exp(x) - 1``, exact near 0.

    given: x: [B, 8]
    >>> expm1(x)
    """

    name = "expm1"
    arity = 1
    accepts = "float"
    needs = (frozenset({"y0"}), frozenset({"x0"}))

    def scalar(self, attrs: Attrs, *xs: Expr) -> Expr:
        return tree.call("expm1", *xs)

    def compute(self, attrs: Mapping[str, Any], *xs: Array) -> Any:
        return np.expm1(xs[0])

    def grad(self, node: Node, dys: Gradients, b: Builder) -> Gradients:
        return (b(mul, only(dys), b(add, node.out, constant(b, 1.0, node.out))),)


class Log(Elementwise):
    """log(x): the natural logarithm; -inf of 0, nan below.

    given: x: [B, 8]
    >>> log(abs(x) + 1e-6)
    """

    name = "log"
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
    """log1p(x): ``log(1 + x)``, exact near 0.

    given: x: [B, 8]
    >>> log1p(exp(x))
    """

    name = "log1p"
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


class Sqrt(Elementwise):
    """sqrt(x): the square root; nan below 0. Its gradient at 0 is infinite.

    given: x: [B, 8]
    >>> sqrt(x * x + 1e-6)
    """

    name = "sqrt"
    arity = 1
    accepts = "float"
    needs = (frozenset({"y0"}), frozenset({"x0"}))

    def scalar(self, attrs: Attrs, *xs: Expr) -> Expr:
        return tree.call("sqrt", *xs)

    def compute(self, attrs: Mapping[str, Any], *xs: Array) -> Any:
        return np.sqrt(xs[0])

    def grad(self, node: Node, dys: Gradients, b: Builder) -> Gradients:
        return (b(div, scaled(b, 0.5, only(dys)), node.out),)


class Rsqrt(Elementwise):
    """rsqrt(x): ``1 / sqrt(x)``.

    given: x: [B, 8]
    >>> x * rsqrt(mean(x * x, over=1, keep=true) + 1e-5)
    """

    name = "rsqrt"
    arity = 1
    accepts = "float"
    needs = (frozenset({"y0"}), frozenset({"x0"}))

    def scalar(self, attrs: Attrs, *xs: Expr) -> Expr:
        return 1 / tree.call("sqrt", *xs)

    def compute(self, attrs: Mapping[str, Any], *xs: Array) -> Any:
        return np.divide(xs[0].dtype.type(1), np.sqrt(xs[0]))

    def grad(self, node: Node, dys: Gradients, b: Builder) -> Gradients:
        y = node.out
        return (b(mul, scaled(b, -0.5, only(dys)), b(mul, y, b(mul, y, y))),)


class Sin(Elementwise):
    """sin(x): the sine of an angle in radians.

    given: x: [B, 8]
    >>> sin(x)
    """

    name = "sin"
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
    """floor(x): the greatest integer not above ``x``, as a float. No gradient flows through it.

    given: x: [B, 8]
    >>> floor(x)
    """

    name = "floor"
    arity = 1
    accepts = "float"

    def scalar(self, attrs: Attrs, *xs: Expr) -> Expr:
        return tree.call("floor", *xs)

    def compute(self, attrs: Mapping[str, Any], *xs: Array) -> Any:
        return np.floor(xs[0])

    def grad(self, node: Node, dys: Gradients, b: Builder) -> Gradients:
        return (None,)


class Round(Elementwise):
    """round(x): the nearest integer, halves to the even one, as a float. No gradient flows through it.

    given: x: [B, 8]
    >>> round(x)
    """

    name = "round"
    arity = 1
    accepts = "float"

    def scalar(self, attrs: Attrs, *xs: Expr) -> Expr:
        return tree.call("round", *xs)

    def compute(self, attrs: Mapping[str, Any], *xs: Array) -> Any:
        return np.rint(xs[0])

    def grad(self, node: Node, dys: Gradients, b: Builder) -> Gradients:
        return (None,)


pow_ = register(Pow())
powi = register(Powi())
exp = register(Exp())
expm1 = register(Expm1())
log = register(Log())
log1p = register(Log1p())
sqrt = register(Sqrt())
rsqrt = register(Rsqrt())
sin = register(Sin())
cos = register(Cos())
erf = register(Erf())
floor = register(Floor())
round_ = register(Round())


class Power(Function):
    """power(x, y): ``x ^ y``. An exponent known when compiling that is an integer is multiplied out.

    given: x: [B, 8]
    >>> x^2 + 2^x
    """

    name = "power"

    def build(self, call: Call, x: Operand, y: Operand) -> Value:
        if isinstance(y, int | float) and not isinstance(y, bool) and float(y).is_integer() and abs(y) < 2**31:
            return call.emit(powi, *call.operands(x), exponent=int(y))
        return call.emit(pow_, *call.operands(x, y))


for _op in (exp, expm1, log, log1p, sqrt, rsqrt, sin, cos, erf, floor, round_):
    function(Unary(_op))
function(Power())
