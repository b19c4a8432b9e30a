"""Random ops: each lane computes the counter of its own element, so the numbers are those of ``ops/random/philox.py``
for any split.

Uniform numbers and masks equal the reference's bit for bit. Normal numbers are computed in f64 from the same bits and
rounded once: sin and cos of pi*a from Taylor series on |a| <= 1/4, with an error below 1e-15.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from dslc.compiler.codegen.cpu.kernel_spec import KernelSpec
from dslc.compiler.codegen.cpu.llvm.math import Functions
from dslc.compiler.codegen.cpu.llvm.values import Values
from dslc.compiler.codegen.cpu.llvm.writer import I32, I64, Code, Reg, wide
from dslc.compiler.codegen.region.random import Draw
from dslc.compiler.ir.types import DType
from dslc.compiler.ops.random.philox import KEY_STEPS, MULTIPLIERS, ROUNDS
from dslc.compiler.ops.random.stochastic import ALL

_VECTOR_LANES: Final = 16
_TASK_ELEMENTS: Final = 4096  # elements per task
_WORD_MASK: Final = (1 << 32) - 1


@dataclass(frozen=True, slots=True)
class DrawKernel(KernelSpec):
    """The kernel of a ``Draw``."""

    draw: Draw

    @property
    def tasks(self) -> int:
        return -(-self.draw.elements // _TASK_ELEMENTS)

    def emit(self, code: Code) -> None:
        spec = self.draw
        first = 1 if spec.kind == "dropout" else 0
        count = 3 if spec.stepped else 1
        pointers = [code.argument(i) for i in range(first + count + 1)]
        one = Values(code, 1)
        numbers = [one.load(p, 0, 0, DType.I64).value for p in pointers[first : first + count]]
        seed, step, row = numbers if spec.stepped else (numbers[0], I64(0), I64(0))
        start = code.b.mul(row, I64(spec.row_elements))
        key = code.b.xor(seed, I64(spec.key if spec.key < 1 << 63 else spec.key - (1 << 64)))
        with code.loop(code.last, code.first) as task:
            begin = code.mul(task, _TASK_ELEMENTS)
            tail = spec.elements % _VECTOR_LANES
            stop = code.least(code.add(begin, _TASK_ELEMENTS), spec.elements - tail)
            with code.loop(stop, begin, _VECTOR_LANES) as at:
                _vector(code, spec, pointers, at, _VECTOR_LANES, start, key, step)
            if tail:
                with code.b.if_then(code.b.icmp_signed(">=", code.add(begin, _TASK_ELEMENTS), I64(spec.elements))):
                    _vector(code, spec, pointers, spec.elements - tail, tail, start, key, step)


def _vector(code: Code, spec: Draw, pointers: list[Any], at: Any, lanes: int, start: Any, key: Any, step: Any) -> None:
    b, values = code.b, Values(code, lanes)
    element = b.add(values.counting(at).value, values.splat(start))

    def const(value: int) -> Any:
        return values.const(value, DType.I64).value

    each = 8 if spec.kind == "dropout" else 4
    words = _philox(code, values, b.lshr(element, const(3 if each == 8 else 2)), key, step)
    if spec.kind == "dropout":
        x = values.load(pointers[0], at, 1, spec.dtype)
        word = _picked(b, words, b.and_(b.lshr(element, const(1)), const(3)), const)
        odd = b.icmp_unsigned("==", b.and_(element, const(1)), const(1))
        half = b.select(odd, b.lshr(word, const(16)), b.and_(word, const(ALL - 1)))
        kept = b.icmp_unsigned(">=", half, const(int(spec.low)))
        scaled = b.fmul(x.value, values.const(spec.high, spec.dtype).value)
        result = Reg(b.select(kept, scaled, values.const(0.0, spec.dtype).value), spec.dtype)
    else:
        place = b.and_(element, const(3))
        drawn = _uniform(code, values, words, place, const) if spec.kind == "uniform" else None
        drawn = _normal(code, values, words, place, const) if drawn is None else drawn
        low, high = (values.const(v, DType.F32).value for v in (spec.low, spec.high))
        result = Reg(b.fadd(low, b.fmul(high, drawn)), DType.F32)
    values.store(values.convert(result, spec.dtype), pointers[-1], at, 1)


def _philox(code: Code, values: Values, draw: Any, key: Any, step: Any) -> list[Any]:
    """The four words of each lane's draw, as i64 below 2^32."""
    b = code.b
    low, shift = values.const(_WORD_MASK, DType.I64).value, values.const(32, DType.I64).value
    c0, c1 = b.and_(draw, low), b.lshr(draw, shift)
    c2, c3 = values.splat(b.and_(step, I64(_WORD_MASK))), values.splat(b.lshr(step, I64(32)))
    k0, k1 = b.and_(key, I64(_WORD_MASK)), b.lshr(key, I64(32))
    m0, m1 = (values.const(m, DType.I64).value for m in MULTIPLIERS)
    for _ in range(ROUNDS):
        p0, p1 = b.mul(c0, m0), b.mul(c2, m1)
        c0, c1, c2, c3 = (
            b.xor(b.xor(b.lshr(p1, shift), c1), values.splat(k0)),
            b.and_(p1, low),
            b.xor(b.xor(b.lshr(p0, shift), c3), values.splat(k1)),
            b.and_(p0, low),
        )
        k0, k1 = (b.and_(b.add(k, I64(s)), I64(_WORD_MASK)) for k, s in zip((k0, k1), KEY_STEPS))
    return [c0, c1, c2, c3]


