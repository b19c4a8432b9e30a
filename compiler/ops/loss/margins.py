"""Losses with a margin: hinge, hinge_embedding, margin_ranking, triplet_margin, cosine_embedding.

Each ends in the op ``mean`` or ``sum``, so that evaluation can combine batches.
"""

from __future__ import annotations

from dslc.compiler.ir.function import Axis, Call, Function, Operand, function
from dslc.compiler.ir.graph import Value
from dslc.compiler.ir.op import Mismatch
from dslc.compiler.ops.axes import from_zero
from dslc.compiler.ops.elementwise.activation import relu
from dslc.compiler.ops.elementwise.arithmetic import add, mul, sub
from dslc.compiler.ops.elementwise.convert import cast
from dslc.compiler.ops.elementwise.logic import gt
from dslc.compiler.ops.elementwise.selection import where
from dslc.compiler.ops.loss.losses import pair, reduced
from dslc.compiler.ops.reduction.distance import CosineSimilarity, norm


def signs(call: Call, name: str, x: Value, t: Value) -> Value:
    """The targets -1 and 1 as floats; of the shape of ``x``. Raises Mismatch."""
    if t.type.shape != x.type.shape:
        raise Mismatch(f"`{name}` of {x.type} with targets {t.type}", "one target, 1 or -1, for each", "E0302")
    return t if t.type.dtype.is_float else call.emit(cast, t, dtype=x.type.dtype)


def _beyond(call: Call, x: Value, margin: float) -> Value:
    """max(0, x + margin)."""
    return call.emit(relu, call.emit(add, *call.operands(x, margin)) if margin else x)


class Hinge(Function):
    """hinge(x, t, margin=1, reduce="mean"): ``max(0, margin - t * x)`` of scores x and targets t, 1 or -1.

    The gradient is 0 where ``t * x`` is the margin itself.

    given: x: [B, 8], t: i32[B, 8]
    >>> loss = hinge(x, t)
    """

    name = "hinge"

    def build(self, call: Call, x: Value, t: Value, margin: float = 1.0, reduce: str = "mean") -> Value:
        agreed = call.emit(mul, signs(call, self.name, x, t), x)
        return reduced(call, call.emit(relu, call.emit(sub, *call.operands(margin, agreed))), reduce)


class HingeEmbedding(Function):
    """hinge_embedding(x, t, margin=1, reduce="mean"): distances x where t is 1, ``max(0, margin - x)`` where it is -1.

    The gradient is 0 where x is the margin itself and t is -1.

    given: x: [B], t: i32[B]
    >>> loss = hinge_embedding(x, t)
    """

    name = "hinge_embedding"

    def build(self, call: Call, x: Value, t: Value, margin: float = 1.0, reduce: str = "mean") -> Value:
        near = call.emit(gt, *call.operands(signs(call, self.name, x, t), 0.0))
        apart = call.emit(relu, call.emit(sub, *call.operands(margin, x)))
        return reduced(call, call.emit(where, near, x, apart), reduce)


class MarginRanking(Function):
    """margin_ranking(x, y, t, margin=0, reduce="mean"): ``max(0, margin - t * (x - y))``.

    t is 1 where x should be greater than y, and -1 where y should be greater than x. The gradient is 0 where
    ``t * (x - y)`` is the margin itself.

    given: x: [B], y: [B], t: i32[B]
    >>> loss = margin_ranking(x, y, t, margin=0.1)
    """

    name = "margin_ranking"

    def build(self, call: Call, x: Operand, y: Operand, t: Value, margin: float = 0.0, reduce: str = "mean") -> Value:
        first, second = pair(call, self.name, x, y)
        lag = call.emit(sub, second, first)
        return reduced(call, _beyond(call, call.emit(mul, signs(call, self.name, lag, t), lag), margin), reduce)


class TripletMargin(Function):
    """triplet_margin(anchor, positive, negative, margin=1, p=2, eps=1e-6, axis=-1, reduce="mean"): the anchor
    should be nearer to the positive than to the negative by the margin.

    ``max(0, d(anchor, positive) - d(anchor, negative) + margin)`` with d the p-norm of the difference, to which
    ``eps`` is added, along an axis (Schroff et al. 2015; PyTorch's).

    given: x: [B, 8], y: [B, 8], z: [B, 8]
    >>> loss = triplet_margin(x, y, z)
    """

    name = "triplet_margin"

    def build(
        self,
        call: Call,
        anchor: Value,
        positive: Value,
        negative: Value,
        margin: float = 1.0,
        p: float = 2.0,
        eps: float = 1e-6,
        axis: Axis = -1,
        reduce: str = "mean",
    ) -> Value:
        at = from_zero(self.name, anchor.type, axis)
        near, far = (
            call.emit(norm, call.emit(add, *call.operands(apart, eps)), over=(at,), keep=False, p=p)
            for apart in (call.emit(sub, *pair(call, self.name, anchor, other)) for other in (positive, negative))
        )
        return reduced(call, _beyond(call, call.emit(sub, near, far), margin), reduce)


class CosineEmbedding(Function):
    """cosine_embedding(x, y, t, margin=0, axis=-1, reduce="mean"): ``1 - cos`` where t is 1, ``max(0, cos - margin)``
    where t is -1.

    cos is the cosine of the angle between x and y along an axis.

    given: x: [B, 8], y: [B, 8], t: i32[B]
    >>> loss = cosine_embedding(x, y, t)
    """

    name = "cosine_embedding"

    def build(
        self, call: Call, x: Value, y: Value, t: Value, margin: float = 0.0, axis: Axis = -1, reduce: str = "mean"
    ) -> Value:
        cosine = CosineSimilarity().build(call, *pair(call, self.name, x, y), axis=axis)
        near = call.emit(gt, *call.operands(signs(call, self.name, cosine, t), 0.0))
        apart = call.emit(sub, *call.operands(1.0, cosine))
        return reduced(call, call.emit(where, near, apart, _beyond(call, cosine, -margin)), reduce)


for _function in (Hinge, HingeEmbedding, MarginRanking, TripletMargin, CosineEmbedding):
    function(_function())
