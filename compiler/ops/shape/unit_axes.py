"""The functions squeeze and unsqueeze: axes of size 1, removed and added."""

from __future__ import annotations

from dslc.compiler.ir.function import Call, Function, Ints, function
from dslc.compiler.ir.graph import Value
from dslc.compiler.ir.op import Mismatch
from dslc.compiler.ops.axes import from_zero
from dslc.compiler.ops.shape.views import reshape


class Squeeze(Function):
    """squeeze(x, axis=none): ``x`` without an axis of size 1, or a list of them; without all of them by default.

    A dim of the file never counts as 1.

    given: x: [B, 8, 1]
    >>> squeeze(x, 2)
    """

    name = "squeeze"

    def build(self, call: Call, x: Value, axis: Ints | None = None) -> Value:
        shape = x.type.shape
        named = range(len(shape)) if axis is None else [from_zero(self.name, x.type, a) for a in axis]
        for at in () if axis is None else named:
            if shape[at] != 1:
                why = f"`squeeze` of axis {at} of {x.type}, whose size is {shape[at]}"
                raise Mismatch(why, f"`x[{':, ' * at}0]` takes the first element", "E0302")
        kept = tuple(n for at, n in enumerate(shape) if n != 1 or at not in named)
        return call.emit(reshape, x, shape=kept)


class Unsqueeze(Function):
    """unsqueeze(x, axis): ``x`` with a new axis of size 1, or a list of them; ``axis`` counts in the result.

    given: x: [B, 8]
    >>> unsqueeze(x, 1)  # [B, 1, 8]
    """

    name = "unsqueeze"

    def build(self, call: Call, x: Value, axis: Ints) -> Value:
        rank = x.type.rank + len(axis)
        places = {at % rank for at in axis if -rank <= at < rank}
        if len(places) < len(axis):
            why = f"`unsqueeze` with axes {list(axis)} of a result that has {rank}"
            raise Mismatch(why, f"name each once, of 0 to {rank - 1}", "E0306")
        old = iter(x.type.shape)
        return call.emit(reshape, x, shape=tuple(1 if at in places else next(old) for at in range(rank)))


function(Squeeze())
function(Unsqueeze())
