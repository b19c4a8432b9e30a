"""sinh, cosh, asinh, acosh, atanh."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from dslc.compiler.ir import scalar as tree
from dslc.compiler.ir.function import function
from dslc.compiler.ir.graph import Attrs
from dslc.compiler.ir.op import register
from dslc.compiler.ir.scalar import Expr
from dslc.compiler.ops.elementwise.arithmetic import Unary
from dslc.compiler.ops.elementwise.formula import Primitive

_FAR: Final = 2.0**40  # from there on, sqrt(x^2 + 1) rounds to |x|, whose square may overflow


class Sinh(Primitive):
    """sinh(x): the hyperbolic sine, ``(exp(x) - exp(-x)) / 2``.

    given: x: [B, 8]
    >>> sinh(x)
    """

    name = "sinh"
    wide = "exponent"

    def backward(self, attrs: Attrs, *xs: Expr) -> Sequence[Expr]:
        x, dy = xs
        return (dy * tree.call("cosh", x),)


class Cosh(Primitive):
    """cosh(x): the hyperbolic cosine, ``(exp(x) + exp(-x)) / 2``.

    given: x: [B, 8]
    >>> cosh(x)
    """

    name = "cosh"
    wide = "exponent"

    def backward(self, attrs: Attrs, *xs: Expr) -> Sequence[Expr]:
        x, dy = xs
        return (dy * tree.call("sinh", x),)


class Asinh(Primitive):
    """asinh(x): the number whose hyperbolic sine is ``x``, accurate for small and for large ``x``.

    given: x: [B, 8]
    >>> asinh(x)
    """

    name = "asinh"

    def backward(self, attrs: Attrs, *xs: Expr) -> Sequence[Expr]:
        x, dy = xs
        size = tree.call("abs", x)
        return (dy / tree.select(size > _FAR, size, tree.call("sqrt", x * x + 1)),)


class Acosh(Primitive):
    """acosh(x): the number >= 0 whose hyperbolic cosine is ``x``; nan for x < 1.

    given: x: [B, 8]
    >>> acosh(1 + x * x)
    """

    name = "acosh"

    def backward(self, attrs: Attrs, *xs: Expr) -> Sequence[Expr]:
        x, dy = xs
        return (dy / tree.call("sqrt", x - 1) / tree.call("sqrt", x + 1),)


class Atanh(Primitive):
    """atanh(x): the number whose hyperbolic tangent is ``x``; nan outside of -1..1.

    given: x: [B, 8]
    >>> atanh(clip(x, -0.9, 0.9))
    """

    name = "atanh"

    def backward(self, attrs: Attrs, *xs: Expr) -> Sequence[Expr]:
        x, dy = xs
        return (dy / (1 - x) / (1 + x),)


sinh = register(Sinh())
cosh = register(Cosh())
asinh = register(Asinh())
acosh = register(Acosh())
atanh = register(Atanh())

for _op in (sinh, cosh, asinh, acosh, atanh):
    function(Unary(_op))
