"""logcumsumexp: sums of exponentials of all elements up to each one, as logarithms."""

from __future__ import annotations

from dslc.compiler.ir.function import Axis, Call, Function, function
from dslc.compiler.ir.graph import Value
from dslc.compiler.ir.sizes import bounds
from dslc.compiler.ops.axes import from_zero
from dslc.compiler.ops.elementwise.arithmetic import require_kind
from dslc.compiler.ops.reduction.softmax import logsumexp
from dslc.compiler.ops.shape.slicing import concat, pad, piece
from dslc.compiler.ops.shape.views import reshape


class LogCumSumExp(Function):
    """logcumsumexp(x, axis=-1, reverse=false): ``log(cumsum(exp(x)))`` along an axis, without overflow.

    With ``reverse``, of each element and all after it. It takes a pass over the tensor for each doubling of the axis:
    8 for 256 elements.

    given: x: [B, 8]
    >>> logcumsumexp(x, axis=1)
    """

    name = "logcumsumexp"

    def build(self, call: Call, x: Value, axis: Axis = -1, reverse: bool = False) -> Value:
        axis = from_zero(self.name, x.type, axis)
        require_kind(self.name, x.type.dtype, "float")
        shape = x.type.shape
        none = (0,) * x.type.rank
        reach = 1
        while reach < bounds(shape[axis])[1]:  # each element holds the sum of the `reach` elements up to it
            far = tuple(reach if i == axis else 0 for i in range(x.type.rank))
            low, high = (none, far) if reverse else (far, none)
            moved = call.emit(pad, x, low=low, high=high, interior=none, value="-inf")
            first = reach if reverse else 0
            moved = piece(call, moved, axis, first, shape[axis] + first)
            pair = [call.emit(reshape, each, shape=(1, *shape)) for each in (x, moved)]
            x = call.emit(logsumexp, call.emit(concat, *pair, axis=0), over=(0,), keep=False)
            reach *= 2
        return x


function(LogCumSumExp())
