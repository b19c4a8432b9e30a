"""Powers and logarithms of base 2 and 10, erfc, reciprocal, square."""

from __future__ import annotations

import math
from collections.abc import Sequence

from dslc.compiler.ir import scalar as tree
from dslc.compiler.ir.function import Call, Function, Operand, function
from dslc.compiler.ir.graph import Attrs, Value
from dslc.compiler.ir.op import register
from dslc.compiler.ir.scalar import Expr
from dslc.compiler.ops.elementwise.arithmetic import Unary
from dslc.compiler.ops.elementwise.formula import Primitive
from dslc.compiler.ops.elementwise.powers import powi


class Exp2(Primitive):
    """exp2(x): 2 to the power ``x``.

    given: x: [B, 8]
    >>> exp2(x)
    """

    name = "exp2"
    wide = "exponent"

    def backward(self, attrs: Attrs, *xs: Expr) -> Sequence[Expr]:
        x, dy = xs
        return (dy * (tree.call("exp2", x) * math.log(2)),)


class Log2(Primitive):
    """log2(x): the logarithm to base 2; -inf at 0, nan for x < 0. Those of powers of 2 are exact.

    given: x: [B, 8]
    >>> log2(abs(x) + 1e-6)
    """

    name = "log2"
    wide = "exponent"

    def backward(self, attrs: Attrs, *xs: Expr) -> Sequence[Expr]:
        x, dy = xs
        return (dy * (1 / math.log(2)) / x,)


class Log10(Primitive):
    """log10(x): the logarithm to base 10; -inf at 0, nan for x < 0.

    given: x: [B, 8]
    >>> log10(abs(x) + 1e-6)
    """

    name = "log10"
    wide = "exponent"

    def backward(self, attrs: Attrs, *xs: Expr) -> Sequence[Expr]:
        x, dy = xs
        return (dy * (1 / math.log(10)) / x,)


class Erfc(Primitive):
    """erfc(x): ``1 - erf(x)``, accurate for large ``x``, too.

    given: x: [B, 8]
    >>> erfc(x)
    """

    name = "erfc"

    def backward(self, attrs: Attrs, *xs: Expr) -> Sequence[Expr]:
        x, dy = xs
        return (dy * (tree.call("exp", -(x * x)) * (-2 / math.sqrt(math.pi))),)


exp2 = register(Exp2())
log2 = register(Log2())
log10 = register(Log10())
erfc = register(Erfc())


class Reciprocal(Function):
    """reciprocal(x): ``1 / x``.

    given: x: [B, 8]
    >>> reciprocal(x * x + 1)
    """

    name = "reciprocal"

    def build(self, call: Call, x: Operand) -> Value:
        return call.emit(powi, *call.operands(x), exponent=-1)


class Square(Function):
    """square(x): ``x * x``.

    given: x: [B, 8]
    >>> square(x)
    """

    name = "square"

    def build(self, call: Call, x: Operand) -> Value:
        return call.emit(powi, *call.operands(x), exponent=2)


for _op in (exp2, log2, log10, erfc):
    function(Unary(_op))
function(Reciprocal())
function(Square())
