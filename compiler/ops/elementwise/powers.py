"""Powers and roots: pow, powi, sqrt, rsqrt."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from dslc.compiler.ir import scalar as tree
from dslc.compiler.ir.function import Call, Function, Operand, function
from dslc.compiler.ir.graph import Attrs, Node, Value
from dslc.compiler.ir.op import Builder, Mismatch, register
from dslc.compiler.ir.scalar import Expr
from dslc.compiler.ir.types import DType
from dslc.compiler.ops.attrs import int_attr
from dslc.compiler.ops.constants.constant import constant
from dslc.compiler.ops.elementwise.arithmetic import Elementwise, Gradients, Unary, div, mul, only, scaled, sub
from dslc.compiler.ops.elementwise.logic import eq
from dslc.compiler.ops.elementwise.selection import where
from dslc.compiler.ops.elementwise.transcendental import log
from dslc.compiler.ops.lazy import np

if TYPE_CHECKING:
    from dslc.compiler.ir.op import Array

# Up to this exponent powers are products, above it calls of pow.
_MULTIPLIED = 8


def raised(x: Expr, exponent: float) -> Expr:
    """``x`` to a power that is known: products, if it is a small whole number."""
    if exponent != int(exponent) or not 1 <= abs(exponent) <= _MULTIPLIED:
        return tree.call("pow", x, exponent)
    factor = result = x if exponent > 0 else 1 / x  # its powers have the magnitude of the result
    for digit in bin(abs(int(exponent)))[3:]:
        result = result * result
        if digit == "1":
            result = result * factor
    return result


class Pow(Elementwise):
    """pow(x, y): ``x`` to the power ``y``, of float tensors; nan for ``x < 0`` and a non-integer ``y``.

    Special values are IEEE 754's: ``x^0`` and ``1^y`` are 1, ``(-0.0)^0.5`` is 0.0 and ``(-inf)^0.5`` is inf. The
    gradient with respect to ``y`` is 0 where ``x`` is 0, as in PyTorch for ``y >= 0``.
    """

    name = "pow"
    wide = "exponent"
    arity = 2
    accepts = "float"
    needs = (frozenset({"x0", "x1", "y0"}),)

    def scalar(self, attrs: Attrs, *xs: Expr) -> Expr:
        return tree.call("pow", *xs)

    def compute(self, attrs: Mapping[str, Any], *xs: Array) -> Any:
        # for a repeated exponent numpy uses roots and products, which differ from powers at -0.0 and -inf
        return np.power(xs[0], np.array(np.broadcast_to(xs[1], np.broadcast_shapes(xs[0].shape, xs[1].shape))))

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
    """powi(x): ``x`` to the power of the attribute ``exponent``, an int; not negative for an integer tensor."""

    name = "powi"
    wide = "exponent"
    arity = 1
    needs = (frozenset({"x0"}),)

    def result(self, dtypes: Sequence[DType], attrs: Attrs) -> DType:
        dtype = super().result(dtypes, attrs)
        exponent = int_attr(attrs, "exponent")
        if dtype.is_int and exponent < 0:
            raise Mismatch(f"{dtype} to the power {exponent} is not an integer", 'use `cast(x, "float")` first')
        return dtype

    def scalar(self, attrs: Attrs, *xs: Expr) -> Expr:
        return raised(xs[0], int_attr(attrs, "exponent"))

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


class Sqrt(Elementwise):
    """sqrt(x): the square root; nan for x < 0. The gradient at 0 is infinite.

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


pow_ = register(Pow())
powi = register(Powi())
sqrt = register(Sqrt())
rsqrt = register(Rsqrt())


class Power(Function):
    """power(x, y): ``x ^ y``. A constant integer exponent is multiplied out.

    given: x: [B, 8]
    >>> x^2 + 2^x
    """

    name = "power"

    def build(self, call: Call, x: Operand, y: Operand) -> Value:
        if isinstance(y, int | float) and not isinstance(y, bool) and float(y).is_integer() and abs(y) < 2**31:
            return call.emit(powi, *call.operands(x), exponent=int(y))
        return call.emit(pow_, *call.operands(x, y))


for _op in (sqrt, rsqrt):
    function(Unary(_op))
function(Power())
