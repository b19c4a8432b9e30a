"""f16 and bf16 as LLVM IR: i16 in memory, f32 in registers, where they are rounded to the nearest, ties to even."""

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
_F32, _F64, _HALF = ir.FloatType(), ir.DoubleType(), ir.HalfType()


def widened(values: Values, raw: Any, dtype: DType) -> Any:
    """i16 lanes from memory as f32."""
    b, lanes = values.b, values.lanes
    if dtype is DType.F16:
        return b.fpext(b.bitcast(raw, wide(_HALF, lanes)), wide(_F32, lanes))
    return b.bitcast(b.shl(b.zext(raw, wide(I32, lanes)), _ints(values, 16)), wide(_F32, lanes))


def packed(values: Values, value: Any, dtype: DType) -> Any:
    """f32 lanes that are numbers of ``dtype`` as i16 lanes."""
    b, lanes = values.b, values.lanes
    if dtype is DType.F16:
        return b.bitcast(b.fptrunc(value, wide(_HALF, lanes)), wide(I16, lanes))
    return b.trunc(b.lshr(b.bitcast(value, wide(I32, lanes)), _ints(values, 16)), wide(I16, lanes))


def rounded(values: Values, value: Any, dtype: DType) -> Any:
    """f32 or f64 lanes rounded once to ``dtype``, as f32."""
    b, lanes = values.b, values.lanes
    if value.type == wide(_F64, lanes):
        value = _to_odd(values, value)
    if dtype is DType.F16:
        return b.fpext(b.fptrunc(value, wide(_HALF, lanes)), wide(_F32, lanes))
    bits = b.bitcast(value, wide(I32, lanes))
    even = b.and_(b.lshr(bits, _ints(values, 16)), _ints(values, 1))
    near = b.add(bits, b.add(even, _ints(values, 0x7FFF)))
    quiet = b.or_(bits, _ints(values, 0x400000))
    found = b.select(b.fcmp_unordered("uno", value, value), quiet, near)
    return b.bitcast(b.and_(found, _ints(values, 0xFFFF0000)), wide(_F32, lanes))


def _to_odd(values: Values, value: Any) -> Any:
    """f64 lanes as f32: an inexact result is that neighbour whose last bit is 1 (Boldo and Melquiond 2008), so that
    rounding it to fewer bits gives what rounding the f64 would."""
    b, lanes = values.b, values.lanes
    near = b.fptrunc(value, wide(_F32, lanes))
    back = b.fpext(near, value.type)
    size, most = (values.code.intrinsic(f"llvm.fabs.{suffix(x.type)}", x.type, x) for x in (back, value))
    bits = b.bitcast(near, wide(I32, lanes))
    above = b.zext(b.fcmp_ordered(">", size, most), wide(I32, lanes))
    inexact = b.zext(b.fcmp_ordered("!=", back, value), wide(I32, lanes))
    return b.bitcast(b.or_(b.sub(bits, above), inexact), wide(_F32, lanes))


def _ints(values: Values, number: int) -> Any:
    return ir.Constant(wide(I32, values.lanes), [number] * values.lanes if values.lanes > 1 else number)
