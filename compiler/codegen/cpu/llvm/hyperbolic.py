"""sinh, cosh and their inverses of f64 vectors; except for atanh, those of f32 are computed in f64 and
rounded once.

They come from expm1 and log1p, so that small arguments lose no digits, and from exp and log where a square or a power
would overflow. The errors, which a test checks, are below 5 ulp.

atanh of f32 is a polynomial below 1/2, and half of log((1 + a) / (1 - a)) from there on: 4 ulp.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from dslc.compiler.codegen.cpu.llvm.math import Functions

_MOST: Final = 709.0  # exp of it is finite
_FAR: Final = 2.0**28  # from there on, sqrt(x^2 + 1) rounds to x
#: (atanh(t)/t - 1) / t^2 by rising powers of t^2 up to 1/4: least squares at 4000 Chebyshev nodes, reweighted until the
#: maximum error was minimal (Lawson 1961).
_ATANH_32: Final = (
    0.3333333432674408, 0.19999955594539642, 0.14288486540317535, 0.11047382652759552, 0.09778645634651184,
    0.039963576942682266, 0.15756534039974213,
)  # fmt: skip


def _half_of_exp(f: Functions, size: Any) -> Any:
    """exp(size) / 2, which may be finite where exp(size) is not."""
    root = f.exp(f.b.fmul(size, f.const(0.5)))
    return f.b.fmul(f.b.fmul(root, f.const(0.5)), root)


def sinh(f: Functions, x: Any) -> Any:
    """(e + e / (e + 1)) / 2 with e = expm1(|x|)."""
    b, size = f.b, f.unary("fabs", x)
    e = f.expm1(f.at_most(size, _MOST))
    near = b.fmul(b.fadd(e, b.fdiv(e, b.fadd(e, f.const(1.0)))), f.const(0.5))
    return f.copysign(b.select(b.fcmp_ordered(">", size, f.const(_MOST)), _half_of_exp(f, size), near), x)


def cosh(f: Functions, x: Any) -> Any:
    """(e + 1 / e) / 2 with e = exp(|x|)."""
    b, size = f.b, f.unary("fabs", x)
    e = f.exp(f.at_most(size, _MOST))
    near = b.fmul(b.fadd(e, b.fdiv(f.const(1.0), e)), f.const(0.5))
    return b.select(b.fcmp_ordered(">", size, f.const(_MOST)), _half_of_exp(f, size), near)


def _log_of_twice(f: Functions, x: Any) -> Any:
    return f.b.fadd(f.log(x), f.const(math.log(2)))


def asinh(f: Functions, x: Any) -> Any:
    """log1p(a + a^2 / (1 + sqrt(a^2 + 1))) with a = |x|."""
    b, size, one = f.b, f.unary("fabs", x), f.const(1.0)
    square = b.fmul(size, size)
    near = f.log1p(b.fadd(size, b.fdiv(square, b.fadd(one, f.unary("sqrt", b.fadd(square, one))))))
    return f.copysign(b.select(b.fcmp_ordered(">", size, f.const(_FAR)), _log_of_twice(f, size), near), x)


def acosh(f: Functions, x: Any) -> Any:
    """log1p(t + sqrt(t * (t + 2))) with t = x - 1; nan for x < 1."""
    b, one = f.b, f.const(1.0)
    t = b.fsub(x, one)
    near = f.log1p(b.fadd(t, f.unary("sqrt", b.fmul(t, b.fadd(t, f.const(2.0))))))
    found = b.select(b.fcmp_ordered(">", x, f.const(_FAR)), _log_of_twice(f, x), near)
    return b.select(b.fcmp_ordered("<", x, one), f.const(math.nan), found)


def atanh(f: Functions, x: Any) -> Any:
    """log1p(2a + 2a * a / (1 - a)) / 2 with a = |x|; nan for a > 1."""
    b, size = f.b, f.unary("fabs", x)
    twice, rest = b.fadd(size, size), b.fsub(f.const(1.0), size)
    near = b.fadd(twice, b.fdiv(b.fmul(twice, size), rest))
    apart = b.select(b.fcmp_ordered("<", size, f.const(0.5)), near, b.fdiv(twice, rest))
    return f.copysign(b.fmul(f.log1p(apart), f.const(0.5)), x)


def atanh_32(f: Functions, x: Any) -> Any:
    b, size, one = f.b, f.unary("fabs", x), f.const(1.0)
    z = b.fmul(size, size)
    near = f.fma(b.fmul(size, z), f.polynomial(_ATANH_32, z), size)
    far = b.fmul(f.log(b.fdiv(b.fadd(one, size), b.fsub(one, size))), f.const(0.5))
    return f.copysign(b.select(b.fcmp_ordered("<", size, f.const(0.5)), near, far), x)
