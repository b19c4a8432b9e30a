"""The instructions that kernels are mostly made of, each as one short function: what ``ptx_arithmetic`` says of them,
without looking at the instruction's words again each time. ``function_of(words)``."""

from __future__ import annotations

import operator
import struct
from collections.abc import Callable
from functools import cache

import numpy as np
from gpu_kernels import ptx_arithmetic
from gpu_kernels.ptx_arithmetic import bits_of, result_width, width

Function = Callable[..., int]

_JOINED = {"and": operator.and_, "or": operator.or_, "xor": operator.xor}
_COMPARED = {
    "eq": operator.eq, "ne": operator.ne, "lt": operator.lt, "le": operator.le, "gt": operator.gt, "ge": operator.ge,
    "lo": operator.lt, "ls": operator.le, "hi": operator.gt, "hs": operator.ge,
}  # fmt: skip
_FLOATS = {"add": operator.add, "sub": operator.sub, "mul": operator.mul}
_F32, _U32 = struct.Struct("<f"), struct.Struct("<I")
_LARGE = 3e38  # below it, f32 holds what rounds to it
_MASK = (1 << 32) - 1


@cache
def function_of(words: tuple[str, ...]) -> Function:
    """An instruction's result, from the bits of its operands."""
    integer = words[-1] == "pred" or (words[-1][0] in "usb" and not words[-1].startswith("bf"))
    found = _float(words) if words[-1] == "f32" else _integer(words) if integer else None
    return found or ptx_arithmetic.function_of(words)


def _integer(words: tuple[str, ...]) -> Function | None:
    name, mask = words[0], (1 << result_width(words)) - 1
    if name in ("mov", "cvta"):
        return lambda a: a & mask
    if name == "and":
        return lambda a, b: a & b & mask
    if name == "or":
        return lambda a, b: (a | b) & mask
    if name == "xor":
        return lambda a, b: (a ^ b) & mask
    if name == "selp":
        return lambda a, b, c: (a if c else b) & mask
    if words[-1] == "pred":
        return None
    if name in ("add", "sub"):
        return (lambda a, b: (a + b) & mask) if name == "add" else lambda a, b: (a - b) & mask
    if name in ("mul", "mad") and "hi" not in words:
        return _products(words, mask)
    if name == "shl":
        bits = width(words[-1])
        return lambda a, b: a << b & mask if b < bits else 0
    if name == "shr":
        bits, number = width(words[-1]), _number(words[-1])
        return lambda a, b: number(a) >> min(b, bits) & mask
    if name == "setp":
        return _comparison(words)
    if name == "cvt" and words[-2][0] in "us" and len(words) == 3:
        number = _number(words[-1])
        return lambda a: number(a) & mask
    return None


def _number(type: str) -> Callable[[int], int]:
    """What the low bits of a register are as a number of a type of integers."""
    mask = (1 << width(type)) - 1
    if type[0] != "s":
        return mask.__and__
    half = mask // 2 + 1
    return lambda a: ((a & mask) ^ half) - half


def _products(words: tuple[str, ...], mask: int) -> Function:
    if "wide" not in words:  # the low half does not depend on signs
        return (lambda a, b: a * b & mask) if words[0] == "mul" else lambda a, b, c: (a * b + c) & mask
    number = _number(words[-1])
    if words[0] == "mul":
        return lambda a, b: number(a) * number(b) & mask
    return lambda a, b, c: (number(a) * number(b) + c) & mask


def _comparison(words: tuple[str, ...]) -> Function:
    number, compare = _number(words[-1]), _COMPARED[words[1]]
    if len(words) > 3 and words[2] in _JOINED:
        join = _JOINED[words[2]]
        return lambda a, b, c: join(int(compare(number(a), number(b))), c) & 1
    return lambda a, b: int(compare(number(a), number(b)))


def _f32(bits: int) -> float:
    found: float = _F32.unpack(_U32.pack(bits & _MASK))[0]
    return found


def _float(words: tuple[str, ...]) -> Function | None:
    name = words[0]
    if name == "mov":
        return lambda a: a & _MASK
    if name == "neg":
        return lambda a: (a ^ 1 << 31) & _MASK
    if name == "abs":
        return lambda a: a & _MASK >> 1
    if name == "selp":
        return lambda a, b, c: (a if c else b) & _MASK
    if name in _FLOATS:
        of, f32 = _FLOATS[name], np.float32
        return lambda a, b: int(_U32.unpack(_F32.pack(of(f32(_f32(a)), f32(_f32(b)))))[0])
    if name == "fma" and "sat" not in words:
        return _fma
    return None


def _fma(a: int, b: int, c: int) -> int:
    """Rounding twice is near enough."""
    found = _f32(a) * _f32(b) + _f32(c)
    if -_LARGE < found < _LARGE:
        return int(_U32.unpack(_F32.pack(found))[0])
    return bits_of(np.float64(found))
