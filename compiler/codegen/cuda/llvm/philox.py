"""LLVM IR of a thread's random bits: the numbers of ``ops/random/philox.py``, eight elements per draw."""

from __future__ import annotations

import math
from typing import Any, Final

from llvmlite import ir

from dslc.compiler.codegen.cuda.llvm.lanes import I32, I64, Lanes, Writer
from dslc.compiler.ir.types import DType
from dslc.compiler.ops.random.philox import KEY_STEPS, MULTIPLIERS, ROUNDS

_DRAW_ELEMENTS: Final = 8  # elements per draw


def bits(count: int, key: int, row_elements: int, aligned: int) -> Writer:
    """``bits(seed, step, row, first)``: 16 random bits, as i32, of each of ``count`` neighbours (1, 2, 4 or 8) from
    index ``first`` on, or from each of several indices. ``row``: index of the tensor's first row in the whole batch.
    ``aligned``: a power of two that divides these indices."""
    assert count in (1, 2, 4, 8)
    aligned = math.gcd(aligned, row_elements, _DRAW_ELEMENTS)

    def write(builder: Any, *given: Lanes) -> Lanes:
        *scalars, first = given
        seed, turn, row = (x.value for x in scalars)
        before = builder.mul(row, I64(row_elements))
        mixed = builder.xor(seed, I64(key - (1 << 64) if key >> 63 else key))
        found = []
        for begin in first.values:
            number = builder.add(before, begin if begin.type == I64 else builder.zext(begin, I64))
            draw, place = (
                builder.lshr(number, I64(3)),
                builder.trunc(builder.and_(number, I64(_DRAW_ELEMENTS - 1)), I32),
            )
            words = _draw(builder, draw, turn, mixed)
            if aligned < count:
                words += _beyond(
                    builder, place, count, lambda at=draw: _draw(builder, builder.add(at, I64(1)), turn, mixed)
                )
            found += _taken(builder, words, place, count, aligned)
        return Lanes(DType.I32, found)

    return write


def _draw(builder: Any, draw: Any, turn: Any, mixed: Any) -> list[Any]:
    """The four words of one draw."""
    c = [half for x in (draw, turn) for half in _halves(builder, x)]
    k = _halves(builder, mixed)
    for _ in range(ROUNDS):
        (low0, high0), (low1, high1) = (_product(builder, x, m) for x, m in zip((c[0], c[2]), MULTIPLIERS))
        c = [builder.xor(builder.xor(high1, c[1]), k[0]), low1, builder.xor(builder.xor(high0, c[3]), k[1]), low0]
        k = [builder.add(x, I32(step - (1 << 32))) for x, step in zip(k, KEY_STEPS)]
    return c


def _product(builder: Any, x: Any, factor: int) -> list[Any]:
    """The halves of a 32 x 32 bit product. Explicit, because for a 64-bit product ptxas emits additions of zeros."""
    asm = ir.InlineAsm(ir.FunctionType(I64, [I32, I32]), "mul.wide.u32 $0, $1, $2;", "=l,r,r")
    return _halves(builder, builder.call(asm, [x, I32(factor - (1 << 32))]))


def _halves(builder: Any, x: Any) -> list[Any]:
    return [builder.trunc(x, I32), builder.trunc(builder.lshr(x, I64(32)), I32)]


def _beyond(builder: Any, place: Any, count: int, draw: Any) -> list[Any]:
    """The words of the next draw if the elements reach into it, else zeros; the branch is uniform over the threads of a
    step."""
    before = builder.block
    with builder.if_then(builder.icmp_unsigned(">", place, I32(_DRAW_ELEMENTS - count))):
        words = draw()
        inside = builder.block
    found = []
    for word in words:
        phi = builder.phi(I32)
        phi.add_incoming(word, inside)
        phi.add_incoming(I32(0), before)
        found.append(phi)
    return found


def _taken(builder: Any, words: list[Any], place: Any, count: int, aligned: int) -> list[Any]:
    """Halves ``place``, ``place + 1``, ... of the words; ``place`` is a multiple of ``aligned``."""
    last = len(words) - 1
    for step in (2, 1):  # whole words first
        if 2 * step >= aligned:
            there = builder.icmp_unsigned("!=", builder.and_(place, I32(2 * step)), I32(0))
            words = [builder.select(there, words[min(i + step, last)], words[i]) for i in range(len(words))]
    halves = [half for word in words for half in (builder.and_(word, I32(0xFFFF)), builder.lshr(word, I32(16)))]
    if aligned > 1:
        return halves[:count]
    odd = builder.icmp_unsigned("!=", builder.and_(place, I32(1)), I32(0))
    return [builder.select(odd, halves[i + 1], halves[i]) for i in range(count)]
