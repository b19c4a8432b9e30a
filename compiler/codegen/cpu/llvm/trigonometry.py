"""sin and cos of f64 vectors, for all arguments; f32 is computed in f64 and rounded once.

Below 2^30, Cody and Waite's method reduces the argument: with n the nearest integer to x*2/pi, it computes ``x -
n*pi/2`` with pi/2 in three parts and the remainder as a sum of two numbers. From 2^30 on, Payne and Hanek's method
(1983) is used: of 2/pi, stored with 1344 bits, the relevant 192 bits are multiplied by the integer significand, lane by
lane, as such arguments are rare. Between -pi/4 and pi/4 the Taylor series applies, with the second number as a
first-order correction. Before a rounding to f32, pi/2 in two parts and one number as the remainder are enough, and the
series are shorter. The error is below 1 ulp in f64 and 0.51 in f32, which a test checks against more digits.
"""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

from llvmlite import ir

from dslc.compiler.codegen.cpu.llvm.writer import I8, I64, wide

if TYPE_CHECKING:
    from dslc.compiler.codegen.cpu.llvm.math import Functions

_BITS: Final = 1344  # fraction bits of 2/pi
_HUGE: Final = 2.0**30
_TINY: Final = 2.0**-27  # sin(x) rounds to x
_SIN: Final = [(-1) ** k / math.factorial(2 * k + 1) for k in range(1, 9)]
_COS: Final = [(-1) ** k / math.factorial(2 * k) for k in range(2, 9)]
_BRIEF_TERMS: Final = 5  # of both series, before a rounding to f32