def _picked(b: Any, words: list[Any], place: Any, const: Callable[[int], Any]) -> Any:
    found = words[0]
    for number, word in enumerate(words[1:], 1):
        found = b.select(b.icmp_unsigned("==", place, const(number)), word, found)
    return found


def _uniform(code: Code, values: Values, words: list[Any], place: Any, const: Callable[[int], Any]) -> Any:
    b = code.b
    bits = b.lshr(_picked(b, words, place, const), const(8))
    number = b.sitofp(b.trunc(bits, wide(I32, values.lanes)), values.type(DType.F32))
    return b.fmul(number, values.const(2.0**-24, DType.F32).value)


def _normal(code: Code, values: Values, words: list[Any], place: Any, const: Callable[[int], Any]) -> Any:
    """Like ``philox.normal``: u and a from a pair of words, then Box and Muller in f64."""
    b, f32, f64 = code.b, values.type(DType.F32), values.type(DType.F64)
    functions = Functions(code, f64)
    second = b.icmp_unsigned(">=", place, const(2))
    w, v = b.select(second, words[2], words[0]), b.select(second, words[3], words[1])
    u = b.fmul(b.uitofp(w, f32), values.const(2.0**-32, DType.F32).value)
    u = b.fpext(b.fadd(u, values.const(2.0**-33, DType.F32).value), f64)
    signed = b.ashr(b.trunc(v, wide(I32, values.lanes)), values.const(8, DType.I32).value)
    a = b.fmul(b.sitofp(signed, f64), functions.const(2.0**-23))
    radius = functions.unary("sqrt", b.fmul(functions.const(-2.0), functions.log(u)))
    # a = k/2 + r, |r| <= 1/4, exactly
    k = functions.unary("rint", b.fadd(a, a))
    r = b.fsub(a, b.fmul(k, functions.const(0.5)))
    square = b.fmul(r, r)
    series = [[(-1) ** n * math.pi ** (2 * n + o) / math.factorial(2 * n + o) for n in range(10)] for o in (0, 1)]
    cos, sin = (functions.polynomial(s, square) for s in series)
    sin = b.fmul(sin, r)
    turns = b.fptosi(k, values.type(DType.I64))
    odd = b.icmp_unsigned("==", b.and_(place, const(1)), const(1))
    # sin(pi a) = cos(pi (a - 1/2)): one quarter turn less
    turns = b.sub(turns, b.zext(odd, values.type(DType.I64)))
    across = b.icmp_unsigned("==", b.and_(turns, const(1)), const(1))
    back = b.icmp_unsigned(">=", b.and_(b.add(turns, const(1)), const(3)), const(2))
    found = b.select(across, sin, cos)
    # cos(pi/2 t + pi r): cos, -sin, -cos, sin for t = 0, 1, 2, 3
    found = b.select(back, b.fneg(found), found)
    return b.fptrunc(b.fmul(radius, found), f32)
