"""exp, log, tanh, erf and similar functions as polynomials, on f32 or f64 vectors. sin, cos and pow have their own
files.

They use only +, *, /, fma, rounding to an integer and bit moves. So they call no library, and every level gives the
same bits. Error bounds, which a test checks against f64 (or the math module's f64) over the whole range: exp, expm1,
log, log1p 2 ulp; tanh 4 ulp; erf 2e-7 (f32), 4e-16 (f64) absolute. Those of the table ``IN_F64`` have files of their
own and compute in f64, so that those of f32 are rounded once: 0.51 ulp; in f64 5 ulp. Those of ``_IN_F32`` compute in
f32 within the bounds of f64, which is twice as fast and needs fewer divisions. What is rounded to f32 needs no
more than some 2^-33 of error before: ``Functions.brief`` says so, and some functions then take shorter series.

Sources: exp uses Cody and Waite's reduction. log has the form of Ng, "FDLIBM" (s = f/(2+f), log(1+f) = f - (f^2/2 -
s*(f^2/2 + R))), with the exact series of atanh for R. expm1 keeps ``exp(r) - 1`` separate from 1 and scales both. erf
of f64 follows ``compiler/ir/special.py``; erf of f32 has its own polynomial.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final

from llvmlite import ir

from dslc.compiler.codegen.cpu.llvm import angles, hyperbolic, logarithms
from dslc.compiler.codegen.cpu.llvm.pow import power
from dslc.compiler.codegen.cpu.llvm.trigonometry import sine
from dslc.compiler.codegen.cpu.llvm.writer import I32, I64, Code, suffix, wide
from dslc.compiler.ir.special import ERF_TABLES

_LN2_HIGH: Final = {32: 0.693145751953125, 64: 6.93147180369123816490e-01}
_LN2_LOW: Final = {32: 1.42860682030941723212e-06, 64: 1.90821492927058770002e-10}
_EXP_TERMS: Final = {32: 7, 64: 13}  # degree of the Taylor series on |r| <= ln(2)/2
_BRIEF_EXP_TERMS: Final = 9  # before a rounding to f32: the next term is below 2^-37
_EXP_RANGE: Final = {32: (-104.5, 89.0), 64: (-746.0, 710.0)}  # outside: 0, inf
_EXPM1_RANGE: Final = {32: (-20.0, 89.0), 64: (-40.0, 710.0)}  # below: -1
_LOG_TERMS: Final = {32: 4, 64: 10}
_BIAS: Final = {32: 127, 64: 1023}
_MANTISSA: Final = {32: 23, 64: 52}
_ROOT_HALF_BITS: Final = {32: 0x3F3504F3, 64: 0x3FE6A09E667F3BCD}
_LEAST_NORMAL: Final = {32: 2.0**-126, 64: 2.0**-1022}
#: erf(x)/x by rising powers of s = 2*(x/_ERF_END)^2 - 1 on [-_ERF_END, _ERF_END]: least squares of ``math.erf`` at 2000
#: Chebyshev nodes, reweighted until the maximum error was minimal (Lawson 1961): 2e-8 before rounding. From the end on,
#: erf rounds to 1 in f32.
_ERF_END: Final = 3.92
_ERF_32: Final = (
    0.360736817, -0.180108637, 0.134084359, -0.109178677, 0.0906006321, -0.0740274936, 0.0583706126, -0.0433916114,
    0.0297798123, -0.0201274976, 0.0140752327, -0.00745809264, 0.00202799495, -0.001548892, 0.00206510047,
    -0.00079762988,
)  # fmt: skip
_TANH_END: Final = {32: 10.0, 64: 20.0}  # from there on, tanh rounds to 1

#: Functions that are computed in f64 for f32, too, by their names in a scalar tree.
IN_F64: Final[dict[str, Callable[[Functions, Any], Any]]] = {
    "sin": lambda f, x: sine(f, x, 0),
    "cos": lambda f, x: sine(f, x, 1),
    "tan": angles.tan,
    "asin": angles.asin,
    "acos": angles.acos,
    "atan": angles.atan,
    "sinh": hyperbolic.sinh,
    "cosh": hyperbolic.cosh,
    "asinh": hyperbolic.asinh,
    "acosh": hyperbolic.acosh,
    "atanh": hyperbolic.atanh,
    "exp2": logarithms.exp2,
    "log2": logarithms.log2,
    "log10": logarithms.log10,
    "erfc": logarithms.erfc,
}
#: Those of f32 that have a polynomial in f32.
_IN_F32: Final[dict[str, Callable[[Functions, Any], Any]]] = {
    "asin": angles.asin_32,
    "acos": angles.acos_32,
    "atan": angles.atan_32,
    "atanh": hyperbolic.atanh_32,
    "log2": logarithms.log2_32,
    "log10": logarithms.log10_32,
    "exp2": logarithms.exp2_32,
    "erfc": logarithms.erfc_32,
}
#: Functions that are worth keeping for another stage of a kernel.
COSTLY: Final = frozenset({"exp", "expm1", "log", "log1p", "tanh", "erf", "pow", "atan2", *IN_F64})


class Functions:
    """The functions on values of one float type and lane count, emitted at the builder's position. ``brief``: of f64,
    whose results are rounded to f32, and whose arguments are f32."""

    def __init__(self, code: Code, type: Any, brief: bool = False) -> None:
        self.code, self.b, self.type, self.brief = code, code.b, type, brief
        lane = type.element if isinstance(type, ir.VectorType) else type
        self.lanes = type.count if isinstance(type, ir.VectorType) else 1
        self.bits = 32 if isinstance(lane, ir.FloatType) else 64
        self.significand = _MANTISSA[self.bits] + 1
        self.int_type = wide(I32 if self.bits == 32 else I64, self.lanes)

    def const(self, value: float, type: Any = None) -> Any:
        type = self.type if type is None else type
        return ir.Constant(type, [value] * self.lanes if self.lanes > 1 else value)

    def fma(self, x: Any, y: Any, z: Any) -> Any:
        return self.code.intrinsic(f"llvm.fma.{suffix(self.type)}", self.type, x, y, z)

    def unary(self, name: str, x: Any) -> Any:
        """An intrinsic that is a single instruction on every level: fabs, sqrt, floor, rint."""
        return self.code.intrinsic(f"llvm.{name}.{suffix(self.type)}", self.type, x)

    def copysign(self, size: Any, sign: Any) -> Any:
        return self.code.intrinsic(f"llvm.copysign.{suffix(self.type)}", self.type, size, sign)

    def polynomial(self, coefficients: Sequence[float], x: Any) -> Any:
        """Evaluates a polynomial with coefficients by rising powers."""
        result = self.const(coefficients[-1])
        for c in coefficients[-2::-1]:
            result = self.fma(result, x, self.const(c))
        return result

    def is_nan(self, x: Any) -> Any:
        return self.b.fcmp_unordered("uno", x, x)

    def clamp(self, x: Any, low: float, high: float) -> Any:
        """Clamps to a range; keeps nan."""
        return self.at_most(self.b.select(self.b.fcmp_ordered("<", x, self.const(low)), self.const(low), x), high)

    def at_most(self, x: Any, high: float) -> Any:
        """Clamps from above; keeps nan."""
        return self.b.select(self.b.fcmp_ordered(">", x, self.const(high)), self.const(high), x)

    def _reduced(self, x: Any) -> tuple[Any, Any]:
        """n as an integer and r with x = n ln 2 + r, |r| <= ln(2)/2; undefined for nan."""
        n = self.unary("rint", self.b.fmul(x, self.const(1 / math.log(2))))
        r = self.fma(n, self.const(-_LN2_HIGH[self.bits]), x)
        r = self.fma(n, self.const(-_LN2_LOW[self.bits]), r)
        return self.b.fptosi(n, self.int_type), r

    def power_of_two(self, n: Any) -> Any:
        biased = self.b.add(n, self.const(_BIAS[self.bits], self.int_type))
        return self.b.bitcast(self.b.shl(biased, self.const(_MANTISSA[self.bits], self.int_type)), self.type)

    @property
    def _exp_terms(self) -> int:
        return _BRIEF_EXP_TERMS if self.brief else _EXP_TERMS[self.bits]

    def exp(self, x: Any) -> Any:
        return self.exp_of_sum(x, None)

    def exp_of_sum(self, x: Any, low: Any | None) -> Any:
        """exp(x + low), with ``low`` small compared with 1."""
        least, most = _EXP_RANGE[self.bits]
        gone = self.b.fcmp_ordered("<", x, self.const(least))  # skipped: products that underflow are slow
        inside = self.b.select(gone, self.const(0.0), x)
        n, r = self._reduced(self.b.select(self.b.fcmp_ordered(">", x, self.const(most)), self.const(most), inside))
        if low is not None:
            r = self.b.fadd(r, low)
        y = self.polynomial([1 / math.factorial(k) for k in range(self._exp_terms + 1)], r)
        # in two steps, so that neither power overflows and subnormal results round once
        half = self.b.ashr(n, self.const(1, self.int_type))
        y = self.b.fmul(self.b.fmul(y, self.power_of_two(half)), self.power_of_two(self.b.sub(n, half)))
        return self.b.select(gone, self.const(0.0), self.b.select(self.is_nan(x), x, y))

    def expm1(self, x: Any) -> Any:
        n, r = self._reduced(self.clamp(x, *_EXPM1_RANGE[self.bits]))
        terms = [1 / math.factorial(k) for k in range(2, self._exp_terms + 2)]
        q = self.fma(self.b.fmul(r, r), self.polynomial(terms, r), r)
        # 2 * (h*q + (h - 1/2)) with h = 2^(n-1): h is finite whenever the result may be
        h = self.power_of_two(self.b.sub(n, self.const(1, self.int_type)))
        y = self.fma(h, q, self.b.fsub(h, self.const(0.5)))
        y = self.b.fadd(y, y)
        keep = self.b.fcmp_unordered("ueq", x, self.const(0.0))
        return self.b.select(keep, x, y)

    def split(self, x: Any) -> tuple[Any, Any]:
        """The exponent as a float, and m with ``x = m * 2^exponent``, sqrt(1/2) <= m < sqrt(2); for finite x > 0."""
        bits, b = self.bits, self.b
        tiny = b.fcmp_ordered("<", x, self.const(_LEAST_NORMAL[bits]))
        scaled = b.select(tiny, b.fmul(x, self.const(2.0 ** _MANTISSA[bits])), x)
        raw = b.bitcast(scaled, self.int_type)
        shift = self.const(_MANTISSA[bits], self.int_type)
        e = b.ashr(b.sub(raw, self.const(_ROOT_HALF_BITS[bits], self.int_type)), shift)
        m = b.bitcast(b.sub(raw, b.shl(e, shift)), self.type)
        exponent = b.sitofp(e, self.type)
        return b.select(tiny, b.fsub(exponent, self.const(float(_MANTISSA[bits]))), exponent), m

    def log(self, x: Any) -> Any:
        if self.brief:
            return logarithms.brief_log(self, x)
        bits, b = self.bits, self.b
        exponent, m = self.split(x)
        f = b.fsub(m, self.const(1.0))
        s = b.fdiv(f, b.fadd(f, self.const(2.0)))
        z = b.fmul(s, s)
        r = b.fmul(z, self.polynomial([2 / (2 * k + 3) for k in range(_LOG_TERMS[bits])], z))
        half_square = b.fmul(b.fmul(f, f), self.const(0.5))
        low = self.fma(s, b.fadd(half_square, r), b.fmul(exponent, self.const(_LN2_LOW[bits])))
        y = b.fsub(f, b.fsub(half_square, low))
        y = self.fma(exponent, self.const(_LN2_HIGH[bits]), y)
        y = b.select(b.fcmp_ordered("==", x, self.const(0.0)), self.const(-math.inf), y)
        y = b.select(b.fcmp_ordered("<", x, self.const(0.0)), self.const(math.nan), y)
        keep = b.fcmp_unordered("ueq", x, self.const(math.inf))  # inf and nan
        return b.select(keep, x, y)

    def log1p(self, x: Any) -> Any:
        b = self.b
        one = self.const(1.0)
        u = b.fadd(x, one)
        y = b.fadd(self.log(u), b.fdiv(b.fsub(x, b.fsub(u, one)), u))  # corrects the rounding of u
        y = b.select(b.fcmp_ordered("==", u, self.const(0.0)), self.const(-math.inf), y)
        keep = b.or_(b.fcmp_unordered("ueq", x, self.const(math.inf)), b.fcmp_ordered("==", x, self.const(0.0)))
        return b.select(keep, x, y)

    def tanh(self, x: Any) -> Any:
        size = self.clamp(self.unary("fabs", x), 0.0, _TANH_END[self.bits])
        e = self.expm1(self.b.fadd(size, size))
        return self.copysign(self.b.fdiv(e, self.b.fadd(e, self.const(2.0))), x)

    def erf(self, x: Any) -> Any:
        if self.bits == 32:
            return self._erf_32(x)
        b = self.b
        central, tail, end = ERF_TABLES[self.bits]
        size = self.clamp(self.unary("fabs", x), 0.0, end)
        square = b.fmul(size, size)
        near = b.fmul(x, self.polynomial(central, self.clamp(square, 0.0, 1.0)))
        outer = self.clamp(size, 1.0, end)
        place = b.fdiv(b.fsub(outer, self.const(2.5)), b.fadd(outer, self.const(2.5)))
        decay = b.fdiv(self.exp(b.fneg(b.fmul(outer, outer))), outer)
        far = b.fsub(self.const(1.0), b.fmul(decay, self.polynomial(tail, place)))
        # nan compares false and takes the inner branch, which propagates it
        return b.select(b.fcmp_ordered(">=", size, self.const(1.0)), self.copysign(far, x), near)

    def _erf_32(self, x: Any) -> Any:
        """x * p(x^2), clamped to -1..1: one polynomial, without exp or division. Keeps nan."""
        x = self.clamp(x, -_ERF_END, _ERF_END)
        place = self.fma(self.b.fmul(x, x), self.const(2 / _ERF_END**2), self.const(-1.0))
        return self.clamp(self.b.fmul(x, self.polynomial(_ERF_32, place)), -1.0, 1.0)

    def pow(self, x: Any, y: Any) -> Any:
        return self.in_f64(power, x, y)

    def atan2(self, y: Any, x: Any) -> Any:
        return angles.atan2_32(self, y, x) if self.bits == 32 else angles.atan2(self, y, x)

    def in_f64(self, function: Callable[..., Any], *xs: Any) -> Any:
        """Applies a function of f64 lanes; f32 is widened before and rounded after."""
        if self.bits == 64:
            return function(self, *xs)
        wider = wide(ir.DoubleType(), self.lanes)
        found = function(Functions(self.code, wider, brief=True), *(self.b.fpext(x, wider) for x in xs))
        return self.b.fptrunc(found, self.type)

    def named(self) -> dict[str, Callable[[Any], Any]]:
        """The unary functions by their names in a scalar tree."""
        return {
            "exp": self.exp,
            "expm1": self.expm1,
            "log": self.log,
            "log1p": self.log1p,
            "tanh": self.tanh,
            "erf": self.erf,
            **{name: partial(self.in_f64, function) for name, function in IN_F64.items()},
            **({name: partial(function, self) for name, function in _IN_F32.items()} if self.bits == 32 else {}),
            "sqrt": lambda x: self.unary("sqrt", x),
            "floor": lambda x: self.unary("floor", x),
            "round": lambda x: self.unary("rint", x),
            "abs": lambda x: self.unary("fabs", x),
            "neg": self.b.fneg,
        }
