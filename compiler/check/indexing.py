"""Evaluates ``value[items]``: an item of a list, or a part of a tensor."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from dslc.compiler.check import lists
from dslc.compiler.check.expressions import as_size
from dslc.compiler.check.frame import Frame
from dslc.compiler.check.values import Problem, Static, added_axis, kind_of
from dslc.compiler.ir.graph import Value
from dslc.compiler.ir.op import OPS, Mismatch
from dslc.compiler.ir.sizes import Size, bounds, to_reach
from dslc.compiler.ir.types import DType, TensorType
from dslc.compiler.ops.index.take import subscripted
from dslc.dsl import syntax
from dslc.dsl.other_calls import adds_axis

if TYPE_CHECKING:
    from dslc.compiler.check.expand import Expander


@dataclass(frozen=True, slots=True)
class IndexRange:
    """What an index takes of a tensor: start, stop and step of each axis. ``picked``: the axes that a position takes
    away. ``tensors``: those that index what remains, by axis."""

    starts: tuple[Size, ...]
    stops: tuple[Size, ...]
    steps: tuple[int, ...]
    picked: frozenset[int]
    tensors: dict[int, Value]


class Indexing:
    """Evaluates Index expressions for an Expander."""

    def __init__(self, expander: Expander) -> None:
        self.expander = expander

    def __call__(self, expr: syntax.Index, frame: Frame) -> Static:
        added = next((item for item in expr.items if adds_axis(item)), None)
        if added is not None:
            raise added_axis(expr, added.span)
        value = self.expander.evaluate(expr.value, frame)
        if isinstance(value, (list, tuple)):
            return lists.at(value, expr, lambda part: self.expander.evaluate(part, frame))
        if isinstance(value, Value):
            return self._slice_tensor(expr, value, frame)
        raise Problem("E0202", f"{kind_of(value)} cannot be indexed", expr.span, "not a tensor or list")

    def range(self, expr: syntax.Index, type: TensorType, frame: Frame) -> IndexRange:
        """What the index takes of a tensor of this type. E0306 for too many indices."""
        shape = type.shape
        items = _each_axis(expr, len(shape))
        if len(items) > len(shape):
            raise Problem(
                "E0306",
                f"{len(items)} indices for {type}",
                expr.span,
                f"has {len(shape)} {'axis' if len(shape) == 1 else 'axes'}",
            )
        starts: list[Size] = [0] * len(shape)
        stops: list[Size] = list(shape)
        steps = [1] * len(shape)
        picked: set[int] = set()
        tensors: dict[int, Value] = {}
        for axis, item in enumerate(items):
            if isinstance(item, syntax.Slice):
                starts[axis], stops[axis], steps[axis] = self._slice_range(item, shape[axis], frame)
                continue
            at = self.expander.evaluate(item, frame)
            if isinstance(at, Value):
                tensors[axis - len(picked)] = at
            else:
                starts[axis] = self._within(at, item, shape[axis], inclusive=False)
                stops[axis] = starts[axis] + 1
                picked.add(axis)
        return IndexRange(tuple(starts), tuple(stops), tuple(steps), frozenset(picked), tensors)

    def _slice_tensor(self, expr: syntax.Index, x: Value, frame: Frame) -> Value:
        taken = self.range(expr, x.type, frame)
        emit, y = self.expander.emit, x
        if len(taken.tensors) < len(expr.items):
            y = emit(frame, expr.span, OPS["slice"], x, starts=taken.starts, stops=taken.stops, steps=taken.steps)
        if taken.picked:
            kept = tuple(s for axis, s in enumerate(y.type.shape) if axis not in taken.picked)
            y = emit(frame, expr.span, OPS["reshape"], y, shape=kept)
        return self._at_tensors(expr, y, taken.tensors, frame) if taken.tensors else y

    def _at_tensors(self, expr: syntax.Index, x: Value, index: dict[int, Value], frame: Frame) -> Value:
        """``x`` at the integer tensors of these axes; E0202 for tensors of other dtypes."""
        for at in index.values():
            if not at.type.dtype.is_int:
                help = 'convert it: `cast(i, "i32")`'
                if at.type.dtype is DType.B1:
                    help = "the number of true elements is unknown; `where(mask, x, 0)` keeps the shape"
                raise Problem("E0202", f"an index tensor holds integers, this is {at.type}", expr.span, help=help)
        try:
            return subscripted(self.expander.calls.site(frame, expr.span, frame.node_prefix), x, index)
        except Mismatch as wrong:
            raise Problem(wrong.code, wrong.why, expr.span, help=wrong.help) from None

    def _slice_range(self, item: syntax.Slice, size: Size, frame: Frame) -> tuple[Size, Size, int]:
        """Start, stop and step of a slice; for a negative step, a stop of -1 precedes the first element."""
        step = 1 if item.step is None else self.expander.evaluate.size(item.step, frame)
        if not isinstance(step, int) or step == 0:
            assert item.step is not None
            raise Problem("E0209", "a step is an int, at least 1 or at most -1", item.step.span, f"is {step}",
                          help="`::2` takes every second element, `::-1` all in reverse")  # fmt: skip
        start, stop = (0, size) if step > 0 else (size - 1, -1)
        if item.low is not None:
            start = self._position(item.low, size, frame, inclusive=step > 0)
        if item.high is not None:
            stop = self._position(item.high, size, frame, inclusive=step > 0)
        if bounds(stop - start if step > 0 else start - stop)[0] < 0:
            way = "backwards" if step > 0 else f"forwards with a step of {step}"
            help = None if step > 0 else "write the larger position first, `7:0:-1`"
            help = _raised(stop - start if step > 0 else start - stop) or help
            raise Problem("E0304", f"{start}:{stop} runs {way}", item.span, "empty", help=help)
        return start, stop, step

    def _position(self, expr: syntax.Expr, size: Size, frame: Frame, *, inclusive: bool) -> Size:
        return self._within(self.expander.evaluate(expr, frame), expr, size, inclusive=inclusive)

    def _within(self, value: Static, expr: syntax.Expr, size: Size, *, inclusive: bool) -> Size:
        """A position of an axis, from 0; negative ones count from its end. E0304."""
        at = as_size(value, expr)
        if bounds(at)[1] < 0:
            at = at + size
        room = size - at - (0 if inclusive else 1)
        if bounds(at)[0] < 0 or bounds(room)[0] < 0:
            last = f"bounds of a slice from 0 to {size}" if inclusive else f"positions from 0 to {size - 1}"
            help = f"it has {last}; negative numbers count from the end"
            least, most = bounds(at)
            if least != most and isinstance(size, int):
                help = f"it has {last}, and {at} may be {least} to {most}: give the dim smaller bounds, or fix it"
            help = _raised(at if least < 0 else room) or help
            raise Problem("E0304", f"position {at} of an axis of {size}", expr.span, "out of range", help=help)
        return at


def _raised(size: Size) -> str | None:
    """The help for a size that is negative only for the least values of its dim."""
    declared = to_reach(size, 0)
    return None if declared is None else f"raise the lower bound of the dim: `{declared}`"


def _each_axis(expr: syntax.Index, rank: int) -> tuple[syntax.Expr, ...]:
    """The items of an index with a slice in the place of each axis that `...` stands for; E0207 if it stands twice."""
    places = [i for i, item in enumerate(expr.items) if isinstance(item, syntax.Rest)]
    if not places:
        return expr.items
    if len(places) > 1:
        raise Problem("E0207", "`...` may stand once in an index", expr.items[places[1]].span, "again here")
    [at] = places
    whole = syntax.Slice(None, None, None, span=expr.items[at].span)
    return (*expr.items[:at], *[whole] * (rank + 1 - len(expr.items)), *expr.items[at + 1 :])
