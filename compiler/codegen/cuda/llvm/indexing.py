"""LLVM IR for a thread's position, index arithmetic, and combining lanes."""

from __future__ import annotations

from typing import Any

from dslc.compiler.codegen.cuda.llvm.lanes import I32, I64, Lanes, Writer
from dslc.compiler.codegen.cuda.llvm.math import combine, convert, device, tree
from dslc.compiler.ir.types import DType


def _index_register(register: str) -> Writer:
    return lambda builder: Lanes(DType.I32, [device(builder, f"llvm.nvvm.read.ptx.sreg.{register}.x", I32)])


thread = _index_register("tid")  # in the block: i32
block = _index_register("ctaid")  # in the grid: i32


def index_function(name: str) -> Writer:
    """plus, times, quotient, remainder or below, of i32 or i64 indices; the second operand may be an int.

    Operands must not be negative, and results must fit.
    """

    def write(builder: Any, x: Lanes, y: Lanes) -> Lanes:
        count = max(x.count, y.count)
        ys = [convert(builder, lane, y.dtype, x.dtype) for lane in y.spread(count)]
        found = [_index(builder, name, *pair) for pair in zip(x.spread(count), ys)]
        return Lanes(DType.B1 if name == "below" else x.dtype, found)

    return write


def _index(builder: Any, name: str, x: Any, y: Any) -> Any:
    match name:
        case "plus":
            return builder.add(x, y, flags=("nsw",))
        case "times":
            return builder.mul(x, y, flags=("nsw",))
        case "quotient":
            return builder.udiv(x, y)
        case "remainder":
            return builder.urem(x, y)
    return builder.icmp_signed("<", x, y)


def divided(builder: Any, x: Lanes, magic: Lanes, shift: Lanes) -> Lanes:
    """Divides i32 indices by a size, given its magic number and shift (``division.py``)."""
    by = builder.zext(magic.value, I64)

    def quotient(lane: Any) -> Any:
        product = builder.mul(builder.zext(builder.add(lane, lane), I64), by)
        return builder.lshr(builder.trunc(builder.lshr(product, I64(32)), I32), shift.value)

    return Lanes(x.dtype, [quotient(lane) for lane in x.values])


def rest(builder: Any, x: Lanes, quotient: Lanes, size: Lanes) -> Lanes:
    """The remainder of i32 indices after division: ``x - quotient * size``."""
    pairs = zip(x.values, quotient.values, strict=True)
    return Lanes(x.dtype, [builder.sub(lane, builder.mul(whole, size.value)) for lane, whole in pairs])


def ramp(count: int, step: int) -> Writer:
    """``count`` numbers x, x + step, ... for each lane of x; those of one lane are adjacent."""

    def write(builder: Any, x: Lanes) -> Lanes:
        steps = range(0, count * step, step) if step else [0] * count
        return Lanes(x.dtype, [builder.add(lane, lane.type(i), flags=("nsw",)) for lane in x.values for i in steps])

    return write


def fill(dtype: DType, count: int) -> Writer:
    """``count`` lanes of one number."""
    return lambda builder, x: Lanes(dtype, [convert(builder, x.value, x.dtype, dtype)] * count)


def each(count: int) -> Writer:
    """Every lane repeated ``count`` times in place."""
    return lambda builder, x: Lanes(x.dtype, [lane for lane in x.values for _ in range(count)])


def tile(times: int, count: int) -> Writer:
    """``count`` lanes, or one lane repeated, as a sequence repeated ``times`` times."""
    return lambda builder, x: Lanes(x.dtype, x.spread(count) * times)


def joined(builder: Any, x: Lanes, y: Lanes) -> Lanes:
    """The lanes of x, then those of y."""
    return Lanes(x.dtype, [*x.values, *y.values])


def part(number: int) -> Writer:
    """The first (0) or second (1) half of the lanes."""
    return lambda builder, x: Lanes(x.dtype, x.values[number * (x.count // 2) :][: x.count // 2])


def added(how: str, groups: int, count: int) -> Writer:
    """Combines ``total``, of ``count`` lanes, with ``groups`` groups of as many, one after the other."""

    def write(builder: Any, total: Lanes, x: Lanes) -> Lanes:
        found, lanes = total.spread(count), x.spread(groups * count)
        for g in range(groups):
            found = [combine(builder, how, x.dtype, a, b) for a, b in zip(found, lanes[g * count :])]
        return Lanes(x.dtype, found)

    return write


def fold(how: str, groups: int, count: int) -> Writer:
    """Combines ``groups`` groups of ``count`` lanes (or one lane, repeated) pairwise, half with half, to one group."""

    def write(builder: Any, x: Lanes) -> Lanes:
        lanes = x.spread(groups * count)
        return Lanes(x.dtype, [tree(builder, how, x.dtype, lanes[i::count]) for i in range(count)])

    return write
