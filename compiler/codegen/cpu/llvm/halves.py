"""f16 and bf16 as LLVM IR: i16 in memory, f32 in registers, where they are rounded to the nearest, ties to even.

All of it is f32 and integer arithmetic. LLVM's own half type would let its optimiser narrow f32 operations to half
ones. Some of these are no instruction of the processor but a call of a function, which an object does not contain.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from llvmlite import ir

from dslc.compiler.codegen.cpu.llvm.writer import I16, I32, suffix, wide
from dslc.compiler.ir.types import DType

if TYPE_CHECKING:
    from dslc.compiler.codegen.cpu.llvm.values import Values

#: The bits of a quiet nan.
NAN_BITS: Final[Mapping[DType, int]] = {DType.F16: 0x7E00, DType.BF16: 0x7FC0}
_F32, _F64 = ir.FloatType(), ir.DoubleType()
# f16 among the bits of f32: what their exponents differ by; the least normal number, and the one after the greatest.
_BIAS, _NORMAL, _BEYOND = 112 << 23, 0x38800000, 0x47800000
_INFINITE: Final = 0x7C00  # in f16


def widened(values: Values, raw: Any, dtype: DType) -> Any:
    """i16 lanes from memory as f32."""
    h = _Lanes(values)
    bits = h.b.zext(raw, h.int_type)
    if dtype is DType.BF16:
        return h.floats(h.b.shl(bits, h.int(16)))
    size = h.b.and_(bits, h.int(0x7FFF))
    normal = h.b.add(h.b.shl(size, h.int(13)), h.int(_BIAS))
    normal = h.choose(">=", size, _INFINITE, h.b.add(normal, h.int(_BIAS)), normal)
    small = h.ints(h.b.fmul(h.b.sitofp(size, h.type), h.float(2.0**-24)))
    sign = h.b.shl(h.b.and_(bits, h.int(0x8000)), h.int(16))
    return h.floats(h.b.or_(sign, h.choose("<", size, 0x400, small, normal)))


def packed(values: Values, value: Any, dtype: DType) -> Any:
    """f32 lanes that are numbers of ``dtype`` as i16 lanes."""
    h = _Lanes(values)
    bits = h.ints(value)
    high = h.b.lshr(bits, h.int(16))
    if dtype is DType.BF16:
        return h.b.trunc(high, h.half_type)
    size = h.b.and_(bits, h.int(0x7FFFFFFF))
    normal = h.b.lshr(h.b.sub(size, h.int(_BIAS)), h.int(13))
    infinite = h.b.or_(h.int(_INFINITE), h.b.and_(h.b.lshr(size, h.int(13)), h.int(0x3FF)))
    small = h.b.fptosi(h.b.fmul(h.floats(size), h.float(2.0**24)), h.int_type)
    # of the numbers that are not small, the product may be too large for an integer: such lanes are not used
    found = h.choose(">=", size, _BEYOND, infinite, h.choose("<", size, _NORMAL, small, normal))
    return h.b.trunc(h.b.or_(h.b.and_(high, h.int(0x8000)), found), h.half_type)


def rounded(values: Values, value: Any, dtype: DType) -> Any:
    """f32 or f64 lanes rounded once to ``dtype``, as f32."""
    h = _Lanes(values)
    if value.type == wide(_F64, values.lanes):
        value = _to_odd(values, value)
    bits, dropped = h.ints(value), 16 if dtype is DType.BF16 else 13
    even = h.b.and_(h.b.lshr(bits, h.int(dropped)), h.int(1))
    near = h.b.add(bits, h.b.add(even, h.int((1 << dropped - 1) - 1)))
    quiet = h.b.or_(bits, h.int(0x400000))
    found = h.b.select(h.b.fcmp_unordered("uno", value, value), quiet, near)
    found = h.b.and_(found, h.int(0xFFFFFFFF << dropped & 0xFFFFFFFF))
    if dtype is DType.BF16:
        return h.floats(found)
    sign = h.b.and_(bits, h.int(0x80000000))
    size = h.b.and_(found, h.int(0x7FFFFFFF))
    size = h.b.select(h.b.fcmp_ordered(">=", h.floats(size), h.float(65536.0)), h.int(0x7F800000), size)
    whole = h.b.and_(bits, h.int(0x7FFFFFFF))
    # next to 0.5, f32 has the steps of small numbers of f16
    small = h.ints(h.b.fsub(h.b.fadd(h.floats(whole), h.float(0.5)), h.float(0.5)))
    return h.floats(h.b.or_(sign, h.choose("<", whole, _NORMAL, small, size)))


def _to_odd(values: Values, value: Any) -> Any:
    """f64 lanes as f32: an inexact result is that neighbour whose last bit is 1 (Boldo and Melquiond 2008), so that
    rounding it to fewer bits gives what rounding the f64 would."""
    h = _Lanes(values)
    b, near = h.b, h.b.fptrunc(value, h.type)
    back = b.fpext(near, value.type)
    size, most = (values.code.intrinsic(f"llvm.fabs.{suffix(x.type)}", x.type, x) for x in (back, value))
    above = b.zext(b.fcmp_ordered(">", size, most), h.int_type)
    inexact = b.zext(b.fcmp_ordered("!=", back, value), h.int_type)
    return h.floats(b.or_(b.sub(h.ints(near), above), inexact))


class _Lanes:
    """The f32 lanes of ``values`` and their bits."""

    def __init__(self, values: Values) -> None:
        self.b, self.lanes = values.b, values.lanes
        self.type, self.int_type, self.half_type = (wide(t, values.lanes) for t in (_F32, I32, I16))

    def int(self, number: Any) -> Any:
        return ir.Constant(self.int_type, [number] * self.lanes if self.lanes > 1 else number)

    def float(self, number: Any) -> Any:
        return ir.Constant(self.type, [number] * self.lanes if self.lanes > 1 else number)

    def ints(self, value: Any) -> Any:
        return self.b.bitcast(value, self.int_type)

    def floats(self, bits: Any) -> Any:
        return self.b.bitcast(bits, self.type)

    def choose(self, sign: str, x: Any, limit: Any, yes: Any, no: Any) -> Any:
        """``yes`` in the lanes of ``x``, which are not negative, that compare so with a number, else ``no``."""
        return self.b.select(self.b.icmp_unsigned(sign, x, self.int(limit)), yes, no)
