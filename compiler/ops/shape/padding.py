"""The function ``pad`` of the language: zeros or another value, or elements of the tensor itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeAlias

from dslc.compiler.ir.function import Call, Function, Ints, function
from dslc.compiler.ir.graph import Value
from dslc.compiler.ir.op import Mismatch
from dslc.compiler.ir.sizes import Size, bounds
from dslc.compiler.ops.constants.constant import as_attr
from dslc.compiler.ops.shape.broadcast import expand
from dslc.compiler.ops.shape.slicing import concat, pad, piece, slice_

#: The elements next to one end of an axis: ``(call, x, axis, count, first)``, ``first`` for the lower end.
End: TypeAlias = Callable[[Call, Value, int, int, bool], Value]


def _mirrored(call: Call, x: Value, axis: int, count: int, first: bool) -> Value:
    """``count`` elements after the outermost one, in reverse order."""
    size = x.type.shape[axis]
    start: Size = count if first else size - 2
    starts: list[Size] = [0] * x.type.rank
    stops, steps = list(x.type.shape), [1] * x.type.rank
    starts[axis], stops[axis], steps[axis] = start, start - count, -1
    return call.emit(slice_, x, starts=tuple(starts), stops=tuple(stops), steps=tuple(steps))


def _repeated(call: Call, x: Value, axis: int, count: int, first: bool) -> Value:
    """The outermost element ``count`` times."""
    size = x.type.shape[axis]
    edge = piece(call, x, axis, 0, 1) if first else piece(call, x, axis, size - 1, size)
    return call.emit(expand, edge, shape=(*x.type.shape[:axis], count, *x.type.shape[axis + 1 :]))


def _wrapped(call: Call, x: Value, axis: int, count: int, first: bool) -> Value:
    """``count`` elements of the other end."""
    size = x.type.shape[axis]
    return piece(call, x, axis, size - count, size) if first else piece(call, x, axis, 0, count)


#: mode -> what it adds, and the least size of an axis that gets ``count`` elements at an end.
_MODES: Final[dict[str, tuple[End, Callable[[int], int]]]] = {
    "reflect": (_mirrored, lambda count: count + 1),
    "replicate": (_repeated, lambda count: 1),
    "circular": (_wrapped, lambda count: count),
}


class PadFunction(Function):
    """pad(x, before, after=none, value=none, mode="constant"): ``x`` with elements added before and after each axis.

    ``before`` and ``after`` hold one number for each axis, or one for all; ``after`` defaults to ``before``. In the
    mode "constant" the new elements are ``value``, 0 by default. The other modes are PyTorch's: "reflect" mirrors the
    tensor at its outermost element, which is not repeated; "replicate" repeats that element; "circular" goes on at the
    other end.

    given: x: [B, 8]
    >>> pad(x, [0, 1])
    >>> pad(x, [0, 2], mode="reflect")
    """

    name = "pad"
    not_finite = frozenset({"value"})

    def build(
        self,
        call: Call,
        x: Value,
        before: Ints,
        after: Ints | None = None,
        value: float | None = None,
        mode: str = "constant",
    ) -> Value:
        before = _of_each_axis("before", before, x)
        after = before if after is None else _of_each_axis("after", after, x)
        if mode == "constant":
            zeros = (0,) * len(before)
            filler = as_attr(0.0 if value is None else value)
            return call.emit(pad, x, low=before, high=after, interior=zeros, value=filler)
        if mode not in _MODES:
            known = ", ".join(f'"{name}"' for name in ("constant", *_MODES))
            raise Mismatch(f'`mode` is "{mode}"', f"one of {known}", "E0209")
        if value is not None:
            raise Mismatch(f'`value` has no meaning with mode="{mode}"', "leave it out", "E0209")
        if min((*before, *after)) < 0:
            raise Mismatch("padding cannot be negative", "use a slice, `x[a:b]`, instead", "E0209")
        for axis, (low, high) in enumerate(zip(before, after)):
            if low or high:
                x = _padded(call, x, axis, low, high, mode)
        return x


def _of_each_axis(name: str, given: Ints, x: Value) -> Ints:
    """One number for each axis. Raises Mismatch E0306."""
    rank = x.type.rank
    if len(given) not in (1, rank):
        why = f"`{name}` has {len(given)} numbers, {x.type} has {rank} axes"
        help = "give one number for each axis, in `before` for its start and in `after` for its end; or one for all"
        raise Mismatch(why, help, "E0306")
    return given if len(given) == rank else given * rank


def _padded(call: Call, x: Value, axis: int, low: int, high: int, mode: str) -> Value:
    end, least = _MODES[mode]
    size, needed = x.type.shape[axis], least(max(low, high))
    if bounds(size)[0] < needed:
        why = f'{max(low, high)} elements at an end of axis {axis}, of size {size}, with mode="{mode}"'
        raise Mismatch(why, f"the axis needs at least {needed} elements", "E0308")
    ends = [end(call, x, axis, count, first) if count else None for count, first in ((low, True), (high, False))]
    parts = [part for part in (ends[0], x, ends[1]) if part is not None]
    return call.emit(concat, *parts, axis=axis)


function(PadFunction())
