"""tan, and the angles of a sine, a cosine, a tangent and a point."""

from __future__ import annotations

from collections.abc import Sequence

from dslc.compiler.ir import scalar as tree
from dslc.compiler.ir.function import Call, Function, Operand, function
from dslc.compiler.ir.graph import Attrs, Value
from dslc.compiler.ir.op import register
from dslc.compiler.ir.scalar import Expr
from dslc.compiler.ops.elementwise.arithmetic import Unary
from dslc.compiler.ops.elementwise.formula import Formula, Primitive


class Tan(Primitive):
    """tan(x): the tangent of an angle in radians.

    given: x: [B, 8]
    >>> tan(x)
    """

    name = "tan"
    wide = "position"

    def backward(self, attrs: Attrs, *xs: Expr) -> Sequence[Expr]:
        x, dy = xs
        y = tree.call("tan", x)
        return (dy * (1 + y * y),)


class Asin(Primitive):
    """asin(x): the angle in -pi/2..pi/2 whose sine is ``x``; nan outside of -1..1.

    given: x: [B, 8]
    >>> asin(clip(x, -1, 1))
    """

    name = "asin"
    wide = "exponent"

    def backward(self, attrs: Attrs, *xs: Expr) -> Sequence[Expr]:
        x, dy = xs
        return (dy / tree.call("sqrt", (1 - x) * (1 + x)),)


class Acos(Primitive):
    """acos(x): the angle in 0..pi whose cosine is ``x``; nan outside of -1..1.

    given: x: [B, 8]
    >>> acos(clip(x, -1, 1))
    """

    name = "acos"
    wide = "exponent"

    def backward(self, attrs: Attrs, *xs: Expr) -> Sequence[Expr]:
        x, dy = xs
        return (-(dy / tree.call("sqrt", (1 - x) * (1 + x))),)


class Atan(Primitive):
    """atan(x): the angle in -pi/2..pi/2 whose tangent is ``x``.

    given: x: [B, 8]
    >>> atan(x)
    """

    name = "atan"

    def backward(self, attrs: Attrs, *xs: Expr) -> Sequence[Expr]:
        x, dy = xs
        return (dy / (1 + x * x),)


class Atan2(Formula):
    """atan2(y, x): the angle of the point (x, y) in -pi..pi; zeros count by their signs, as in C.

    The gradient at (0, 0) is 0.
    """

    name = "atan2"
    arity = 2
    needs = (frozenset({"x0", "x1"}),)

    def scalar(self, attrs: Attrs, *xs: Expr) -> Expr:
        return tree.call("atan2", *xs)

    def backward(self, attrs: Attrs, *xs: Expr) -> Sequence[Expr]:
        y, x, dy = xs
        size = tree.call("max", tree.call("abs", x), tree.call("abs", y))
        v, u = y / size, x / size  # their squares do not overflow
        square, nowhere = u * u + v * v, tree.call("eq", size, 0)
        return tuple(tree.select(nowhere, 0, dy * part / square / size) for part in (u, -v))


tan = register(Tan())
asin = register(Asin())
acos = register(Acos())
atan = register(Atan())
atan2 = register(Atan2())


class Atan2Function(Function):
    """atan2(y, x): the angle of the point (x, y) in -pi..pi; zeros count by their signs, as in C.

    The gradient at (0, 0) is 0.

    given: x: [B, 8], y: [B, 8]
    >>> atan2(y, x)
    """

    name = "atan2"

    def build(self, call: Call, y: Operand, x: Operand) -> Value:
        return call.emit(atan2, *call.operands(y, x))


for _op in (tan, asin, acos, atan):
    function(Unary(_op))
function(Atan2Function())
