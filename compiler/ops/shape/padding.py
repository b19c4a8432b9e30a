"""The function ``pad`` of the language: zeros or another value, or elements of the tensor itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from dslc.compiler.ir.function import Call, Function, Ints, function
from dslc.compiler.ir.graph import Value
from dslc.compiler.ir.op import Mismatch
from dslc.compiler.ir.sizes import bounds
from dslc.compiler.ops.constants.constant import as_attr
from dslc.compiler.ops.shape.borders import border
from dslc.compiler.ops.shape.slicing import pad

#: mode -> the least size of an axis that gets ``count`` elements at an end.
_LEAST: Final[dict[str, Callable[[int], int]]] = {
    "reflect": lambda count: count + 1,
    "replicate": lambda count: 1,
    "circular": lambda count: count,
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
        if mode not in _LEAST:
            known = ", ".join(f'"{name}"' for name in ("constant", *_LEAST))
            raise Mismatch(f'`mode` is "{mode}"', f"one of {known}", "E0209")
        if value is not None:
            raise Mismatch(f'`value` has no meaning with mode="{mode}"', "leave it out", "E0209")
        if min((*before, *after)) < 0:
            raise Mismatch("padding cannot be negative", "use a slice, `x[a:b]`, instead", "E0209")
        for axis, (low, high) in enumerate(zip(before, after)):
            size, needed = x.type.shape[axis], _LEAST[mode](max(low, high))
            if (low or high) and bounds(size)[0] < needed:
                why = f'{max(low, high)} elements at an end of axis {axis}, of size {size}, with mode="{mode}"'
                raise Mismatch(why, f"the axis needs at least {needed} elements", "E0308")
        return call.emit(border, x, low=before, high=after, mode=mode) if any((*before, *after)) else x


def _of_each_axis(name: str, given: Ints, x: Value) -> Ints:
    """One number for each axis. Raises Mismatch E0306."""
    rank = x.type.rank
    if len(given) not in (1, rank):
        why = f"`{name}` has {len(given)} numbers, {x.type} has {rank} axes"
        help = "give one number for each axis, in `before` for its start and in `after` for its end; or one for all"
        raise Mismatch(why, help, "E0306")
    return given if len(given) == rank else given * rank


function(PadFunction())
