"""Ranges of numbers, and the identity matrix: arange, eye."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from dslc.compiler.ir.function import Call, Function, Number, Operand, function
from dslc.compiler.ir.graph import Attrs, Node, Value
from dslc.compiler.ir.index_limits import I32_ELEMENTS
from dslc.compiler.ir.op import Builder, Cost, Mismatch, Op, register
from dslc.compiler.ir.sizes import Size, bounds, floor_div
from dslc.compiler.ir.types import DType, TensorType
from dslc.compiler.ops.attrs import int_attr, int_tuple, shape_attr
from dslc.compiler.ops.constants.known import number_or, size_or
from dslc.compiler.ops.constants.masks import tri
from dslc.compiler.ops.constants.ramp import ramp
from dslc.compiler.ops.elementwise.arithmetic import Gradients, add, mul, sub
from dslc.compiler.ops.elementwise.convert import cast
from dslc.compiler.ops.lazy import np
from dslc.compiler.ops.written_dtypes import dtype_named, float_named

if TYPE_CHECKING:
    from dslc.compiler.ir.op import Array


class Arange(Op):
    """arange(): the i32 vector ``start + step * i`` of the attribute ``shape`` [n]. Nothing is stored: each element is
    computed from its index."""

    name = "arange"
    mirror = True

    def infer(self, types: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
        assert not types, "arange takes no inputs"
        start, step, shape = int_attr(attrs, "start"), int_attr(attrs, "step"), shape_attr(attrs)
        assert len(shape) == 1
        low, high = DType.I32.limits
        last = start + step * (max(bounds(shape[0])[1], 1) - 1)
        for value in (start, step, last):
            if not low <= value <= high:
                raise Mismatch(f"{value} does not fit i32", f"i32 holds {low} to {high}", "E0209")
        return (TensorType(DType.I32, shape),)

    def grad(self, node: Node, dys: Gradients, b: Builder) -> Gradients:
        return ()

    def meaning(self, xs: Sequence[Array], attrs: Mapping[str, Any]) -> Sequence[Array]:
        [count] = int_tuple(attrs, "shape")
        return [(int(attrs["start"]) + int(attrs["step"]) * np.arange(count)).astype(np.int32)]

    def cost(self, node: Node) -> Cost:
        return Cost(node.types[0].bytes, node.types[0].bytes)

    def rows(self, node: Node, axes: Sequence[int | None]) -> tuple[int | None, ...] | None:
        return (None,)


arange = register(Arange())


class ArangeFunction(Function):
    """arange(start, stop=none, step=1, dtype=none): the vector start, start + step, ... before ``stop``.

    ``arange(n)`` counts from 0. ``step`` may be negative; a range without elements is a vector of size 0. ``start``
    and ``stop`` may be sizes with dims, as in ``arange(T - 1, -T, -1)`` or ``arange(0, T, 0.5)``. ``dtype``: "float",
    "f32", "f64" or an integer; without it, "i32" if all numbers are ints, else "float".

    As numpy's: a range of floats has ``ceil((stop - start) / step)`` elements, so rounding may add one near ``stop``;
    `linspace` is exact there. They are computed in f64 and rounded once.

    given: x: [B, 8]
    >>> x * arange(8, dtype="float")
    """

    name = "arange"

    def build(
        self, call: Call, start: Operand, stop: Operand | None = None, step: Number = 1, dtype: str | None = None
    ) -> Value:
        if stop is None:
            start, stop = 0, start
        if step == 0:
            raise Mismatch("`arange` with step 0", "a positive or a negative step", "E0209")
        if not isinstance(step, int | float):
            raise Mismatch(f"`arange` with the step `{step}`", "a number, not a size", "E0205")
        first, last = _end(start), _end(stop)
        if any(isinstance(each, float | Value) for each in (start, stop, step)):
            return _of_floats(call, first, last, step, dtype or "float")
        assert not isinstance(first, float) and not isinstance(last, float) and isinstance(step, int)
        return _of_ints(call, first, last, step, dtype or "i32")


def _end(value: Operand) -> Number:
    """The start or stop of a range; Mismatch E0205 for a tensor that is no number and no size."""
    found: Operand | Size = size_or(number_or(value))
    if isinstance(found, bool):
        raise Mismatch("an end of `arange` is a bool", "a number or a size", "E0202")
    if isinstance(found, Value):
        raise Mismatch(
            f"an end of `arange` is a tensor {found.type}",
            "the number of elements must be known: write `arange(n) * step + start`",
            "E0205",
        )
    if isinstance(found, float) and not math.isfinite(found):
        raise Mismatch(f"an end of `arange` is {found}", "a finite number", "E0209")
    return found


def _of_floats(call: Call, start: Number, stop: Number, step: float, dtype: str) -> Value:
    step = float(step)
    if not isinstance(start, int | float) or not isinstance(stop, int | float):
        known, first = float_named("arange", dtype), start
        if isinstance(first, int | float):
            return call.emit(ramp, start=float(first), step=step, shape=(_count(start, stop, step),), dtype=known)
        steps = call.emit(ramp, start=0.0, step=step, shape=(_count(start, stop, step),), dtype=known)
        return call.emit(add, steps, call.full(first, known))
    start, stop = float(start), float(stop)
    count = (stop - start) / step
    if not abs(count) < I32_ELEMENTS or not math.isfinite(start + step):
        raise Mismatch(f"`arange` of {count:.3g} elements", "fewer elements: a larger `step`", "E0209")
    step = (start + step) - start  # as in numpy
    return call.emit(
        ramp, start=start, step=step, shape=(max(math.ceil(count), 0),), dtype=float_named("arange", dtype)
    )


def _of_ints(call: Call, start: Size, stop: Size, step: int, dtype: str) -> Value:
    """A range of i32, cast; one of i64 whose numbers exceed i32 is computed from such a range."""
    known = dtype_named("arange", dtype)
    if known is DType.B1:
        raise Mismatch('`arange` has no dtype "b1"', "compare a range of ints: `arange(n) % 2 == 1`", "E0209")
    if not known.is_int:
        known = float_named("arange", dtype)
        if isinstance(start, int) and isinstance(stop, int):
            return _of_floats(call, start, stop, step, dtype)
    count = _count(start, stop, step)
    if not isinstance(start, int):
        return call.emit(add, _of_ints(call, 0, count * step, step, dtype), call.full(start, known))
    ends = (start, start + step * (max(bounds(count)[1], 1) - 1))
    low, high = (known if known.is_int else DType.I32).limits
    for value in ends:
        if not low <= value <= high:
            help = '`arange(..., dtype="i64")`' if known is DType.I32 else f"{known} holds {low} to {high}"
            raise Mismatch(f"{value} does not fit {known}", help, "E0209")
    low, high = DType.I32.limits
    if all(low <= value <= high for value in (*ends, step)):
        return _cast(call, call.emit(arange, shape=(count,), start=start, step=step), known)
    steps = _cast(call, call.emit(arange, shape=(count,), start=0, step=1), known)
    return call.emit(add, call.emit(mul, steps, call.full(step, known)), call.full(start, known))


def _cast(call: Call, x: Value, dtype: DType) -> Value:
    return x if x.type.dtype is dtype else call.emit(cast, x, dtype=dtype)


def _count(start: Number, stop: Number, step: float) -> Size:
    """The number of elements of a range, ``ceil((stop - start) / step)`` for the exact values of all numbers."""
    first, last, by = _ratio(start), _ratio(stop), Fraction(step)
    way = last[0] * first[1] - first[0] * last[1]
    over, under = way * by.denominator, first[1] * last[1] * abs(by.numerator)
    count = -floor_div(over if by < 0 else -over, under)
    if isinstance(count, int):
        count = max(0, count)
    low, high = bounds(count)
    if low < 0:
        why = f"`arange` from {start} to {stop} by {step:g} has {count} elements"
        raise Mismatch(why, "sizes for which this is never less than 0", "E0209")
    if high >= I32_ELEMENTS:
        raise Mismatch(f"`arange` of {high:,} elements", "fewer elements: a larger `step`", "E0209")
    return count


def _ratio(value: Number) -> tuple[Size, int]:
    """A number or size as a numerator and a denominator above 0."""
    return Fraction(value).as_integer_ratio() if isinstance(value, int | float) else (value, 1)


class Eye(Function):
    """eye(n, m=none): a float matrix [n, m], 1 on the diagonal, else 0; ``m`` is ``n`` by default.

    given: x: [B, 8, 8]
    >>> x + eye(8)
    """

    name = "eye"

    def build(self, call: Call, n: Size, m: Size | None = None) -> Value:
        for size in (n, m):
            if isinstance(size, int) and size < 0:
                raise Mismatch(f"`eye` of size {size}", "sizes from 0", "E0209")
        shape = (n, n if m is None else m)
        lower, below = (
            call.emit(cast, call.emit(tri, shape=shape, diagonal=diagonal), dtype=DType.FLOAT) for diagonal in (0, -1)
        )
        return call.emit(sub, lower, below)


function(ArangeFunction())
function(Eye())
