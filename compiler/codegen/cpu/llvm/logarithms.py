"""log2, log10, exp2 and erfc of vectors.

log2 and log10 of f64 multiply pow's logarithm, a sum of two numbers, so those of powers of 2 and of 10 are exact. erfc
follows ``compiler/ir/special.py``. The errors, which a test checks, are below 1 ulp for the logarithms, 2 for exp2, 5
for erfc. Before a rounding to f32, one polynomial without a division gives the natural logarithm.

log2 of f32 adds the exponent, the product of f = m - 1 with 1/ln(2) and its rounding error, and a polynomial: 1 ulp,
and exact for powers of 2. log10 of f32 is its product with log10(2), both as sums of two numbers. exp2 of f32 has a
shorter series: 2 ulp, and exact for integers. erfc of f32 is ``exp(-x^2) * p((a - 4) / (a + 4)) / (1 + 2a)`` with
a = |x|: 5 ulp.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final

from dslc.compiler.codegen.cpu.llvm.pow import log_as_sum
from dslc.compiler.ir.special import ERFC_END, ERFC_TAIL

if TYPE_CHECKING:
    from dslc.compiler.codegen.cpu.llvm.math import Functions

_TERMS: Final = 14  # of the Taylor series of exp on |r| <= ln(2)/2
_RANGE: Final = (-1080.0, 1024.0)  # outside: 0, inf
_TERMS_32: Final = 8
_RANGE_32: Final = (-152.0, 129.0)  # outside: 0, inf
#: log(1 + f) / f by rising powers of f from sqrt(1/2) - 1 to sqrt(2) - 1: the interpolation at Chebyshev points, whose
#: error is below 6e-13.
_BRIEF_LOG: Final = (
    1.0000000000002172, -0.49999999998512556, 0.3333333331141725, -0.2500000043312815, 0.20000003805512753,
    -0.16666632233794296, 0.1428545826094488, -0.12501075399501757, 0.11119413052789981, -0.09987366169121653,
    0.08954162789286713, -0.08317435210903283, 0.08750405232693213, -0.08467876411458124, 0.04272800730435181,
)  # fmt: skip
#: 1/ln(2) and 1/ln(10) as sums of two numbers.
_PER_2: Final = (1.4426950408889634, 2.0355273740931033e-17)
_PER_10: Final = (0.4342944819032518, 1.098319650216765e-17)
#: log2(1 + f) / f by rising powers of f, its first number in two parts, and (1 + 2a) * exp(a^2) * erfc(a) by those of
#: (a - 4) / (a + 4): least squares at 4000 Chebyshev nodes, reweighted until the maximum error was minimal (Lawson
#: 1961).
_LOG2_32: Final = (
    -0.7213475108146667, 0.4808979034423828, -0.3606741428375244, 0.2885761857032776, -0.24046719074249268,
    0.2050434798002243, -0.17890886962413788, 0.17205703258514404, -0.16906258463859558, 0.09703255444765091,
)  # fmt: skip
_LOG10_2_32: Final = (0.3010300099849701, -1.432098883924482e-08)
_PER_2_32: Final = (1.4426950216293335, 1.925963033500011e-08)
_ERFC_32: Final = (
    1.2329951524734497, -0.13962113857269287, 0.01537962257862091, 0.06809784471988678, -0.10103762149810791,
    0.09372135996818542, -0.06635618954896927, 0.03721962869167328, -0.01602162793278694, 0.005052465014159679,
    -0.0011288326932117343, -0.000639706791844219,
)  # fmt: skip
_ERFC_END_32: Final = 10.1  # from there on, erfc rounds to 0


def exp2(f: Functions, x: Any) -> Any:
    return _exp2(f, x, _RANGE, _TERMS)


def exp2_32(f: Functions, x: Any) -> Any:
    return _exp2(f, x, _RANGE_32, _TERMS_32)


def _exp2(f: Functions, x: Any, ends: tuple[float, float], terms: int) -> Any:
    """2^n * exp(r * ln 2) with n the nearest integer; in two steps, as exp, as the result may be subnormal."""
    b, bounded = f.b, f.clamp(x, *ends)
    inside = b.select(f.is_nan(x), f.const(0.0), bounded)
    n = f.unary("rint", inside)
    r = b.fsub(inside, n)
    y = f.polynomial([math.log(2) ** k / math.factorial(k) for k in range(terms)], r)
    power = b.fptosi(n, f.int_type)
    half = b.ashr(power, f.const(1, f.int_type))
    y = b.fmul(b.fmul(y, f.power_of_two(half)), f.power_of_two(b.sub(power, half)))
    return b.select(f.is_nan(x), x, y)


def log2(f: Functions, x: Any) -> Any:
    return _log(f, x, _PER_2)


def log10(f: Functions, x: Any) -> Any:
    return _log(f, x, _PER_10)


def brief_log(f: Functions, x: Any) -> Any:
    """The natural logarithm of x = 2^e * m: that of m and ln(2) times e."""
    exponent, m = f.split(x)
    part = f.b.fsub(m, f.const(1.0))
    found = f.b.fmul(part, f.polynomial(_BRIEF_LOG, part))
    return _with_ends(f, x, f.fma(exponent, f.const(math.log(2)), found))


def _log(f: Functions, x: Any, per: tuple[float, float]) -> Any:
    b = f.b
    high, low = log_as_sum(f, x)
    factor = f.const(per[0])
    product = b.fmul(high, factor)
    lost = f.fma(low, factor, f.fma(high, f.const(per[1]), f.fma(high, factor, b.fneg(product))))
    finite = b.fcmp_ordered("<", f.unary("fabs", high), f.const(math.inf))
    found = b.select(finite, b.fadd(product, lost), high)
    found = b.select(b.fcmp_ordered("<", x, f.const(0.0)), f.const(math.nan), found)
    return b.select(f.is_nan(x), x, found)


def erfc(f: Functions, x: Any) -> Any:
    b, one = f.b, f.const(1.0)
    size = f.clamp(f.unary("fabs", x), 0.5, ERFC_END)
    square = b.fmul(size, size)
    lost = f.fma(size, size, b.fneg(square))
    place = b.fdiv(b.fsub(size, f.const(2.5)), b.fadd(size, f.const(2.5)))
    decay = b.fdiv(f.exp_of_sum(b.fneg(square), b.fneg(lost)), size)
    tail = b.fmul(decay, f.polynomial(ERFC_TAIL, place))
    far = b.select(b.fcmp_ordered("<", x, f.const(0.0)), b.fsub(f.const(2.0), tail), tail)
    # nan compares false, and 1 - erf propagates it
    return b.select(b.fcmp_ordered(">=", f.unary("fabs", x), f.const(0.5)), far, b.fsub(one, f.erf(x)))


def log2_32(f: Functions, x: Any) -> Any:
    return _with_ends(f, x, f.b.fadd(*_log2_as_sum(f, x)))


def log10_32(f: Functions, x: Any) -> Any:
    b, (high, low) = f.b, _log2_as_sum(f, x)
    first, second = (f.const(c) for c in _LOG10_2_32)
    product = b.fmul(high, first)
    lost = f.fma(high, first, b.fneg(product))
    return _with_ends(f, x, b.fadd(product, f.fma(low, first, f.fma(high, second, lost))))


def _log2_as_sum(f: Functions, x: Any) -> tuple[Any, Any]:
    """log2 of f32 as a sum of two numbers, for positive finite x."""
    b = f.b
    exponent, m = f.split(x)
    part = b.fsub(m, f.const(1.0))
    first, second = (f.const(c) for c in _PER_2_32)
    product = b.fmul(part, first)
    lost = f.fma(part, first, b.fneg(product))
    rest = f.fma(part, f.fma(part, f.polynomial(_LOG2_32, part), second), lost)
    total = b.fadd(exponent, product)
    # |exponent| is 0 or greater than the product, so this is the rounding error of the sum
    below = b.fsub(product, b.fsub(total, exponent))
    return total, b.fadd(below, rest)


def _with_ends(f: Functions, x: Any, found: Any) -> Any:
    """A logarithm as it is for 0, numbers below, infinity and nan, too."""
    b = f.b
    found = b.select(b.fcmp_ordered("==", x, f.const(0.0)), f.const(-math.inf), found)
    found = b.select(b.fcmp_ordered("<", x, f.const(0.0)), f.const(math.nan), found)
    return b.select(b.fcmp_unordered("ueq", x, f.const(math.inf)), x, found)


def erfc_32(f: Functions, x: Any) -> Any:
    b, one = f.b, f.const(1.0)
    size = f.at_most(f.unary("fabs", x), _ERFC_END_32)
    square = b.fmul(size, size)
    lost = f.fma(size, size, b.fneg(square))
    over, under = b.fsub(size, f.const(4.0)), b.fadd(size, f.const(4.0))
    inverse = b.fdiv(one, under)
    place = b.fmul(over, inverse)
    place = f.fma(f.fma(b.fneg(place), under, over), inverse, place)
    share = b.fdiv(f.polynomial(_ERFC_32, place), f.fma(size, f.const(2.0), one))
    tail = b.fmul(f.exp_of_sum(b.fneg(square), b.fneg(lost)), share)
    return b.select(b.fcmp_ordered("<", x, f.const(0.0)), b.fsub(f.const(2.0), tail), tail)
