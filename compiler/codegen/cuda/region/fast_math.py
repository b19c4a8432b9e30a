"""Relaxes expression trees whose value is rounded to bf16 or f16, using f32 functions that are accurate enough for it.

bf16 has 8 bits and f16 has 11, so intermediate values need not be exact to the last of 24 bits::

    x * 0.5 * (1 + tanh(u)), as bf16        x * (1 / (1 + exp2(u * -2.885)))
    (x * y + z) / 6, as f16                 fma(x, y, z) * 0.1667

All errors but one are below 2^-17 of the value, or of the value that it is added to. ``fast_tanh``, with 2^-11, is used
only if the rounding to bf16 follows directly. Within a tree, numbers below 2^-126 may become 0. The result depends only
on the op's tree and dtype, so an op gives the same bits in every kernel. Arguments of functions that jump or magnify
errors stay unchanged.
"""

from __future__ import annotations

import math
from collections.abc import Set
from dataclasses import replace
from typing import Final

from dslc.compiler.codegen.region.queries import read_by
from dslc.compiler.ir.scalar import Expr, as_expr, call, select
from dslc.compiler.ir.types import DType

_INSIDE: Final = frozenset({"add", "sub", "mul", "div", "neg", "abs", "min", "max", "exp", "tanh", "erf", "sqrt"})
_LOG2_E: Final = math.log2(math.e)
#: exp(a^2) * erfc(a) = t * (c0 + t * (c1 + ...)) for t = 1 / (1 + _SLOPE * a), with relative error 2^-20 for 0 <= a <=
#: 9.6: least squares with Lawson's weights. Hastings' form (Abramowitz and Stegun 7.1.26), fitted for small values,
#: too.
_SLOPE: Final = 0.375
_ERFC: Final = (
    0.21133962077378818, 0.21568713453720167, 0.16667433795272257, 0.28303754837854017,
    -0.12956536601632632, 0.3879159481698982, -0.1350898581335964,
)  # fmt: skip
_SERIES_BELOW: Final = 0.02  # below it, tanh(u) is computed as u - u^3 / 3


def relaxed(expr: Expr, dtype: DType) -> Expr:
    """The relaxed float tree of a result that is rounded to ``dtype``, which is bf16 or f16."""
    if dtype is DType.BF16 and expr.function == "tanh":
        return Expr("fast_tanh", (_inner(expr.args[0]),))
    if dtype is DType.BF16 and expr.function == "exp":  # bf16 also represents values below f32's normal range
        return Expr("fast_exp2", (_product(_inner(expr.args[0]), as_expr(_LOG2_E)),))
    return _inner(expr)


def relaxed_exponentials(expr: Expr, halves: Set[int]) -> Expr:
    """The tree of a value that stays f32 inside an op such as softmax. Exponentials of the arguments ``halves``, loaded
    from 16 bits, have a relative error of 2^-22 + abs(x) * 2^-23, while x itself has one of 2^-9 or 2^-12."""
    args = tuple(relaxed_exponentials(arg, halves) for arg in expr.args)
    if expr.function == "exp" and halves & read_by(expr):
        return Expr("flushed_exp2", (_product(args[0], as_expr(_LOG2_E)),))
    return replace(expr, args=args) if args else expr