def _pi(bits: int) -> int:
    """floor(pi * 2^bits), up to the last bits: Machin's formula in integers."""
    one = 1 << (bits + 32)

    def arctan_of_inverse(n: int) -> int:
        total, term, k = 0, one // n, 0
        while term:
            total += (-1) ** k * (term // (2 * k + 1))
            term //= n * n
            k += 1
        return total

    return (16 * arctan_of_inverse(5) - 4 * arctan_of_inverse(239)) >> 32


def _parts_of_half_pi() -> tuple[float, float, float]:
    """pi/2 as a sum of three f64."""
    rest = Fraction(_pi(256), 1 << 257)
    found = []
    for _ in range(3):
        found.append(float(rest))
        rest -= Fraction(found[-1])
    return found[0], found[1], found[2]


HALF_PI: Final = _parts_of_half_pi()
_TWO_OVER_PI: Final = (1 << (_BITS + 1601)) // _pi(1600)  # floor(2/pi * 2^_BITS)


def sine(f: Functions, x: Any, quarter: int) -> Any:
    """sin(x + quarter*pi/2) of f64 lanes: ``quarter`` is 0 for sin, 1 for cos. nan for inf and nan."""
    return _chosen(f, x, quarter, *_turned(f, x))


def tangent(f: Functions, x: Any) -> Any:
    """sin(x) / cos(x) of f64 lanes."""
    turned = _turned(f, x)
    return f.b.fdiv(_chosen(f, x, 0, *turned), _chosen(f, x, 1, *turned))


def _turned(f: Functions, x: Any) -> tuple[Any, Any, Any]:
    """The quarter turns of x, and the sine and cosine of what is left."""
    b = f.b
    n = f.unary("rint", b.fmul(x, f.const(1 / HALF_PI[0])))
    if f.brief:
        high = f.fma(n, f.const(-HALF_PI[1]), f.fma(n, f.const(-HALF_PI[0]), x))
        low = f.const(0.0)
    else:
        high, low = _remainder(f, x, n)
    turns = b.fptosi(n, f.int_type)
    huge = b.fcmp_unordered(">=", f.unary("fabs", x), f.const(_HUGE))  # nan and inf too
    turns, high, low = _where_huge(f, huge, x, turns, high, low)
    z = b.fmul(high, high)
    if f.brief:
        over = f.polynomial(_SIN[:_BRIEF_TERMS], z)
        across = f.polynomial([-0.5, *_COS[: _BRIEF_TERMS - 1]], z)
        return turns, f.fma(b.fmul(high, z), over, high), f.fma(z, across, f.const(1.0))
    return turns, _sin(f, high, low, z), _cos(f, high, low, z)


def _chosen(f: Functions, x: Any, quarter: int, turns: Any, sin: Any, cos: Any) -> Any:
    """The sine or the cosine, and its sign, by the quarter turns."""
    b = f.b
    turns = b.add(turns, f.const(quarter, f.int_type))
    odd = b.icmp_unsigned("==", b.and_(turns, f.const(1, f.int_type)), f.const(1, f.int_type))
    back = b.icmp_unsigned("==", b.and_(turns, f.const(2, f.int_type)), f.const(2, f.int_type))
    found = b.select(odd, cos, sin)
    found = b.select(back, b.fneg(found), found)
    if quarter == 0:
        found = b.select(b.fcmp_ordered("<", f.unary("fabs", x), f.const(_TINY)), x, found)
    finite = b.fcmp_ordered("<", f.unary("fabs", x), f.const(math.inf))
    return b.select(finite, found, f.const(math.nan))


def _remainder(f: Functions, x: Any, n: Any) -> tuple[Any, Any]:
    """x - n*pi/2 as a sum of two numbers; the first subtraction is exact."""
    b, (first, second, third) = f.b, HALF_PI
    r = f.fma(n, f.const(-first), x)
    p = b.fmul(n, f.const(second))
    below = f.fma(n, f.const(second), b.fneg(p))
    high, lost = _two_sum(f, r, b.fneg(p))
    low = b.fsub(b.fsub(lost, below), b.fmul(n, f.const(third)))
    whole = b.fadd(high, low)
    return whole, b.fadd(b.fsub(high, whole), low)


def _two_sum(f: Functions, x: Any, y: Any) -> tuple[Any, Any]:
    """x + y rounded, and the rounding error (Knuth)."""
    b = f.b
    total = b.fadd(x, y)
    part = b.fsub(total, x)
    return total, b.fadd(b.fsub(x, b.fsub(total, part)), b.fsub(y, part))


def _sin(f: Functions, x: Any, y: Any, z: Any) -> Any:
    """sin(x + y): x + y*(1 - z/2) + x*z*(-1/6 + ...)."""
    b = f.b
    series = f.polynomial(_SIN, z)
    rest = f.fma(b.fmul(z, f.const(-0.5)), y, y)
    return b.fadd(x, f.fma(b.fmul(x, z), series, rest))


def _cos(f: Functions, x: Any, y: Any, z: Any) -> Any:
    """cos(x + y): 1 - z/2 with its rounding error, then the series and -x*y."""
    b = f.b
    half = b.fmul(z, f.const(0.5))
    top = b.fsub(f.const(1.0), half)
    lost = b.fsub(b.fsub(f.const(1.0), top), half)
    lost = f.fma(b.fneg(x), y, b.fsub(lost, b.fmul(f.fma(x, x, b.fneg(z)), f.const(0.5))))
    return b.fadd(top, f.fma(b.fmul(z, z), f.polynomial(_COS, z), lost))


def _where_huge(f: Functions, huge: Any, x: Any, turns: Any, high: Any, low: Any) -> tuple[Any, Any, Any]:
    """Replaces the quarter turns and the remainder of lanes with huge arguments; skipped by a branch if there is
    none."""
    code, b, lanes = f.code, f.b, f.lanes
    f64 = x.type.element if lanes > 1 else x.type
    memory = [code.local(wide(t, lanes), align=64) for t in (f64, I64, f64, f64)]
    for value, place in zip((x, turns, high, low), memory):
        b.store(value, place)
    some = huge
    if lanes > 1:
        some = b.icmp_unsigned("!=", b.bitcast(huge, ir.IntType(lanes)), ir.Constant(ir.IntType(lanes), 0))
    with b.if_then(some, likely=False), code.loop(lanes) as lane:
        one = b.load(code.at(memory[0], lane, f64), typ=f64)
        size = code.intrinsic("llvm.fabs.f64", f64, one)
        with b.if_then(b.fcmp_ordered(">=", size, ir.Constant(f64, _HUGE))):
            found = _payne_hanek(f, one, f64)
            for value, place in zip(found, memory[1:]):
                b.store(value, code.at(place, lane, value.type))
    turns, high, low = (b.load(place, typ=old.type) for place, old in zip(memory[1:], (turns, high, low)))
    return turns, high, low


def _payne_hanek(f: Functions, x: Any, f64: Any) -> tuple[Any, Any, Any]:
    """The quarter turns modulo 4 and the remainder, as a sum of two, of one finite number of at least 2^30."""
    b, i128 = f.b, ir.IntType(128)
    bits = b.bitcast(x, I64)
    negative = b.icmp_signed("<", bits, I64(0))
    exponent = b.and_(b.lshr(bits, I64(52)), I64(0x7FF))
    significand = b.or_(b.and_(bits, I64((1 << 52) - 1)), I64(1 << 52))
    # x = significand * 2^e, e = exponent - 1075; 2/pi * 2^e modulo 4 with 190 fraction bits
    shift = b.sub(I64(_BITS - 190 + 1075), b.select(b.icmp_unsigned("<", exponent, I64(0x7FF)), exponent, I64(1100)))
    place = f.code.at(_table(f), b.lshr(shift, I64(3)), I8)
    rest = b.and_(shift, I64(7))
    words = [b.load(f.code.at(place, 8 * i, I8), typ=I64, align=1) for i in range(4)]
    words = [
        b.or_(b.lshr(low, rest), b.shl(b.shl(high, I64(1)), b.sub(I64(62 + 1), rest))) for low, high in pairwise(words)
    ]
    products = [b.mul(b.zext(significand, i128), b.zext(w, i128)) for w in words]
    upper = b.add(products[1], b.lshr(products[0], ir.Constant(i128, 64)))
    w0, w1 = b.trunc(products[0], I64), b.trunc(upper, I64)
    w2 = b.add(b.trunc(products[2], I64), b.trunc(b.lshr(upper, ir.Constant(i128, 64)), I64))
    quarter = b.lshr(b.add(b.lshr(w2, I64(61)), I64(1)), I64(1))
    # the fraction in [-1/2, 1/2)
    top = b.or_(b.shl(w2, I64(2)), b.lshr(w1, I64(62)))
    middle = b.or_(b.shl(w1, I64(2)), b.lshr(w0, I64(62)))
    scaled = [
        (b.sitofp(b.ashr(top, I64(32)), f64), 2.0**-32),
        (b.uitofp(b.and_(top, I64((1 << 32) - 1)), f64), 2.0**-64),
        (b.uitofp(middle, f64), 2.0**-128),
        (b.uitofp(b.shl(w0, I64(2)), f64), 2.0**-192),
    ]
    one, two, three, four = (b.fmul(value, ir.Constant(f64, scale)) for value, scale in scaled)
    high = b.fadd(one, two)
    low = b.fadd(b.fsub(two, b.fsub(high, one)), b.fadd(three, four))
    whole = b.fadd(high, low)
    low = b.fadd(b.fsub(high, whole), low)
    first, second, _ = (ir.Constant(f64, c) for c in HALF_PI)
    r = b.fmul(whole, first)
    lost = f.code.intrinsic("llvm.fma.f64", f64, whole, first, b.fneg(r))
    lost = b.fadd(lost, b.fadd(b.fmul(whole, second), b.fmul(low, first)))
    quarter = b.select(negative, b.sub(I64(0), quarter), quarter)
    return quarter, b.select(negative, b.fneg(r), r), b.select(negative, b.fneg(lost), lost)


def _table(f: Functions) -> Any:
    """The bits of 2/pi, lowest byte first, with zeros above."""
    name = "two_over_pi"
    found = f.code.module.globals.get(name)
    if found is None:
        data = _TWO_OVER_PI.to_bytes(_BITS // 8 + 32, "little")
        type = ir.ArrayType(I8, len(data))
        found = ir.GlobalVariable(f.code.module, type, name)
        found.linkage, found.global_constant = "internal", True
        found.initializer = ir.Constant(type, bytearray(data))
    return found
