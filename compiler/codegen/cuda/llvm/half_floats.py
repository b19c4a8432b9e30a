"""bf16 and f16 in registers: f32 lanes and, if known, the packed pairs (i32 words) that they came from or go to.

A sum, difference or product of two such numbers, rounded, takes one instruction for two of them. f32 has more than
twice their bits plus two, so the op's rounding to f32 first changes nothing in the normal range (S. A. Figueroa, "When
is double rounding innocuous?", 1995).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from llvmlite import ir

from dslc.compiler.codegen.cuda.llvm.lanes import F32, F64, I16, I32, Lanes, Writer
from dslc.compiler.codegen.cuda.llvm.math import device
from dslc.compiler.ir.types import DType


def to_halves(builder: Any, low: Any, high: Any, dtype: DType) -> Any:
    """Rounds two lanes to the nearest bf16 or f16, packed in one i32, with one instruction."""
    low, high = (_odd(builder, x) if x.type == F64 else x for x in (low, high))
    asm = f"cvt.rn.{'bf16x2' if dtype is DType.BF16 else 'f16x2'}.f32 $0, $1, $2;"
    return builder.call(ir.InlineAsm(ir.FunctionType(I32, [F32, F32]), asm, "=r,f,f"), [high, low])


def to_half(builder: Any, x: Any, dtype: DType) -> Any:
    """The 16 bits of the nearest bf16 or f16."""
    return builder.trunc(to_halves(builder, x, F32(0.0) if x.type == F32 else F64(0.0), dtype), I16)


def from_halves(builder: Any, word: Any, dtype: DType) -> list[Any]:
    """The two f32 values of a packed pair of bf16 or f16."""
    if dtype is DType.BF16:
        bits = builder.shl(word, I32(16)), builder.and_(word, I32(-1 << 16))
        return [builder.bitcast(x, F32) for x in bits]
    parts = builder.trunc(word, I16), builder.trunc(builder.lshr(word, I32(16)), I16)
    return [from_half(builder, x, dtype) for x in parts]


def _odd(builder: Any, x: Any) -> Any:
    """Rounds f64 to f32 by round-to-odd: a second rounding to fewer bits is then correct."""
    near = device(builder, "__nv_double2float_rz", F32, x)
    lost = builder.fcmp_ordered("one", builder.fpext(near, F64), x)
    return builder.bitcast(builder.or_(builder.bitcast(near, I32), builder.zext(lost, I32)), F32)


def from_half(builder: Any, bits: Any, dtype: DType) -> Any:
    """f32 of the 16 bits of a bf16 or f16."""
    if dtype is DType.F16:
        return builder.fpext(builder.bitcast(bits, ir.HalfType()), F32)
    return builder.bitcast(builder.shl(builder.zext(bits, I32), I32(16)), F32)


def words_of(builder: Any, x: Lanes, dtype: DType, count: int) -> list[Any]:
    """The packed pairs of ``count`` lanes that hold bf16 or f16 values: those already known, or packed now."""
    known, words = x.halves
    if known is dtype and len(words) == (count + 1) // 2:
        return list(words)
    lanes = x.spread(count)
    lanes = [*lanes, lanes[-1]] if count % 2 else lanes
    return [_packed_halves(builder, *pair, dtype) for pair in zip(lanes[::2], lanes[1::2])]


def of_words(builder: Any, words: Sequence[Any], dtype: DType, count: int) -> Lanes:
    """The lanes of packed pairs; they remember the pairs."""
    lanes = [lane for word in words for lane in from_halves(builder, word, dtype)][:count]
    return Lanes(DType.F32, lanes, (dtype, words) if count > 1 else (None, ()))


def rounding(dtype: DType) -> Writer:
    """Rounds f32 or f64 to bf16 or f16 (ties to even); the result is f32."""

    def write(builder: Any, x: Lanes) -> Lanes:
        lanes = [*x.values, x.values[-1]] if x.count % 2 else x.values
        words = [to_halves(builder, *pair, dtype) for pair in zip(lanes[::2], lanes[1::2])]
        return of_words(builder, words, dtype, x.count)

    return write


def half(function: str, dtype: DType) -> Writer:
    """add, sub, mul, min or max of f32 lanes that hold exact bf16 or f16 values, rounded to that dtype; the result is
    f32."""

    def write(builder: Any, x: Lanes, y: Lanes) -> Lanes:
        count = max(x.count, y.count)
        pairs = zip(*(words_of(builder, each, dtype, count) for each in (x, y)))
        return of_words(builder, [_combined(builder, function, dtype, *pair) for pair in pairs], dtype, count)

    return write


def _combined(builder: Any, function: str, dtype: DType, x: Any, y: Any) -> Any:
    """Computes two at once. Sums are fma with a factor of one, which all architectures have."""
    suffix = "bf16x2" if dtype is DType.BF16 else "f16x2"
    if function in ("min", "max"):
        asm = f"{function}.NaN.{suffix} $0, $1, $2;"
        return builder.call(ir.InlineAsm(ir.FunctionType(I32, [I32, I32]), asm, "=r,r,r"), [x, y])
    one = 0x3F80 if dtype is DType.BF16 else 0x3C00
    minus, nothing = (_twice(bits) for bits in (one | 0x8000, 0x8000))  # x * y - 0 keeps the sign of a zero
    args = {"add": (x, _twice(one), y), "sub": (y, minus, x), "mul": (x, y, nothing)}[function]
    type = ir.FunctionType(I32, [I32] * 3)
    return builder.call(ir.InlineAsm(type, f"fma.rn.{suffix} $0, $1, $2, $3;", "=r,r,r,r"), args)


def _packed_halves(builder: Any, low: Any, high: Any, dtype: DType) -> Any:
    """Packs two lanes that need no rounding."""
    if isinstance(low, ir.Constant) and low is high:
        return _twice(bits_of(low.constant, dtype))
    return to_halves(builder, low, high, dtype)


def _twice(bits: int) -> Any:
    return I32(bits << 16 | bits)


def bits_of(value: float, dtype: DType) -> int:
    """The 16 bits of a number that bf16 or f16 represents exactly."""
    if dtype is DType.F16:
        return int(np.float16(value).view(np.uint16))
    return int(np.float32(value).view(np.uint32)) >> 16
