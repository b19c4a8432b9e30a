"""Random bits of a thread's elements, as LLVM IR: the numbers of ``ops/philox.py``, eight to a draw."""

from __future__ import annotations

from typing import Any, Final

from dslc.compiler.codegen.cuda.lanes import I32, I64, Lanes, Writer
from dslc.compiler.ir.types import DType
from dslc.compiler.ops.philox import KEY_STEPS, MULTIPLIERS, ROUNDS

_EACH: Final = 8  # elements of a draw


def bits(count: int, key: int, row_elements: int) -> Writer:
    """``bits(seed, step, row, first)``: 16 random bits, as i32, of each of ``count`` neighbours (1, 2, 4 or 8) from
    number ``first`` on of a tensor whose first row has number ``row`` in the whole batch."""
    assert count in (1, 2, 4, 8)

    def write(builder: Any, *given: Lanes) -> Lanes:
        wide = (x.value if x.dtype is DType.I64 else builder.zext(x.value, I64) for x in given)
        seed, turn, row, begin = wide
        number = builder.add(builder.mul(row, I64(row_elements)), begin)
        mixed = builder.xor(seed, I64(key - (1 << 64) if key >> 63 else key))
        draw, place = builder.lshr(number, I64(3)), builder.trunc(builder.and_(number, I64(_EACH - 1)), I32)
        words = _draw(builder, draw, turn, mixed)
        after = _beyond(builder, place, count, lambda: _draw(builder, builder.add(draw, I64(1)), turn, mixed))
        return Lanes(DType.I32, _taken(builder, [*words, *after], place, count))

    return write


def _draw(builder: Any, draw: Any, turn: Any, mixed: Any) -> list[Any]:
    """Four words."""
    c = [half for x in (draw, turn) for half in _halves(builder, x)]
    k = _halves(builder, mixed)
    for _ in range(ROUNDS):
        (low0, high0), (low1, high1) = (
            _halves(builder, builder.mul(builder.zext(x, I64), I64(m))) for x, m in zip((c[0], c[2]), MULTIPLIERS)
        )
        c = [builder.xor(builder.xor(high1, c[1]), k[0]), low1, builder.xor(builder.xor(high0, c[3]), k[1]), low0]
        k = [builder.add(x, I32(step - (1 << 32))) for x, step in zip(k, KEY_STEPS)]
    return c


def _halves(builder: Any, x: Any) -> list[Any]:
    return [builder.trunc(x, I32), builder.trunc(builder.lshr(x, I64(32)), I32)]


def _beyond(builder: Any, place: Any, count: int, draw: Any) -> list[Any]:
    """The words of the next draw where the elements reach into it, else zeros: the same for all threads in a step."""
    before = builder.block
    with builder.if_then(builder.icmp_unsigned(">", place, I32(_EACH - count))):
        words = draw()
        inside = builder.block
    found = []
    for word in words:
        phi = builder.phi(I32)
        phi.add_incoming(word, inside)
        phi.add_incoming(I32(0), before)
        found.append(phi)
    return found


def _taken(builder: Any, words: list[Any], place: Any, count: int) -> list[Any]:
    """Halves ``place``, ``place + 1``, ... of eight words."""
    step = 2  # whole words first: by four, by two, by one
    while step:
        there = builder.icmp_unsigned("!=", builder.and_(place, I32(2 * step)), I32(0))
        words = [builder.select(there, words[min(i + step, 7)], words[i]) for i in range(len(words))]
        step //= 2
    odd = builder.icmp_unsigned("!=", builder.and_(place, I32(1)), I32(0))
    found = []
    for i in range(count):
        low, high = builder.and_(words[i // 2], I32(0xFFFF)), builder.lshr(words[i // 2], I32(16))
        after = builder.and_(words[i // 2 + 1], I32(0xFFFF))
        own, next_ = (low, high) if i % 2 == 0 else (high, after)
        found.append(builder.select(odd, next_, own))
    return found
