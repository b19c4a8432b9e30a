"""The functions split, concat, stack and flip."""

from __future__ import annotations

from dslc.compiler.ir.function import Axes, Axis, Call, Function, Shape, function
from dslc.compiler.ir.graph import Value
from dslc.compiler.ir.op import Mismatch
from dslc.compiler.ir.sizes import Size, bounds, exact_div, to_multiple
from dslc.compiler.ir.types import TensorType
from dslc.compiler.ops.shape.broadcast import written
from dslc.compiler.ops.shape.slicing import concat, piece, reversal, slice_
from dslc.compiler.ops.shape.views import reshape


class Split(Function):
    """split(x, n=none, axis=-1, sizes=none): ``n`` equal parts along an axis, or parts of the given ``sizes``.

    given: x: [B, 8]
    >>> a, b = split(x, 2)
    >>> q, k, v = split(x, sizes=[4, 2, 2])
    """

    name = "split"

    def build(
        self, call: Call, x: Value, n: int | None = None, axis: Axis = -1, *, sizes: Shape | None = None
    ) -> tuple[Value, ...]:
        axis %= max(1, x.type.rank)
        if (n is None) == (sizes is None):
            why = "`split` needs the number of parts, or their `sizes`"
            raise Mismatch(why, "`split(x, 2)`, or `split(x, sizes=[4, 2])`", "E0201")
        if sizes is None:
            assert n is not None
            sizes = _equal(x.type, n, axis)
        whole = x.type.shape[axis] if x.type.rank else None
        if not sizes or any(bounds(size)[0] < 0 for size in sizes) or sum(sizes[1:], sizes[0]) != whole:
            why = f"parts of sizes {written(sizes)} along axis {axis} of {x.type}"
            raise Mismatch(why, "the sizes must add up to the axis", "E0303")
        found: list[Value] = []
        at: Size = 0
        for size in sizes:
            found.append(piece(call, x, axis, at, at + size))
            at = at + size
        return tuple(found)


def _equal(x: TensorType, n: int, axis: int) -> Shape:
    """The sizes of ``n`` equal parts of an axis; raises Mismatch."""
    if not x.rank or n < 1:
        raise Mismatch(f"{x} in {n} parts", "split an axis in 1 or more parts", "E0209")
    part = exact_div(x.shape[axis], n)
    if part is None:
        help = to_multiple(x.shape[axis], n)
        raise Mismatch(f"axis {axis} of {x} is not divisible by {n}", help, "E0303")
    return (part,) * n


class ConcatFunction(Function):
    """concat(xs, axis=-1): tensors joined along an axis; the other sizes agree.

    given: x: [B, 8], y: [B, 2]
    >>> concat([x, y])
    """

    name = "concat"

    def build(self, call: Call, xs: list[Value], axis: Axis = -1) -> Value:
        if not xs:
            raise Mismatch("`concat` of no tensors", "give at least one")
        if not xs[0].type.rank:
            raise Mismatch("a tensor without axes cannot be concatenated", "use `stack`", "E0306")
        return xs[0] if len(xs) == 1 else call.emit(concat, *xs, axis=axis % xs[0].type.rank)


class Stack(Function):
    """stack(xs, axis=0): tensors of one shape along a new axis.

    given: x: [B, 8], y: [B, 8]
    >>> stack([x, y], axis=1)
    """

    name = "stack"

    def build(self, call: Call, xs: list[Value], axis: Axis = 0) -> Value:
        if not xs:
            raise Mismatch("`stack` of no tensors", "give at least one")
        axis %= xs[0].type.rank + 1
        for x in xs:
            if x.type.shape != xs[0].type.shape:
                raise Mismatch(
                    f"{xs[0].type} and {x.type} have two shapes", "`stack` needs tensors of one shape", "E0302"
                )
        widened = [call.emit(reshape, x, shape=(*x.type.shape[:axis], 1, *x.type.shape[axis:])) for x in xs]
        return widened[0] if len(xs) == 1 else call.emit(concat, *widened, axis=axis)


class Flip(Function):
    """flip(x, over): elements in reverse order along an axis or a list of axes, like ``x[:, ::-1]`` for axis 1.

    given: x: [B, 8]
    >>> flip(x, over=1)
    """

    name = "flip"

    def build(self, call: Call, x: Value, over: Axes) -> Value:
        return call.emit(slice_, x, **reversal(x.type.shape, over)) if over else x


function(Split())

function(Flip())

function(ConcatFunction())

function(Stack())
