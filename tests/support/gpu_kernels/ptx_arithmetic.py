"""PTX instructions that compute: bits to bits. ``function_of(words)`` gives an instruction's function of its operands.

``words`` is the instruction at its dots (``("fma", "rn", "f32")``); an operand is the bits of a register. One that is
not known here is a NotImplementedError with its name. Floats overflow and become nan without a word, so callers let
numpy say nothing (``np.errstate``). The instructions that kernels are mostly made of have functions of their own
(``ptx_common.py``).
"""

from __future__ import annotations

import math
import operator
import re
import struct
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np
from gpu_kernels import simulator

_WIDTH = re.compile(r"(\d+)(?:x2)?$")
_COMPARED: dict[str, Callable[[Any, Any], bool]] = {
    "eq": operator.eq, "ne": operator.ne, "lt": operator.lt, "le": operator.le, "gt": operator.gt, "ge": operator.ge,
}  # fmt: skip
_CODES = {"f16": ("<e", "<H"), "f32": ("<f", "<I"), "f64": ("<d", "<Q")}
_NUMPY = {"f16": np.float16, "f32": np.float32, "f64": np.float64}
_PAIRS = ("bf16x2", "f16x2")


@cache
def function_of(words: tuple[str, ...]) -> Callable[..., int]:
    """An instruction's result, from the bits of its operands."""
    function = _FUNCTIONS.get(words[0])
    if function is None:
        raise NotImplementedError(".".join(words))
    mask = (1 << result_width(words)) - 1
    return lambda *x: function(words, x) & mask


@cache
def width(type: str) -> int:
    """Bits of a type of PTX; a predicate has one register like others."""
    if type in ("pred", *_PAIRS):
        return 32
    found = _WIDTH.search(type)
    assert found is not None, type
    return int(found[1])


def result_width(words: Sequence[str]) -> int:
    """Bits of what an instruction gives."""
    if words[0] in ("setp", "testp") or words[-1] == "pred":
        return 1
    if words[0] in ("cvt", "set"):
        return width(words[-2])
    return 2 * width(words[-1]) if "wide" in words else width(words[-1])


def signed(value: int, width: int) -> int:
    value &= (1 << width) - 1
    return value - (1 << width) if value >> (width - 1) else value


def as_float(bits: int, type: str = "f32") -> Any:
    if type == "bf16":
        bits, type = bits << 16, "f32"
    unpacked, packed = _CODES[type]
    return _NUMPY[type](struct.unpack(unpacked, struct.pack(packed, bits & ((1 << width(type)) - 1)))[0])


def bits_of(value: Any, type: str = "f32") -> int:
    if type == "bf16":
        return int(simulator.bf16_bits(np.float32([value]))[0])
    unpacked, packed = _CODES[type]
    return int(struct.unpack(packed, struct.pack(unpacked, _NUMPY[type](value)))[0])


def pair(word: int) -> np.ndarray:
    return np.array([word & 0xFFFF, word >> 16 & 0xFFFF], np.uint16)


def word(halves: np.ndarray) -> int:
    return int(halves[0]) | int(halves[1]) << 16


def _numbers(x: Sequence[int], type: str) -> list[Any]:
    """Operands as what they are: Python's integers, numpy's floats, or pairs of f32 of 16-bit pairs."""
    if type in _PAIRS:
        of = simulator.bf16_values if type == "bf16x2" else lambda v: v.view(np.float16).astype(np.float32)
        return [of(pair(v)) for v in x]
    if type[0] == "f" or type == "bf16":
        return [as_float(v, type) for v in x]
    bits = width(type)
    return [signed(v, bits) if type[0] == "s" else v & ((1 << bits) - 1) for v in x]


def _bits(value: Any, type: str) -> int:
    if type == "bf16x2":
        return word(simulator.bf16_bits(np.asarray(value, np.float32)))
    if type == "f16x2":
        return word(np.asarray(value).astype(np.float16).view(np.uint16))
    return bits_of(value, type) if type[0] == "f" or type == "bf16" else int(value)


def _of(function: Callable[..., Any]) -> Callable[[Sequence[str], Sequence[int]], int]:
    """An instruction that gives the type that it takes."""
    return lambda words, x: _bits(function(*_numbers(x, words[-1])), words[-1])


def _product(words: Sequence[str], x: Sequence[int]) -> int:
    if words[-1][0] in "fb":
        a, b = _numbers(x[:2], words[-1])
        return _bits(a * b, words[-1])
    product = math.prod(_numbers(x[:2], words[-1]))
    return product >> width(words[-1]) if "hi" in words else product


def _mad(words: Sequence[str], x: Sequence[int]) -> int:
    return _product(words, x[:2]) + x[2]


