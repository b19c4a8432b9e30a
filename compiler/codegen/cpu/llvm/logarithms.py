"""log2, log10, exp2 and erfc of f64 vectors; those of f32 are computed in f64 and rounded once.

log2 and log10 multiply pow's logarithm, a sum of two numbers, so those of powers of 2 and of 10 are exact. erfc follows
``compiler/ir/special.py``. The errors, which a test checks, are below 1 ulp for the logarithms, 2 for exp2, 5 for erfc.
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
#: 1/ln(2) and 1/ln(10) as sums of two numbers.
_PER_2: Final = (1.4426950408889634, 2.0355273740931033e-17)
_PER_10: Final = (0.4342944819032518, 1.098319650216765e-17)


def exp2(f: Functions, x: Any) -> Any:
    """2^n * exp(r * ln 2) with n the nearest integer; in two steps, as exp."""
    b, bounded = f.b, f.clamp(x, *_RANGE)
    inside = b.select(f.is_nan(x), f.const(0.0), bounded)
    n = f.unary("rint", inside)
    r = b.fmul(b.fsub(inside, n), f.const(math.log(2)))
    y = f.polynomial([1 / math.factorial(k) for k in range(_TERMS)], r)
    power = b.fptosi(n, f.int_type)
    half = b.ashr(power, f.const(1, f.int_type))
    y = b.fmul(b.fmul(y, f.power_of_two(half)), f.power_of_two(b.sub(power, half)))
    return b.select(f.is_nan(x), x, y)


def log2(f: Functions, x: Any) -> Any:
    return _log(f, x, _PER_2)


def log10(f: Functions, x: Any) -> Any:
    return _log(f, x, _PER_10)


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
