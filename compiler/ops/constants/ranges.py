"""Ranges of integers, and the identity matrix: arange, eye."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from dslc.compiler.ir.function import Call, Function, function
from dslc.compiler.ir.graph import Attrs, Node, Value
from dslc.compiler.ir.op import Builder, Cost, Mismatch, Op, register
from dslc.compiler.ir.sizes import Size, bounds
from dslc.compiler.ir.types import DType, TensorType
from dslc.compiler.ops.attrs import int_attr, int_tuple, shape_attr
from dslc.compiler.ops.constants.masks import tri
from dslc.compiler.ops.elementwise.arithmetic import Gradients, sub
from dslc.compiler.ops.elementwise.convert import cast
from dslc.compiler.ops.lazy import np

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
    """arange(start, stop=none, step=1): the i32 vector start, start + step, ... before ``stop``.

    ``arange(n)`` counts from 0. ``step`` may be negative; a range without elements is a vector of size 0. With a dim,
    ``start`` is an int and ``step`` is 1. ``cast(arange(n), "float")`` gives floats.

    given: x: [B, 8]
    >>> x * cast(arange(8), "float")
    """

    name = "arange"

    def build(self, call: Call, start: Size, stop: Size | None = None, step: int = 1) -> Value:
        if stop is None:
            start, stop = 0, start
        return call.emit(arange, shape=(_count(start, stop, step),), start=start, step=step)


def _count(start: Size, stop: Size, step: int) -> Size:
    """The number of elements of a range."""
    if step == 0:
        raise Mismatch("`arange` with step 0", "a positive or a negative step", "E0209")
    if isinstance(start, int) and isinstance(stop, int):
        return len(range(start, stop, step)) if abs(stop - start) < 2**62 else abs(stop - start) // abs(step)
    if not isinstance(start, int) or step != 1:
        raise Mismatch(
            f"`arange` from {start} to {stop} by {step}", "with a dim, `start` is an int and `step` is 1", "E0209"
        )
    count = stop - start
    if bounds(count)[0] < 0:
        raise Mismatch(f"`arange` of {count} elements", f"`{stop}` may be less than `start`", "E0209")
    return count


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
