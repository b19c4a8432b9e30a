"""nms: the best of boxes that overlap, as torchvision picks them; and suppress, its loop."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import isfinite, prod
from typing import TYPE_CHECKING, Any

from dslc.compiler.ir.function import Call, Function, function
from dslc.compiler.ir.graph import Attrs, Node, Value
from dslc.compiler.ir.op import Builder, Cost, Mismatch, Op, register
from dslc.compiler.ir.types import DType, TensorType
from dslc.compiler.ops.attrs import float_attr
from dslc.compiler.ops.elementwise.arithmetic import Gradients, add, div, mul, require_kind, sub
from dslc.compiler.ops.elementwise.convert import cast
from dslc.compiler.ops.elementwise.logic import logical_not
from dslc.compiler.ops.elementwise.selection import maximum, minimum, where
from dslc.compiler.ops.index.indexing import gather
from dslc.compiler.ops.index.sort import sort, unsort
from dslc.compiler.ops.lazy import np
from dslc.compiler.ops.shape.broadcast import expand
from dslc.compiler.ops.shape.slicing import slice_
from dslc.compiler.ops.shape.views import reshape

if TYPE_CHECKING:
    from dslc.compiler.ir.op import Array


class Suppress(Op):
    """suppress(overlap): which of n elements stay, b1 [*L, n], from overlap [*L, n, n]: the first stays, and each that
    stays removes those after it for which its row is above the attribute ``limit``."""

    name = "suppress"
    wide = "position"

    def infer(self, types: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
        [overlap] = types
        require_kind("suppress", overlap.dtype, "float")
        float_attr(attrs, "limit")
        assert overlap.rank >= 2 and overlap.shape[-1] == overlap.shape[-2]
        return (TensorType(DType.B1, overlap.shape[:-1]),)

    def grad(self, node: Node, dys: Gradients, b: Builder) -> Gradients:
        return (None,)

    def meaning(self, xs: Sequence[Array], attrs: Mapping[str, Any]) -> Sequence[Array]:
        [overlap] = xs
        over = overlap > overlap.dtype.type(attrs["limit"])
        keep = np.ones(over.shape[:-1], bool)
        for i in range(over.shape[-1]):
            keep[..., i + 1 :] &= ~(over[..., i, i + 1 :] & keep[..., i, None])
        return [keep]

    def cost(self, node: Node) -> Cost:
        return Cost(prod(node.input_types[0].ints), node.input_types[0].bytes + node.types[0].bytes)

    def rows(self, node: Node, axes: Sequence[int | None]) -> tuple[int | None, ...] | None:
        [axis] = axes
        return (axis,) if axis is None or axis < node.types[0].rank - 1 else None


suppress = register(Suppress())


class Nms(Function):
    """nms(boxes, scores, iou_threshold=0.5): non-maximum suppression; the kept boxes as indices and as a mask.

    ``boxes`` [N, 4] are x1, y1, x2, y2; ``scores`` [N]. In the order of falling scores, each kept box removes the
    later ones whose intersection with it, divided by their union, is above ``iou_threshold``. Equal scores keep their
    order. With axes before N, each batch of boxes is treated separately.

    Two results of fixed size: i32 [N], the indices of the kept boxes, the best first, then -1; and b1 [N], true for
    the kept boxes, in the order of ``boxes``. Otherwise as ``torchvision.ops.nms``. No gradient
    flows through it.

    given: x: [B, 16, 4], y: [B, 16]
    >>> indices, keep = nms(x, y, iou_threshold=0.7)
    """

    name = "nms"

    def build(self, call: Call, boxes: Value, scores: Value, iou_threshold: float = 0.5) -> tuple[Value, ...]:
        require_kind(self.name, boxes.type.dtype, "float")
        require_kind(self.name, scores.type.dtype, "number")
        shape = scores.type.shape
        if not shape or boxes.type.shape != (*shape, 4):
            why = f"`nms` of the boxes {boxes.type} with the scores {scores.type}"
            raise Mismatch(why, "boxes are [N, 4], scores [N], or both with the same axes before N", "E0302")
        if not isfinite(iou_threshold):
            raise Mismatch(f"`iou_threshold` is {iou_threshold:g}", "a number from 0 to 1, such as 0.5", "E0209")
        last = len(shape) - 1
        order = call.emit_all(sort, scores, axis=last, descending=True)[1]
        each = call.emit(expand, call.emit(reshape, order, shape=(*shape, 1)), shape=(*shape, 4))
        best_first = call.emit(gather, boxes, each, axis=last)
        left = call.emit(suppress, _overlaps(call, best_first), limit=iou_threshold)
        gone = call.emit(cast, call.emit(logical_not, left), dtype=DType.I32)
        places = call.emit_all(sort, gone, axis=last, descending=False)[1]
        index = call.emit(gather, order, places, axis=last)
        index = call.emit(where, call.emit(gather, left, places, axis=last), index, call.full(-1, DType.I32))
        return index, call.emit(unsort, left, order, axis=last)


def _overlaps(call: Call, boxes: Value) -> Value:
    """Intersection over union of each box [*L, N, 4] with each: [*L, N, N]."""
    *lead, count, _ = boxes.type.shape

    def part(index: int) -> Value:
        starts, stops = (*(0 for _ in lead), 0, index), (*lead, count, index + 1)
        return call.emit(slice_, boxes, starts=starts, stops=stops, steps=(1,) * (len(lead) + 2))

    def turned(x: Value) -> Value:
        return call.emit(reshape, x, shape=(*lead, 1, count))

    left, top, right, bottom = map(part, range(4))
    zero = call.full(0.0, boxes.type.dtype)
    sides = []
    for low, high in ((left, right), (top, bottom)):
        inner = call.emit(sub, call.emit(minimum, high, turned(high)), call.emit(maximum, low, turned(low)))
        sides.append(call.emit(maximum, inner, zero))
    shared = call.emit(mul, *sides)
    area = call.emit(mul, call.emit(sub, right, left), call.emit(sub, bottom, top))
    return call.emit(div, shared, call.emit(sub, call.emit(add, area, turned(area)), shared))


function(Nms())
