"""Floored division and remainder, like numpy's floor_divide and remainder.

The float remainder is exact, like C's fmod. While it is at least |y|, a multiple of y times a power of two is
subtracted; its quotient fits a significand, so every subtraction is exact. One step without a power usually suffices;
more are needed if the quotient has more bits than a significand.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from llvmlite import ir

if TYPE_CHECKING:
    from dslc.compiler.codegen.cpu.llvm.math import Functions
    from dslc.compiler.codegen.cpu.llvm.values import Values
    from dslc.compiler.codegen.cpu.llvm.writer import Reg


def floats(f: Functions, x: Any, y: Any, rest: bool) -> Any:
    """``mod`` if ``rest``, else ``floordiv``, of float lanes."""
    b, zero = f.b, f.const(0.0)
    left = _fmod(f, x, y)
    some = b.fcmp_ordered("!=", left, zero)
    apart = b.icmp_unsigned("!=", b.fcmp_ordered("<", y, zero), b.fcmp_ordered("<", left, zero))
    turned = b.and_(some, apart)
    if rest:
        left = b.select(turned, b.fadd(left, y), left)
        none = b.fcmp_ordered("==", left, zero)
        return b.select(b.and_(none, b.not_(some)), f.copysign(zero, y), left)
    quotient = b.fdiv(b.fsub(x, left), y)
    quotient = b.select(turned, b.fsub(quotient, f.const(1.0)), quotient)
    down = f.unary("floor", quotient)
    more = b.fcmp_ordered(">", b.fsub(quotient, down), f.const(0.5))
    down = b.select(more, b.fadd(down, f.const(1.0)), down)
    plain = b.fdiv(x, y)
    down = b.select(b.fcmp_ordered("==", quotient, zero), f.copysign(zero, plain), down)
    by_zero = b.fcmp_ordered("==", y, zero)
    return b.select(by_zero, plain, down)


def _fmod(f: Functions, x: Any, y: Any) -> Any:
    """x - trunc(x/y)*y, exactly, with the sign of x; nan if x is infinite, y is 0 or either is nan."""
    code, b = f.code, f.b
    size, by, zero, inf = f.unary("fabs", x), f.unary("fabs", y), f.const(0.0), f.const(math.inf)
    known = b.and_(b.fcmp_ordered("<", size, inf), b.fcmp_ordered(">", by, zero))
    place = code.local(f.type)
    divisor = b.select(b.fcmp_ordered(">", by, zero), by, f.const(1.0))
    # a quotient of few bits is enough; it is at most rounded up to the next integer
    quotient = b.fdiv(size, divisor)
    once = f.fma(b.fneg(f.unary("trunc", quotient)), divisor, size)
    once = b.select(b.fcmp_ordered("<", once, zero), b.fadd(once, divisor), once)
    few = b.fcmp_ordered("<", quotient, f.const(2.0 ** (f.significand - 3)))
    few = b.and_(few, b.fcmp_ordered("<", divisor, inf))  # 0 times an infinite one is nan
    b.store(b.select(known, b.select(few, once, size), zero), place)
    look, take, done = (code.function.append_basic_block(n) for n in ("look", "take", "rest"))
    b.branch(look)
    b.position_at_end(look)
    left = b.load(place, typ=f.type)
    open = b.fcmp_ordered(">=", left, divisor)
    some = open
    if f.lanes > 1:
        some = b.icmp_unsigned("!=", b.bitcast(open, ir.IntType(f.lanes)), ir.Constant(ir.IntType(f.lanes), 0))
    b.cbranch(some, take, done)
    b.position_at_end(take)
    b.store(b.select(open, _taken(f, left, divisor), left), place)
    b.branch(look)
    b.position_at_end(done)
    found = f.copysign(b.load(place, typ=f.type), x)
    return b.select(known, found, f.const(math.nan))


def _taken(f: Functions, left: Any, by: Any) -> Any:
    """``left`` minus a multiple of ``by``; at least 0 and below ``by`` times a power of two."""
    b = f.b
    apart = b.fsub(f.split(left)[0], f.split(by)[0])
    more = b.fsub(apart, f.const(float(f.significand - 3)))
    more = b.select(b.fcmp_ordered(">", more, f.const(0.0)), more, f.const(0.0))
    power = b.fptosi(more, f.int_type)
    # in four steps, as the power may exceed the dtype's range
    part = b.ashr(power, f.const(2, f.int_type))
    step, last = f.power_of_two(part), f.power_of_two(b.sub(power, b.mul(part, f.const(3, f.int_type))))
    scaled = b.fmul(b.fmul(b.fmul(b.fmul(by, step), step), step), last)
    quotient = f.unary("trunc", b.fdiv(left, scaled))
    rest = f.fma(b.fneg(quotient), scaled, left)
    return b.select(b.fcmp_ordered("<", rest, f.const(0.0)), b.fadd(rest, scaled), rest)


def integers(values: Values, x: Reg, y: Reg, rest: bool) -> Any:
    """The same for integers: 0 if y is 0; the smallest integer divided by -1 wraps to itself."""
    b, dtype = values.b, x.dtype
    zero, one = (values.const(n, dtype).value for n in (0, 1))
    none = b.icmp_unsigned("==", y.value, zero)
    if values.unsigned(dtype):
        by = b.select(none, one, y.value)
        found = (b.urem if rest else b.udiv)(x.value, by)
        return b.select(none, zero, found)
    minus = ir.Constant(zero.type, [-1] * values.lanes if values.lanes > 1 else -1)
    flip = b.icmp_unsigned("==", y.value, minus)
    by = b.select(b.or_(none, flip), one, y.value)
    left = b.srem(x.value, by)
    apart = b.icmp_signed("<", b.xor(left, by), zero)
    turned = b.and_(apart, b.icmp_unsigned("!=", left, zero))
    if rest:
        return b.select(turned, b.add(left, by), left)
    found = b.sdiv(x.value, by)
    found = b.select(turned, b.sub(found, one), found)
    return b.select(flip, b.sub(zero, x.value), b.select(none, zero, found))
