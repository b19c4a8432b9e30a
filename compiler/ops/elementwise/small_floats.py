"""Floats of 8 and 4 bits, which tensors of u8 hold: to_small and from_small."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from dslc.compiler.ir.function import Call, Function, function
from dslc.compiler.ir.graph import Value
from dslc.compiler.ir.op import Mismatch, Op
from dslc.compiler.ir.types import DType
from dslc.compiler.ops.elementwise.arithmetic import add, require_kind, sub
from dslc.compiler.ops.elementwise.bitwise import bitwise_and, bitwise_left_shift, bitwise_or, bitwise_right_shift
from dslc.compiler.ops.elementwise.convert import bitcast, cast
from dslc.compiler.ops.elementwise.logic import eq, gt, lt
from dslc.compiler.ops.elementwise.selection import where
from dslc.compiler.ops.index.embedding import gather_rows
from dslc.compiler.ops.lazy import np

if TYPE_CHECKING:
    from dslc.compiler.ir.op import Array

_DIGITS: Final = 23  # of the significand of f32, without the first one
_BIAS: Final = 127  # of its exponent
_INFINITY: Final = 0xFF << _DIGITS  # its bits


@dataclass(frozen=True)
class Format:
    """A sign, ``exponent`` bits with a bias, and ``digits`` bits of the significand after its first.

    Codes without their sign: ``most`` is the greatest finite number; ``over`` stands for what is greater, an infinity
    or a nan; ``nan`` for nan. None: the format has neither. ``one_zero``: there is no -0, whose code is nan.
    """

    exponent: int
    digits: int
    bias: int
    most: int
    over: int | None
    nan: int | None
    one_zero: bool = False


#: Micikevicius et al. 2022 (e4m3, e5m2); Noune et al. 2022 (fnuz); OCP Microscaling Formats 2023 (e2m1).
FORMATS: Final = {
    "e4m3": Format(4, 3, 7, 0x7E, 0x7F, 0x7F),
    "e5m2": Format(5, 2, 15, 0x7B, 0x7C, 0x7F),
    "e4m3fnuz": Format(4, 3, 8, 0x7F, 0x80, 0x80, one_zero=True),
    "e5m2fnuz": Format(5, 2, 16, 0x7F, 0x80, 0x80, one_zero=True),
    "e2m1": Format(2, 1, 1, 0x7, None, None),
}


def _known(name: str, format: str) -> Format:
    if format not in FORMATS:
        raise Mismatch(f'`{name}` has no format "{format}"', "one of " + ", ".join(f'"{f}"' for f in FORMATS), "E0209")
    return FORMATS[format]


class ToSmall(Function):
    """to_small(x, format="e4m3", saturate=true): ``x`` rounded to 8-bit or 4-bit floats, as u8 codes.

    ``format``: "e4m3" and "e5m2", the 8-bit floats of GPUs (PyTorch's float8_e4m3fn, float8_e5m2); "e4m3fnuz" and
    "e5m2fnuz"; and "e2m1" of 4 bits, in the low half of a byte. x is rounded to f32, then to the nearest number, ties
    to even. Values beyond the greatest number of the format, and infinities, become that number; without
    ``saturate`` they become an infinity in "e5m2" and nan in the other formats. nan stays nan. "e2m1" has neither nan
    nor infinities: it always saturates, and nan becomes 0. No gradient flows through it. For training with rounded
    weights or activations, pass the gradient on unchanged: ``x + stop_gradient(from_small(to_small(x)) - x)``.

    given: x: [B, 8]
    >>> scale = max(abs(x)) / 448
    >>> codes = to_small(x / scale)
    """

    name = "to_small"

    def build(self, call: Call, x: Value, format: str = "e4m3", saturate: bool = True) -> Value:
        known = _known(self.name, format)
        require_kind(self.name, x.type.dtype, "float")
        x = x if x.type.dtype is DType.F32 else call.emit(cast, x, dtype=DType.F32)
        bits = call.emit(bitcast, x, dtype=DType.U32)
        size = _with(call, bitwise_and, bits, (1 << 31) - 1)
        found = _rounded(call, size, known)
        over = known.most if saturate or known.over is None else known.over
        found = call.emit(where, _with(call, gt, found, known.most), call.full(over, DType.U32), found)
        nan = _with(call, gt, size, _INFINITY)
        found = call.emit(where, nan, call.full(known.nan or 0, DType.U32), found)
        minus = _with(
            call, bitwise_left_shift, _with(call, bitwise_right_shift, bits, 31), known.exponent + known.digits
        )
        signed = call.emit(bitwise_or, found, minus)
        if known.one_zero:
            signed = call.emit(where, _with(call, eq, found, 0), found, signed)
        return call.emit(cast, signed, dtype=DType.U8)


class FromSmall(Function):
    """from_small(codes, format="e4m3"): the values of 8-bit or 4-bit floats, given as u8 codes.

    All are exact in each float dtype. Of "e2m1" the low half of a byte counts; two numbers in a byte are
    ``from_small(x, "e2m1")`` and ``from_small(bitwise_right_shift(x, 4), "e2m1")``.

    given: x: u8[B, 8]
    >>> from_small(x, "e5m2") * 0.25
    """

    name = "from_small"

    def build(self, call: Call, codes: Value, format: str = "e4m3") -> Value:
        known = _known(self.name, format)
        if codes.type.dtype is not DType.U8:
            raise Mismatch(f"`from_small` takes u8, not {codes.type.dtype}", 'convert it: `cast(x, "u8")`')
        return call.emit(gather_rows, call.constant(numbers(known)), codes)


def numbers(format: Format) -> Array:
    """The number of each of 256 codes, in f64; bits above the sign do not count."""
    codes = np.arange(256)
    size = codes & ((1 << format.exponent + format.digits) - 1)
    exponent, low = size >> format.digits, size & ((1 << format.digits) - 1)
    whole = np.where(exponent > 0, low + (1 << format.digits), low).astype(np.float64)
    found = np.ldexp(whole, np.maximum(exponent, 1) - format.bias - format.digits)
    minus = codes >> format.exponent + format.digits & 1
    if format.one_zero:
        return np.where(codes == format.nan, np.nan, np.where(minus == 1, -found, found))
    found = np.where(size > format.most, np.where(size == format.over, np.inf, np.nan), found)
    if format.over == format.nan:
        found = np.where(size == format.nan, np.nan, found)
    return np.where(minus == 1, -found, found)


def _with(call: Call, op: Op, x: Value, number: int | float) -> Value:
    return call.emit(op, x, call.full(number, x.type.dtype))


def _rounded(call: Call, size: Value, format: Format) -> Value:
    """The codes of the absolute values whose bits in f32 are ``size``, if there was no greatest one."""
    dropped = _DIGITS - format.digits
    last = _with(call, bitwise_and, _with(call, bitwise_right_shift, size, dropped), 1)  # ties go to even
    raised = call.emit(add, _with(call, add, size, (1 << dropped - 1) - 1), last)
    usual = _with(call, sub, _with(call, bitwise_right_shift, raised, dropped), (_BIAS - format.bias) << format.digits)
    # Below the least power of two that has all digits, numbers are multiples of one step, which is that between
    # neighbours of ``unit`` in f32: the sum rounds.
    unit = 24 - format.bias - format.digits
    sums = _with(call, add, call.emit(bitcast, size, dtype=DType.F32), 2.0**unit)
    tiny = _with(call, sub, call.emit(bitcast, sums, dtype=DType.U32), (unit + _BIAS) << _DIGITS)
    return call.emit(where, _with(call, lt, size, (1 - format.bias + _BIAS) << _DIGITS), tiny, usual)


function(ToSmall())
function(FromSmall())
