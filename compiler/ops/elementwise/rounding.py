"""ceil, trunc, frac, fmod; isnan, isinf, isfinite, nan_to_num."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

from dslc.compiler.ir import scalar as tree
from dslc.compiler.ir.function import Call, Function, Operand, function
from dslc.compiler.ir.graph import Attrs, Value
from dslc.compiler.ir.op import register
from dslc.compiler.ir.scalar import Expr
from dslc.compiler.ir.types import DType
from dslc.compiler.ops.attrs import float_attr
from dslc.compiler.ops.elementwise.arithmetic import Unary, sub
from dslc.compiler.ops.elementwise.division import mod
from dslc.compiler.ops.elementwise.formula import Flat, Formula, Of1
from dslc.compiler.ops.elementwise.logic import logical_and, lt, ne
from dslc.compiler.ops.elementwise.selection import where

#: The greatest number of f16.
_MOST_OF_F16: Final = 65504.0


def _trunc(x: Expr) -> Expr:
    return tree.select(x < 0, -tree.call("floor", -x), tree.call("floor", x))


class Ceil(Flat):
    """ceil(x): the least integer not less than ``x``, as a float. No gradient flows through it.

    given: x: [B, 8]
    >>> ceil(x)
    """

    name = "ceil"
    wide = "position"

    def scalar(self, attrs: Attrs, *xs: Expr) -> Expr:
        return -tree.call("floor", -xs[0])


class Trunc(Flat):
    """trunc(x): ``x`` rounded towards 0, as a float. No gradient flows through it.

    given: x: [B, 8]
    >>> trunc(x)
    """

    name = "trunc"
    wide = "position"

    def scalar(self, attrs: Attrs, *xs: Expr) -> Expr:
        return _trunc(xs[0])


class Frac(Formula):
    """frac(x): ``x - trunc(x)``, with the sign of ``x``; nan for an infinity.

    given: x: [B, 8]
    >>> frac(x)
    """

    name = "frac"
    wide = "position"
    arity = 1

    def scalar(self, attrs: Attrs, *xs: Expr) -> Expr:
        return xs[0] - _trunc(xs[0])

    def backward(self, attrs: Attrs, *xs: Expr) -> Sequence[Expr]:
        return (xs[1],)


class Fmod(Formula):
    """fmod(x, y): the remainder ``x - trunc(x / y) * y`` of float tensors, with the sign of ``x``, exact as in C.

    ``mod`` has the sign of ``y``.

    given: x: [B, 8]
    >>> fmod(x, 1.5)
    """

    name = "fmod"
    wide = "position"
    arity = 2
    needs = (frozenset({"x0", "x1"}),)

    def scalar(self, attrs: Attrs, *xs: Expr) -> Expr:
        x, y = xs
        size = tree.call("mod", tree.call("abs", x), tree.call("abs", y))
        return tree.select(x < 0, -size, tree.select(tree.call("eq", x, 0), x * size, size))  # -0.0 stays, 0 / 0 is nan

    def backward(self, attrs: Attrs, *xs: Expr) -> Sequence[Expr]:
        x, y, dy = xs
        return dy, -(dy * tree.call("round", (x - self.scalar(attrs, x, y)) / y))  # an integer but for rounding


class Isnan(Flat):
    """isnan(x): whether each element is nan, as b1.

    given: x: [B, 8]
    >>> where(isnan(x), 0, x)
    """

    name = "isnan"

    def result(self, dtypes: Sequence[DType], attrs: Attrs) -> DType:
        super().result(dtypes, attrs)
        return DType.B1

    def scalar(self, attrs: Attrs, *xs: Expr) -> Expr:
        return tree.call("ne", xs[0], xs[0])


class Isinf(Isnan):
    """isinf(x): whether each element is an infinity, as b1.

    given: x: [B, 8]
    >>> where(isinf(x), 0, x)
    """

    name = "isinf"

    def scalar(self, attrs: Attrs, *xs: Expr) -> Expr:
        return tree.call("eq", tree.call("abs", xs[0]), math.inf)


class Isfinite(Isnan):
    """isfinite(x): whether each element is neither nan nor an infinity, as b1.

    given: x: [B, 8]
    >>> where(isfinite(x), x, 0)
    """

    name = "isfinite"

    def scalar(self, attrs: Attrs, *xs: Expr) -> Expr:
        return tree.call("abs", xs[0]) < math.inf


class NanToNum(Of1):
    """nan_to_num(x): ``x`` with the attribute ``nan`` for nan, ``posinf`` and ``neginf`` for the infinities."""

    name = "nan_to_num"

    def scalar(self, attrs: Attrs, *xs: Expr) -> Expr:
        x = xs[0]
        below = tree.select(tree.call("eq", x, -math.inf), float_attr(attrs, "neginf"), x)
        infinite = tree.select(tree.call("eq", x, math.inf), float_attr(attrs, "posinf"), below)
        return tree.select(tree.call("ne", x, x), float_attr(attrs, "nan"), infinite)

    def backward(self, attrs: Attrs, *xs: Expr) -> Sequence[Expr]:
        x, dy = xs
        return (tree.select(tree.call("abs", x) < math.inf, dy, 0),)


ceil = register(Ceil())
trunc = register(Trunc())
frac = register(Frac())
fmod = register(Fmod())
isnan = register(Isnan())
isinf = register(Isinf())
isfinite = register(Isfinite())
nan_to_num = register(NanToNum())


class FmodFunction(Function):
    """fmod(x, y): the remainder ``x - trunc(x / y) * y``, with the sign of ``x``, exact as in C.

    ``mod`` has the sign of ``y``. An integer modulo zero gives 0.

    given: x: [B, 8]
    >>> fmod(x, 1.5)
    """

    name = "fmod"

    def build(self, call: Call, x: Operand, y: Operand) -> Value:
        one, other = call.operands(x, y)
        if not one.type.dtype.is_int:
            return call.emit(fmod, one, other)
        rest, zero = call.emit(mod, one, other), call.full(0, one.type.dtype)
        unlike = call.emit(ne, call.emit(lt, one, zero), call.emit(lt, other, zero))
        unlike = call.emit(logical_and, unlike, call.emit(ne, rest, zero))
        return call.emit(where, unlike, call.emit(sub, rest, other), rest)


class NanToNumFunction(Function):
    """nan_to_num(x, nan=0, posinf=65504, neginf=-65504): ``x`` with other numbers for nan and the infinities.

    65504 is the greatest number of f16, so it fits every precision. No gradient flows to an element that is replaced.

    given: x: [B, 8]
    >>> nan_to_num(x, posinf=1e4, neginf=-1e4)
    """

    name = "nan_to_num"

    def build(
        self, call: Call, x: Operand, nan: float = 0.0, posinf: float = _MOST_OF_F16, neginf: float = -_MOST_OF_F16
    ) -> Value:
        return call.emit(nan_to_num, *call.operands(x), nan=nan, posinf=posinf, neginf=neginf)


for _op in (ceil, trunc, frac, isnan, isinf, isfinite):
    function(Unary(_op))
function(FmodFunction())
function(NanToNumFunction())