def _fma(words: Sequence[str], x: Sequence[int]) -> int:
    """Rounding twice is near enough."""
    wide = np.longdouble if words[-1] == "f64" else np.float64
    a, b, c = (np.asarray(v, wide) for v in _numbers(x, words[-1]))
    found = _bits(a * b + c, words[-1])
    if "sat" in words:
        found = bits_of(min(max(as_float(found), np.float32(0)), np.float32(1)))
    return found


def _extreme(how: str) -> Callable[[Sequence[str], Sequence[int]], int]:
    def function(words: Sequence[str], x: Sequence[int]) -> int:
        a, b = _numbers(x, words[-1])
        if words[-1][0] not in "fb":
            return int(max(a, b) if how == "max" else min(a, b))
        keeps = "NaN" in words or words[-1] in _PAIRS
        named = {"max": (np.maximum, np.fmax), "min": (np.minimum, np.fmin)}[how]
        return _bits(named[0 if keeps else 1](a, b), words[-1])

    return function


def _divided(words: Sequence[str], x: Sequence[int]) -> int:
    a, b = _numbers(x, words[-1])
    if words[-1][0] in "us":
        assert b, "a division by 0"
        return abs(a) // abs(b) * (1 if a * b >= 0 else -1)
    if words[1] in ("full", "approx"):
        return _fast("fast_div", x)
    return _bits(a / b, words[-1])


