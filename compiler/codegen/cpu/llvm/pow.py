"""pow of f64 vectors; f32 is computed in f64 and rounded once.

``exp(y * log|x|)`` with the logarithm as a sum of two numbers. With x = 2^e * m, s = (m - 1)/(m + 1) is computed with
its remainder. The first two terms of the series 2*(s + s^3/3 + s^5/5 + ...) are summed with their rounding errors, and
so is the product with y (Dekker 1971, with fused multiply-add). The error is below 1.5 ulp in f64, 0.51 in f32, whose
logarithm is one number: the exponent is below 104, so an error of 2^-40 of it is no more than 2^-33 of the power.
Special cases are those of C and numpy: 1 for ``x^0`` and ``1^y`` even with nan, nan for a negative number to a
non-integer power.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from dslc.compiler.codegen.cpu.llvm.math import Functions

_LN2_HIGH: Final = 6.93147180369123816490e-01  # 32 bits, so that its product with an exponent is exact
_LN2_LOW: Final = 1.90821492927058770002e-10
_THIRD: Final = (2 / 3, 3.700743415417188e-17)  # 2/3 as a sum of two
_TERMS: Final = 12
_LIMIT: Final = 800.0  # exp overflows above it and is 0 below its negative


def power(f: Functions, x: Any, y: Any) -> Any:
    """``x`` to the power ``y``, f64 lanes."""
    b = f.b
    size, one, zero = f.unary("fabs", x), f.const(1.0), f.const(0.0)
    if f.brief:
        found = f.exp(b.fmul(y, f.log(size)))
    else:
        high, low = log_as_sum(f, size)
        product = b.fmul(y, high)
        lost = f.fma(y, low, f.fma(y, high, b.fneg(product)))
        inside = b.fcmp_ordered("<", f.unary("fabs", product), f.const(_LIMIT))
        found = f.exp_of_sum(product, b.select(inside, lost, zero))
    found = b.select(b.fcmp_ordered("==", size, one), one, found)
    whole = b.fcmp_ordered("==", f.unary("rint", y), y)
    half = b.fmul(y, f.const(0.5))
    odd = b.and_(whole, b.fcmp_unordered("!=", f.unary("rint", half), half))
    found = b.select(odd, f.copysign(found, x), found)
    refused = b.and_(b.fcmp_ordered("<", x, zero), b.not_(whole))
    refused = b.and_(refused, b.fcmp_ordered("<", size, f.const(math.inf)))
    found = b.select(refused, f.const(math.nan), found)
    found = b.select(b.or_(f.is_nan(x), f.is_nan(y)), f.const(math.nan), found)
    return b.select(b.or_(b.fcmp_ordered("==", x, one), b.fcmp_ordered("==", y, zero)), one, found)


def log_as_sum(f: Functions, x: Any) -> tuple[Any, Any]:
    """log(x) as a sum of two numbers; (-inf, 0) for 0 and (inf, 0) for inf."""
    b = f.b
    exponent, m = f.split(x)
    w = b.fsub(m, f.const(1.0))
    below = b.fadd(w, f.const(2.0))
    lost = b.fsub(w, b.fsub(below, f.const(2.0)))
    s = b.fdiv(w, below)
    s_low = b.fdiv(f.fma(b.fneg(s), lost, f.fma(b.fneg(s), below, w)), below)
    z = b.fmul(s, s)
    z_low = f.fma(b.fadd(s, s), s_low, f.fma(s, s, b.fneg(z)))
    third = f.const(_THIRD[0])
    t = b.fmul(z, third)
    t_low = f.fma(z_low, third, f.fma(z, f.const(_THIRD[1]), f.fma(z, third, b.fneg(t))))
    u = b.fmul(s, t)
    u_low = f.fma(s_low, t, f.fma(s, t_low, f.fma(s, t, b.fneg(u))))
    series = f.polynomial([2 / (2 * k + 5) for k in range(_TERMS)], z)
    tail = b.fmul(b.fmul(s, b.fmul(z, z)), series)
    twice = b.fadd(s, s)
    high = b.fadd(twice, u)
    low = b.fsub(u, b.fsub(high, twice))
    low = b.fadd(low, b.fadd(b.fadd(b.fadd(s_low, s_low), u_low), tail))
    of_two = b.fmul(exponent, f.const(_LN2_HIGH))
    whole = b.fadd(of_two, high)
    part = b.fsub(whole, of_two)
    rest = b.fadd(b.fsub(of_two, b.fsub(whole, part)), b.fsub(high, part))
    rest = b.fadd(b.fadd(rest, low), b.fmul(exponent, f.const(_LN2_LOW)))
    high = b.fadd(whole, rest)
    low = b.fadd(b.fsub(whole, high), rest)
    none, all = b.fcmp_ordered("==", x, f.const(0.0)), b.fcmp_ordered("==", x, f.const(math.inf))
    high = b.select(none, f.const(-math.inf), b.select(all, f.const(math.inf), high))
    return high, b.select(b.or_(none, all), f.const(0.0), low)
