"""The functions tile and repeat_interleave: a tensor several times along its axes."""

from __future__ import annotations

from dslc.compiler.ir.function import Axis, Call, Function, Shape, function
from dslc.compiler.ir.graph import Value
from dslc.compiler.ir.op import Mismatch
from dslc.compiler.ir.sizes import Size, bounds
from dslc.compiler.ops.axes import from_zero
from dslc.compiler.ops.shape.broadcast import expand
from dslc.compiler.ops.shape.views import reshape


def _require_count(name: str, count: Size) -> None:
    if bounds(count)[0] < 0:
        raise Mismatch(f"`{name}` of {count} times", "a count is 0 or more", "E0209")


class Tile(Function):
    """tile(x, counts): the whole tensor repeated ``counts[i]`` times along axis i, as numpy's ``tile``.

    Fewer counts than axes are for the last ones; more make new axes in front.

    given: x: [B, 8]
    >>> tile(x, [1, 3])  # [B, 24]
    """

    name = "tile"

    def build(self, call: Call, x: Value, counts: Shape) -> Value:
        rank = max(x.type.rank, len(counts))
        shape = (1,) * (rank - x.type.rank) + x.type.shape
        times = (1,) * (rank - len(counts)) + counts
        parts: list[Size] = []
        wide: list[Size] = []
        for n, count in zip(shape, times):
            _require_count(self.name, count)
            new = n != 1 and count != 1
            parts += [1, n] if new else [n]
            wide += [count, n] if new else [n * count]
        y = call.emit(reshape, x, shape=tuple(parts))
        y = call.emit(expand, y, shape=tuple(wide)) if parts != wide else y
        return call.emit(reshape, y, shape=tuple(n * count for n, count in zip(shape, times)))


class RepeatInterleave(Function):
    """repeat_interleave(x, count, axis=-1): each element ``count`` times in a row along an axis.

    As PyTorch's function and numpy's ``repeat``; the whole tensor several times is ``tile``.

    given: x: [B, 8]
    >>> repeat_interleave(x, 3)  # [B, 24]
    """

    name = "repeat_interleave"

    def build(self, call: Call, x: Value, count: Size, axis: Axis = -1) -> Value:
        _require_count(self.name, count)
        at, shape = from_zero(self.name, x.type, axis), x.type.shape
        before, n, after = shape[:at], shape[at], shape[at + 1 :]
        if count == 1:
            return x
        y = call.emit(reshape, x, shape=(*before, n, 1, *after))
        y = call.emit(expand, y, shape=(*before, n, count, *after))
        return call.emit(reshape, y, shape=(*before, n * count, *after))


function(Tile())
function(RepeatInterleave())