def _rest(words: Sequence[str], x: Sequence[int]) -> int:
    a, b = _numbers(x, words[-1])
    assert b, "a division by 0"
    return a - b * (abs(a) // abs(b)) * (1 if a * b >= 0 else -1)


def _fast(name: str, x: Sequence[int]) -> int:
    return bits_of(simulator.fast(name, *(np.asarray(as_float(v)) for v in x))[()])


def _power_of_two(words: Sequence[str], x: Sequence[int]) -> int:
    exponent = float(as_float(x[0]))
    if exponent.is_integer() and -126 <= exponent <= 127:
        return bits_of(np.float32(2.0**exponent))  # exact: NVIDIA's f64 exp and erf are built on that
    return _fast("flushed_exp2" if "ftz" in words else "fast_exp2", x)


def _inverse(words: Sequence[str], x: Sequence[int]) -> int:
    if words[1:] == ("approx", "ftz", "f32"):
        return _fast("fast_inverse", x)
    if words[1] == "approx":  # of f64: its upper 20 bits
        return bits_of(1 / as_float(x[0], "f64"), "f64") & ~((1 << 32) - 1)
    return _bits(_NUMPY[words[-1]](1) / as_float(x[0], words[-1]), words[-1])


def _root(words: Sequence[str], x: Sequence[int]) -> int:
    if words[1] == "approx":
        return _fast("fast_sqrt", x)
    return _bits(np.sqrt(as_float(x[0], words[-1])), words[-1])


def _inverse_root(words: Sequence[str], x: Sequence[int]) -> int:
    if words[-1] == "f32":
        return _fast("fast_inverse_root", x)
    gross = 1 / np.sqrt(as_float(x[0], "f64"))
    return bits_of(gross, "f64") & ~((1 << 32) - 1)  # the upper 32 bits


def _neg(words: Sequence[str], x: Sequence[int]) -> int:
    return -x[0] if words[-1].startswith("s") else x[0] ^ (1 << (width(words[-1]) - 1))


def _abs(words: Sequence[str], x: Sequence[int]) -> int:
    if words[-1].startswith("s"):
        return abs(signed(x[0], width(words[-1])))
    return x[0] & ~(1 << (width(words[-1]) - 1))


def _bfi(words: Sequence[str], x: Sequence[int]) -> int:
    """The low bits of the first in the second."""
    own, other, place, count = x
    mask = ((1 << count) - 1) << place
    return (own << place & mask) | (other & ~mask)


def _shifted_left(words: Sequence[str], x: Sequence[int]) -> int:
    return x[0] << x[1] if x[1] < width(words[-1]) else 0


def _shifted_right(words: Sequence[str], x: Sequence[int]) -> int:
    [value] = _numbers(x[:1], words[-1])
    return int(value) >> min(x[1], width(words[-1]))


def _setp(words: Sequence[str], x: Sequence[int]) -> int:
    kind, type = words[1], words[-1]
    a, b = _numbers(x[:2], type)
    if type[0] == "f" or type == "bf16":
        unordered = bool(np.isnan(a) or np.isnan(b))
        if kind in ("num", "nan"):
            return int(unordered == (kind == "nan"))
        if unordered:
            return int(len(kind) == 3)  # ltu, neu, ...
    kind = {"lo": "lt", "ls": "le", "hi": "gt", "hs": "ge"}.get(kind, kind)
    found = int(_COMPARED[kind[:2]](a, b))
    return _JOINED[words[2]](found, x[2]) if len(words) > 3 and words[2] in _JOINED else found


_JOINED: dict[str, Callable[[int, int], int]] = {"and": operator.and_, "or": operator.or_, "xor": operator.xor}


def _cvt(words: Sequence[str], x: Sequence[int]) -> int:
    to, source = words[-2:]
    if to in _PAIRS:
        return _bits(np.array([as_float(v) for v in x[::-1]], np.float32), to)
    if words[1:] == ("rna", "tf32", "f32"):  # halves away from 0
        return (x[0] + 0x1000) & 0xFFFFE000
    if words[1:] == ("rn", "tf32", "f32"):  # halves to even
        return (x[0] + 0xFFF + (x[0] >> 13 & 1)) & 0xFFFFE000
    [value] = _numbers(x, source)
    if "sat" in words:
        value = min(max(value, _NUMPY[to](0)), _NUMPY[to](1)) if to[0] == "f" and value == value else 0
    for name, rounded in (("rzi", np.trunc), ("rni", np.rint), ("rmi", np.floor), ("rpi", np.ceil)):
        if name in words:
            value = rounded(value)
    if to[0] in "fb" and to != "b16":
        return _bits(value, to)
    if source[0] == "f":
        low, high = (-(1 << width(to) - 1), (1 << width(to) - 1) - 1) if to[0] == "s" else (0, (1 << width(to)) - 1)
        return 0 if value != value else int(min(max(float(value), low), high))  # Python compares exactly
    return int(value)


def _copysign(words: Sequence[str], x: Sequence[int]) -> int:
    top = 1 << (width(words[-1]) - 1)
    return (x[1] & (top - 1)) | (x[0] & top)


def _first_bit(words: tuple[str, ...], x: list[int]) -> int:
    """How far the highest bit that is set is from the top; all ones for 0."""
    assert words[1:] == ("shiftamt", "u32")
    return 32 - x[0].bit_length() if x[0] else (1 << 32) - 1


def _reversed(words: Sequence[str], x: Sequence[int]) -> int:
    bits = width(words[-1])
    return int(format(x[0] & ((1 << bits) - 1), f"0{bits}b")[::-1], 2)


def _prmt(words: Sequence[str], x: Sequence[int]) -> int:
    data = (x[0] & 0xFFFFFFFF).to_bytes(4, "little") + (x[1] & 0xFFFFFFFF).to_bytes(4, "little")
    found = bytearray()
    for i in range(4):
        nibble = x[2] >> (4 * i) & 0xF
        byte = data[nibble & 7]
        found.append((0xFF if byte & 0x80 else 0) if nibble & 8 else byte)
    return int.from_bytes(found, "little")


_FUNCTIONS: dict[str, Callable[[Sequence[str], Sequence[int]], int]] = {
    "mov": lambda words, x: x[0],
    "cvta": lambda words, x: x[0],
    "add": _of(lambda a, b: a + b),
    "sub": _of(lambda a, b: a - b),
    "mul": _product,
    "mad": _mad,
    "fma": _fma,
    "max": _extreme("max"),
    "min": _extreme("min"),
    "div": _divided,
    "rem": _rest,
    "rcp": _inverse,
    "ex2": _power_of_two,
    "lg2": lambda words, x: bits_of(np.log2(as_float(x[0]))),
    "sqrt": _root,
    "rsqrt": _inverse_root,
    "tanh": lambda words, x: _fast("fast_tanh", x),
    "neg": _neg,
    "abs": _abs,
    "and": lambda words, x: x[0] & x[1],
    "or": lambda words, x: x[0] | x[1],
    "xor": lambda words, x: x[0] ^ x[1],
    "not": lambda words, x: 1 - x[0] if words[-1] == "pred" else ~x[0],
    "bfi": _bfi,
    "bfe": lambda words, x: (x[0] >> (x[1] & 0xFF)) & ((1 << (x[2] & 0xFF)) - 1),
    "popc": lambda words, x: x[0].bit_count(),
    "clz": lambda words, x: width(words[-1]) - (x[0] & ((1 << width(words[-1])) - 1)).bit_length(),
    "brev": _reversed,
    "bfind": _first_bit,
    "prmt": _prmt,
    "shl": _shifted_left,
    "shr": _shifted_right,
    "selp": lambda words, x: x[0] if x[2] else x[1],
    "setp": _setp,
    "cvt": _cvt,
    "copysign": _copysign,
}
