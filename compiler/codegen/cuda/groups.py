"""Where a thread is, arithmetic of indices, and lanes put together, as intrinsics for Numba."""

from __future__ import annotations

from typing import Any

from numba.cuda.extending import intrinsic
from numba.cuda.typing import signature

from dslc.compiler.codegen.cuda.functions import convert, device, tree
from dslc.compiler.codegen.cuda.lanes import I32, I64, count_of, dtype_of, packed, spread, type_of, unpacked
from dslc.compiler.ir.types import DType


def _place(register: str) -> Any:
    @intrinsic  # type: ignore[untyped-decorator]
    def place(context: Any) -> Any:
        def generate(context: Any, builder: Any, sig: Any, values: Any) -> Any:
            return device(builder, f"llvm.nvvm.read.ptx.sreg.{register}.x", I32)

        return signature(type_of(DType.I32, 1)), generate

    return place


thread = _place("tid")  # in the block: i32
block = _place("ctaid")  # in the grid: i32


def index_function(name: str) -> Any:
    """plus, times, quotient, remainder, below of indices of i32 or i64, the second one possibly an int.

    Numbers are not negative and results fit.
    """

    def typed(x: Any, y: Any) -> tuple[Any, Any]:
        dtype, count = dtype_of(x), max(count_of(x), count_of(y))

        def generate(context: Any, builder: Any, sig: Any, values: Any) -> Any:
            ys = [convert(builder, lane, dtype_of(y), dtype) for lane in unpacked(builder, values[1], y)]
            pairs = zip(spread(unpacked(builder, values[0], x), count), spread(ys, count))
            return packed(builder, [_index(builder, name, *pair) for pair in pairs])

        result = DType.B1 if name == "below" else dtype
        return signature(type_of(result, count), x, y), generate

    return intrinsic(lambda context, x, y: typed(x, y))


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


@intrinsic  # type: ignore[untyped-decorator]
def divided(context: Any, x: Any, magic: Any, shift: Any) -> Any:
    """Indices of i32 by a size, whose magic number and shift these are (``division.py``)."""

    def generate(context: Any, builder: Any, sig: Any, values: Any) -> Any:
        lanes, by = unpacked(builder, values[0], x), builder.zext(values[1], I64)

        def quotient(lane: Any) -> Any:
            product = builder.mul(builder.zext(builder.add(lane, lane), I64), by)
            return builder.lshr(builder.trunc(builder.lshr(product, I64(32)), I32), values[2])

        return packed(builder, [quotient(lane) for lane in lanes])

    return signature(x, x, magic, shift), generate


@intrinsic  # type: ignore[untyped-decorator]
def rest(context: Any, x: Any, quotient: Any, size: Any) -> Any:
    """What is left of indices of i32 that were divided: ``x - quotient * size``."""

    def generate(context: Any, builder: Any, sig: Any, values: Any) -> Any:
        pairs = zip(*(unpacked(builder, value, x) for value in values[:2]))
        return packed(builder, [builder.sub(lane, builder.mul(whole, values[2])) for lane, whole in pairs])

    return signature(x, x, quotient, size), generate


def ramp(count: int, step: int) -> Any:
    """``count`` numbers x, x + step, ... for each lane of x, side by side."""

    def typed(x: Any) -> tuple[Any, Any]:
        def generate(context: Any, builder: Any, sig: Any, values: Any) -> Any:
            lanes = unpacked(builder, values[0], x)
            return packed(
                builder, [builder.add(n, n.type(i * step), flags=("nsw",)) for n in lanes for i in range(count)]
            )

        return signature(type_of(dtype_of(x), count * count_of(x)), x), generate

    return intrinsic(lambda context, x: typed(x))


def fill(dtype: DType, count: int) -> Any:
    """``count`` lanes of one number."""

    def typed(x: Any) -> tuple[Any, Any]:
        def generate(context: Any, builder: Any, sig: Any, values: Any) -> Any:
            return packed(builder, [convert(builder, values[0], dtype_of(x), dtype)] * count)

        return signature(type_of(dtype, count), x), generate

    return intrinsic(lambda context, x: typed(x))


def each(count: int) -> Any:
    """Every lane ``count`` times, side by side."""

    def typed(x: Any) -> tuple[Any, Any]:
        def generate(context: Any, builder: Any, sig: Any, values: Any) -> Any:
            return packed(builder, [lane for lane in unpacked(builder, values[0], x) for _ in range(count)])

        return signature(type_of(dtype_of(x), count * count_of(x)), x), generate

    return intrinsic(lambda context, x: typed(x))


def tile(times: int, count: int) -> Any:
    """``count`` lanes, or one that is repeated, ``times`` times one after the other."""

    def typed(x: Any) -> tuple[Any, Any]:
        def generate(context: Any, builder: Any, sig: Any, values: Any) -> Any:
            return packed(builder, spread(unpacked(builder, values[0], x), count) * times)

        return signature(type_of(dtype_of(x), count * times), x), generate

    return intrinsic(lambda context, x: typed(x))


@intrinsic  # type: ignore[untyped-decorator]
def joined(context: Any, x: Any, y: Any) -> Any:
    """The lanes of x, then those of y."""

    def generate(context: Any, builder: Any, sig: Any, values: Any) -> Any:
        return packed(builder, [*unpacked(builder, values[0], x), *unpacked(builder, values[1], y)])

    return signature(type_of(dtype_of(x), count_of(x) + count_of(y)), x, y), generate


def part(number: int) -> Any:
    """The first (0) or second (1) half of the lanes."""

    def typed(x: Any) -> tuple[Any, Any]:
        count = count_of(x) // 2

        def generate(context: Any, builder: Any, sig: Any, values: Any) -> Any:
            return packed(builder, unpacked(builder, values[0], x)[number * count :][:count])

        return signature(type_of(dtype_of(x), count), x), generate

    return intrinsic(lambda context, x: typed(x))


def fold(how: str, groups: int, count: int) -> Any:
    """``groups`` of ``count`` lanes (or one lane, repeated) combined: half the groups with the other half, to one."""

    def typed(x: Any) -> tuple[Any, Any]:
        def generate(context: Any, builder: Any, sig: Any, values: Any) -> Any:
            lanes = spread(unpacked(builder, values[0], x), groups * count)
            return packed(builder, [tree(builder, how, dtype_of(x), lanes[i::count]) for i in range(count)])

        return signature(type_of(dtype_of(x), count), x), generate

    return intrinsic(lambda context, x: typed(x))
