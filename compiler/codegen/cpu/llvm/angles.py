"""tan, asin, acos, atan and atan2 of f64 vectors; tan of f32 is computed in f64 and rounded once.

atan has the form of Ng, "FDLIBM": ``atan(x) = atan(c) + atan((x - c) / (1 + c * x))`` with c of 0, 1/2, 1, 3/2 or
infinity moves |x| next to 0, and a polynomial of degree 23 applies; atan(c) is a sum of two numbers. asin and acos are
arctangents of quotients whose terms are exact next to the ends, so nothing cancels. The errors, which a test checks,
are below 1 ulp for atan, 3 for atan2 and tan, 4 for asin and acos.

asin, acos and atan of f32 have polynomials of their own, with one root or one division: below 1 ulp for atan, 2 for the
others. atan(x) is pi/2 - atan(1/x) from 1 on; asin(x) is pi/2 - 2 * asin(sqrt((1 - x) / 2)) from 1/2 on. atan2 of f32
is that atan of a quotient: 3 ulp.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

from dslc.compiler.codegen.cpu.llvm.trigonometry import HALF_PI, tangent

if TYPE_CHECKING:
    from dslc.compiler.codegen.cpu.llvm.math import Functions

#: Where the intervals of |x| begin; numerator (a*x + b) and denominator (c*x + d) of the moved argument; atan(c).
_INTERVALS: Final = (
    (0.4375, (2.0, -1.0), (1.0, 2.0), (4.63647609000806093515e-01, 2.26987774529616870924e-17)),
    (0.6875, (1.0, -1.0), (1.0, 1.0), (7.85398163397448278999e-01, 3.06161699786838301793e-17)),
    (1.1875, (1.0, -1.5), (1.5, 1.0), (9.82793723247329054082e-01, 1.39033110312309984516e-17)),
    (2.4375, (0.0, -1.0), (1.0, 0.0), (HALF_PI[0], HALF_PI[1])),
)
#: (1 - atan(x)/x) / x^2 by rising powers of x^2, from FDLIBM's s_atan.c.
_ATAN: Final = (
    3.33333333333329318027e-01, -1.99999999998764832476e-01, 1.42857142725034663711e-01, -1.11111104054623557880e-01,
    9.09088713343650656196e-02, -7.69187620504482999495e-02, 6.66107313738753120669e-02, -5.83357013379057348645e-02,
    4.97687799461593236017e-02, -3.65315727442169155270e-02, 1.62858201153657823623e-02,
)  # fmt: skip
#: (atan(t)/t - 1) / t^2 by rising powers of t^2 up to 1, and the same of asin up to 1/4: least squares at 4000
#: Chebyshev nodes, reweighted until the maximum error was minimal (Lawson 1961).
_ATAN_32: Final = (
    -0.3333333432674408, 0.19999960064888, -0.14284271001815796, 0.11090975999832153, -0.0894564762711525,
    0.07071514427661896, -0.04962790384888649, 0.026961199939250946, -0.009492841549217701, 0.0015657333424314857,
)  # fmt: skip
_ASIN_32: Final = (
    0.1666666567325592, 0.07500103116035461, 0.04459662735462189, 0.031131910160183907, 0.017005832865834236,
    0.0339210070669651,
)  # fmt: skip
#: pi/2 as a sum of two f32.
_HALF_PI_32: Final = (1.5707963705062866, -4.371138828673793e-08)
_MOST: Final = 2.0**127  # atan rounds to pi/2 long before


def tan(f: Functions, x: Any) -> Any:
    return tangent(f, x)


def atan(f: Functions, x: Any) -> Any:
    b, size = f.b, f.unary("fabs", x)
    over, under = size, f.const(1.0)
    high = low = f.const(0.0)
    for start, (rise, shift), (slope, base), middle in _INTERVALS:
        here = b.fcmp_ordered(">=", size, f.const(start))
        # an infinite |x| has the last interval, which does not multiply it by 0
        moved = f.fma(size, f.const(rise), f.const(shift)) if rise else f.const(shift)
        over = b.select(here, moved, over)
        under = b.select(here, f.fma(size, f.const(slope), f.const(base)), under)
        high, low = (b.select(here, f.const(part), old) for part, old in zip(middle, (high, low), strict=True))
    t = b.fdiv(over, under)
    z = b.fmul(t, t)
    curved = b.fmul(t, b.fmul(z, f.polynomial(_ATAN, z)))
    return f.copysign(b.fsub(high, b.fsub(b.fsub(curved, low), t)), x)


def asin(f: Functions, x: Any) -> Any:
    """atan(x / sqrt((1 - x) * (1 + x)))."""
    b, one = f.b, f.const(1.0)
    across = f.unary("sqrt", b.fmul(b.fsub(one, x), b.fadd(one, x)))
    return atan(f, b.fdiv(x, across))


def acos(f: Functions, x: Any) -> Any:
    """2 * atan(sqrt((1 - x) / (1 + x)))."""
    b, one = f.b, f.const(1.0)
    half = atan(f, f.unary("sqrt", b.fdiv(b.fsub(one, x), b.fadd(one, x))))
    return b.fadd(half, half)


def atan2(f: Functions, y: Any, x: Any) -> Any:
    return _angle(f, y, x, atan, HALF_PI)


def atan2_32(f: Functions, y: Any, x: Any) -> Any:
    return _angle(f, y, x, atan_32, _HALF_PI_32)


def _angle(f: Functions, y: Any, x: Any, of: Callable[[Functions, Any], Any], half: Sequence[float]) -> Any:
    """The angle of (x, y) in -pi..pi by an arctangent; zeros count by their signs, as in C. ``half``: pi/2 as a sum."""
    b, zero, one = f.b, f.const(0.0), f.const(1.0)
    up, across = f.unary("fabs", y), f.unary("fabs", x)
    ratio = b.select(b.fcmp_ordered("==", up, across), one, b.fdiv(up, across))  # inf / inf
    ratio = b.select(b.fcmp_ordered("==", up, zero), zero, ratio)  # 0 / 0
    angle = of(f, ratio)
    left = b.fcmp_ordered("<", f.copysign(one, x), zero)
    # pi less the angle, and less the part of pi that its first number lacks
    other = b.fsub(f.const(2 * half[0]), b.fsub(angle, f.const(2 * half[1])))
    found = f.copysign(b.select(left, other, angle), y)
    return b.select(b.or_(f.is_nan(x), f.is_nan(y)), f.const(math.nan), found)


def atan_32(f: Functions, x: Any) -> Any:
    b, size, one = f.b, f.at_most(f.unary("fabs", x), _MOST), f.const(1.0)
    big = b.fcmp_ordered(">", size, one)
    inverse = b.fdiv(one, size)
    t = b.select(big, inverse, size)
    z = b.fmul(t, t)
    curved = b.fmul(b.fmul(t, z), f.polynomial(_ATAN_32, z))
    # the rounding error of 1/x moves its arctangent by 1 / (1 + t^2), about 1 - t^2/2
    lost = b.fmul(b.fmul(f.fma(b.fneg(inverse), size, one), inverse), f.fma(z, f.const(-0.5), one))
    high, low = (f.const(part) for part in _HALF_PI_32)
    apart = b.fsub(high, t)
    below = b.fsub(b.fsub(high, apart), t)
    far = b.fadd(apart, b.fsub(below, b.fsub(b.fadd(curved, lost), low)))
    return f.copysign(b.select(big, far, b.fadd(t, curved)), x)


def _near_32(f: Functions, x: Any) -> tuple[Any, Any]:
    """Whether |x| is below 1/2, and asin(|x|) if it is, else asin(sqrt((1 - |x|) / 2))."""
    b, size = f.b, f.unary("fabs", x)
    near = b.fcmp_ordered("<", size, f.const(0.5))
    half = b.fmul(b.fsub(f.const(1.0), size), f.const(0.5))
    z = b.select(near, b.fmul(x, x), half)
    t = b.select(near, size, f.unary("sqrt", half))
    return near, f.fma(b.fmul(t, z), f.polynomial(_ASIN_32, z), t)


def asin_32(f: Functions, x: Any) -> Any:
    b, (high, low) = f.b, (f.const(part) for part in _HALF_PI_32)
    near, found = _near_32(f, x)
    far = b.fsub(high, b.fsub(b.fadd(found, found), low))
    return f.copysign(b.select(near, found, far), x)


def acos_32(f: Functions, x: Any) -> Any:
    b, (high, low) = f.b, (f.const(part) for part in _HALF_PI_32)
    near, found = _near_32(f, x)
    negative = b.fcmp_ordered("<", x, f.const(0.0))
    middle = b.fsub(high, b.fsub(b.select(negative, b.fneg(found), found), low))
    twice = b.fadd(found, found)
    left = b.fsub(b.fadd(high, high), b.fsub(twice, b.fadd(low, low)))
    return b.select(near, middle, b.select(negative, left, twice))
