"""Random ops: each lane computes the counter of its own element, so the numbers are those of ``ops/random/philox.py``
for any split.

Uniform numbers and masks equal the reference's bit for bit. Normal numbers are computed in f64 from the same bits and
rounded once: sin and cos of pi*a from Taylor series on |a| <= 1/4, with an error below 1e-15.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Literal

from dslc.compiler.codegen.cpu.kernel_spec import KernelCode
from dslc.compiler.codegen.cpu.llvm.math import Functions
from dslc.compiler.codegen.cpu.llvm.values import Values
from dslc.compiler.codegen.cpu.llvm.writer import I1, I32, I64, VECTOR_BYTES, Code, Reg, lane_type, wide
from dslc.compiler.codegen.launch import ScalarArgs, SizeGeneric
from dslc.compiler.codegen.region.random import Draw
from dslc.compiler.codegen.target import Geometry
from dslc.compiler.ir.described import described
from dslc.compiler.ir.types import DType
from dslc.compiler.ops.random.philox import KEY_STEPS, MULTIPLIERS, ROUNDS
from dslc.compiler.ops.random.stochastic import ALL

_VECTOR_LANES: Final = 16
_TASK_ELEMENTS: Final = 4096  # elements per task
_WORD_MASK: Final = (1 << 32) - 1


@described("CpuDraw", "kind dtype stepped")
@dataclass(frozen=True)
class DrawKernel(KernelCode):
    """The kernel of all draws of a kind. Its arguments are those of a ``Draw``, then key, elements, row_elements, low
    and high."""

    kind: Literal["uniform", "normal", "dropout"]
    dtype: DType
    stepped: bool

    @property
    def number(self) -> DType:
        """The dtype of ``high``; ``low`` of a dropout is an i64."""
        return self.dtype if self.kind == "dropout" else DType.F32

    def emit(self, code: Code) -> None:
        DrawCode(code, self).run()


@dataclass(frozen=True)
class DrawLaunch(SizeGeneric):
    """A ``Draw`` on the CPU: all its numbers are arguments, so that the tensors of a model share kernels."""

    draw: Draw

    @property
    def code(self) -> DrawKernel:
        return DrawKernel(self.draw.kind, self.draw.dtype, self.draw.stepped)

    @property
    def scalar_args(self) -> ScalarArgs:
        d, number = self.draw, self.code.number.value
        key = d.key - (1 << 64) if d.key >> 63 else d.key
        low = ("i64", int(d.low)) if d.kind == "dropout" else (number, d.low)
        return (("i64", key), ("i64", d.elements), ("i64", d.row_elements), low, (number, d.high))

    @property
    def geometry(self) -> Geometry:
        return Geometry((-(-self.draw.elements // _TASK_ELEMENTS), 1, 1))


class DrawCode:
    """Emits a ``DrawKernel``: a task is a piece of whole vectors and, at the end of the tensor, a partial vector that
    goes through one on the stack. Both run the same loop, so the long code of a draw is there once."""

    def __init__(self, code: Code, spec: DrawKernel) -> None:
        self.code, self.b, self.spec = code, code.b, spec
        self.values = Values(code, _VECTOR_LANES)
        self.dropped = spec.kind == "dropout"
        first = 1 if self.dropped else 0
        count = 3 if spec.stepped else 1
        pointers = [code.argument(i) for i in range(first + count + 1)]
        after = len(pointers)
        self.tensors = [pointers[0], pointers[-1]] if self.dropped else [pointers[-1]]
        key, self.elements, row_elements = (code.scalar(after + i, DType.I64) for i in range(3))
        self.low = code.scalar(after + 3, DType.I64 if self.dropped else spec.number)
        self.high = code.scalar(after + 4, spec.number)
        one = Values(code, 1)
        numbers = [one.load(p, 0, 0, DType.I64).value for p in pointers[first : first + count]]
        seed, self.step, row = numbers if spec.stepped else (numbers[0], I64(0), I64(0))
        self.start = self.b.mul(row, row_elements)
        self.key = self.b.xor(seed, key)
        self.part = code.local(lane_type(spec.dtype), _VECTOR_LANES, align=VECTOR_BYTES)

    def run(self) -> None:
        code, b, type = self.code, self.b, lane_type(self.spec.dtype)
        with code.loop(code.last, code.first) as task:
            begin = code.mul(task, _TASK_ELEMENTS)
            stop = code.least(code.add(begin, _TASK_ELEMENTS), self.elements)
            whole = b.and_(stop, I64(-_VECTOR_LANES))
            left = b.sub(stop, whole)
            with code.loop(b.select(b.icmp_signed("==", left, I64(0)), I64(1), I64(2))) as piece:
                last = b.icmp_signed("==", piece, I64(1))
                start = b.select(last, whole, begin)
                # the first element of this piece in each tensor, or its copy
                places = [b.select(last, self.part, code.at(p, begin, type)) for p in self.tensors]
                with b.if_then(b.and_(last, I1(self.dropped))):
                    self._copy(code.at(self.tensors[0], whole, type), self.part, left)
                with code.loop(b.select(last, stop, whole), start, _VECTOR_LANES) as at:
                    self._vector(at, b.sub(at, start), places)
                with b.if_then(last):
                    self._copy(self.part, code.at(self.tensors[-1], whole, type), left)

    def _vector(self, at: Any, place: Any, tensors: list[Any]) -> None:
        """The vector of elements from ``at`` on, which are at ``place`` of ``tensors``."""
        code, b, values = self.code, self.b, self.values
        element = b.add(values.counting(at).value, values.splat(self.start))
        words = _philox(code, values, b.lshr(element, self._const(3 if self.dropped else 2)), self.key, self.step)
        if self.dropped:
            found = self._dropped(values.load(tensors[0], place, 1, self.spec.dtype), element, words)
        else:
            found = self._drawn(element, words)
        values.store(found, tensors[-1], place, 1)

    def _copy(self, source: Any, target: Any, count: Any) -> None:
        code, type = self.code, lane_type(self.spec.dtype)
        with code.loop(count) as i:
            code.b.store(code.b.load(code.at(source, i, type), typ=type), code.at(target, i, type))

    def _dropped(self, x: Reg, element: Any, words: list[Any]) -> Reg:
        b, values, dtype, const = self.b, self.values, self.spec.dtype, self._const
        word = _picked(b, words, b.and_(b.lshr(element, const(1)), const(3)), const)
        odd = b.icmp_unsigned("==", b.and_(element, const(1)), const(1))
        half = b.select(odd, b.lshr(word, const(16)), b.and_(word, const(ALL - 1)))
        kept = b.icmp_unsigned(">=", half, values.splat(self.low))
        scaled = b.fmul(x.value, values.splat(self.high))
        return Reg(b.select(kept, scaled, values.const(0.0, dtype).value), dtype)

    def _drawn(self, element: Any, words: list[Any]) -> Reg:
        code, b, values, const = self.code, self.b, self.values, self._const
        draw = _uniform if self.spec.kind == "uniform" else _normal
        drawn = draw(code, values, words, b.and_(element, const(3)), const)
        found = Reg(b.fadd(values.splat(self.low), b.fmul(values.splat(self.high), drawn)), DType.F32)
        return values.convert(found, self.spec.dtype)

    def _const(self, value: int) -> Any:
        return self.values.const(value, DType.I64).value


def _philox(code: Code, values: Values, draw: Any, key: Any, step: Any) -> list[Any]:
    """The four words of each lane's draw, as i64 below 2^32.

    Keys are cut to 32 bits after they are mixed in: instruction selection sees that the factors are short only if that
    happens in the same block, and else takes the slow product of 64 bits."""
    b = code.b
    low, shift = values.const(_WORD_MASK, DType.I64).value, values.const(32, DType.I64).value
    c0, c1 = b.and_(draw, low), b.lshr(draw, shift)
    c2, c3 = values.splat(b.and_(step, I64(_WORD_MASK))), values.splat(b.lshr(step, I64(32)))
    k0, k1 = key, b.lshr(key, I64(32))
    m0, m1 = (values.const(m, DType.I64).value for m in MULTIPLIERS)
    for _ in range(ROUNDS):
        p0, p1 = b.mul(c0, m0), b.mul(c2, m1)
        c0, c1, c2, c3 = (
            b.and_(b.xor(b.xor(b.lshr(p1, shift), c1), values.splat(k0)), low),
            b.and_(p1, low),
            b.and_(b.xor(b.xor(b.lshr(p0, shift), c3), values.splat(k1)), low),
            b.and_(p0, low),
        )
        k0, k1 = (b.add(k, I64(s)) for k, s in zip((k0, k1), KEY_STEPS))
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