def _inner(expr: Expr) -> Expr:
    match expr:
        case Expr("add", (Expr("const", value=1), Expr("tanh", (u,)))):
            return _product(as_expr(2), _logistic(_inner(u))[0])
        case Expr("sub", (Expr("const", value=1), Expr("mul", (Expr("tanh", (u,)) as t, other)))) if t == other:
            s, rest = _logistic(_inner(u))
            return _product(as_expr(4), s * rest)
        case Expr("add", (Expr("const", value=1), Expr("erf", (u,)))):
            return _one_and_erf(_inner(u))
        case Expr("select", (condition, then, other)):
            return select(condition, _inner(then), _inner(other))
    if expr.function not in _INSIDE:
        return expr
    args = tuple(map(_inner, expr.args))
    match expr.function, args:
        case "mul", (x, y):
            return _product(x, y)
        case "add", (x, Expr("mul", (a, b))) | (Expr("mul", (a, b)), x):
            return Expr("fma", (a, b, x))
        case "sub", (Expr("mul", (a, b)), x):
            return Expr("fma", (a, b, -x))
        case "sub", (x, Expr("mul", (a, b))):
            return Expr("fma", (-a, b, x))
        case "div", (x, y):
            return _ratio(x, y)
        case "exp", (x,):
            return Expr("flushed_exp2", (_product(x, as_expr(_LOG2_E)),))
        case "tanh", (u,):
            near = Expr("fma", (u * u * u, as_expr(-1 / 3), u))
            far = Expr("fma", (as_expr(2), _logistic(u)[0], as_expr(-1)))
            return select(call("abs", u) < _SERIES_BELOW, near, far)
        case "sqrt", (x,):
            return Expr("fast_sqrt", (x,))
    return replace(expr, args=args)


def _logistic(u: Expr) -> tuple[Expr, Expr]:
    """``s = 1 / (1 + exp(-2 * u))``, which is ``(1 + tanh(u)) / 2``, and ``1 - s``; 0 if they are below the normal
    range."""
    exponential = Expr("flushed_exp2", (_product(u, as_expr(-2 * _LOG2_E)),))
    finite = call("min", exponential, 2.0**127)  # ``fast_inverse`` of it gives 0, and so does 1 - s
    s = Expr("fast_inverse", (1 + finite,))
    return s, s * finite


def _one_and_erf(u: Expr) -> Expr:
    """``1 + erf(u)``; for u < 0 as erfc, to avoid cancellation."""
    t = Expr("fast_inverse", (Expr("fma", (call("abs", u), as_expr(_SLOPE), as_expr(1))),))
    found = as_expr(_ERFC[-1])
    for coefficient in _ERFC[-2::-1]:
        found = Expr("fma", (found, t, as_expr(coefficient)))
    beyond = found * t * Expr("flushed_exp2", (_product(u * u, as_expr(-_LOG2_E)),))
    return select(u < 0, beyond, 2 - beyond)


def _product(x: Expr, y: Expr) -> Expr:
    """``x * y``, with the constant factors of both combined."""
    (a, rest_x), (b, rest_y) = _factors(x), _factors(y)
    if a is None or b is None:
        return x * y
    if rest_x is None or rest_y is None:
        rest = rest_x if rest_y is None else rest_y
    else:
        rest = rest_x * rest_y
    if rest is None:
        return as_expr(a * b)
    return rest if a * b == 1 else rest * (a * b)


def _factors(x: Expr) -> tuple[float | None, Expr | None]:
    """A product's constant factor and its other factor; None for one that it does not have."""
    match x:
        case Expr("const", value=value):
            return value, None
        case Expr("mul", (rest, Expr("const", value=value))) | Expr("mul", (Expr("const", value=value), rest)):
            return value, rest
    return None, x


def _ratio(x: Expr, y: Expr) -> Expr:
    low, high = _bounds(y)
    if low < 2.0**-126 or high > 2.0**126:
        return Expr("fast_div", (x, y))
    return _product(x, as_expr(1 / y.value) if y.function == "const" else Expr("fast_inverse", (y,)))


def _bounds(x: Expr) -> tuple[float, float]:
    """Bounds of a tree's value, as far as they are obvious; nan may still occur."""
    match x:
        case Expr("const", value=value):
            return value, value
        case Expr("abs", _):
            return 0.0, math.inf
        case Expr("neg", (y,)):
            low, high = _bounds(y)
            return -high, -low
        case Expr("flushed_exp2", (y,)):
            low, high = _bounds(y)
            return 2.0 ** min(low, 128), 2.0 ** min(high, 128)
        case Expr("add", (y, z)):
            (a, b), (c, d) = _bounds(y), _bounds(z)
            return a + c, b + d
        case Expr("mul", (y, Expr("const", value=value))) if value > 0:
            low, high = _bounds(y)
            return low * value, high * value
    return -math.inf, math.inf
