"""cdist: the distances between the vectors of two sets; pairwise_distance: those between pairs of vectors."""

from __future__ import annotations

import math

from dslc.compiler.ir.function import Axis, Call, Function, function
from dslc.compiler.ir.graph import Value
from dslc.compiler.ir.op import Mismatch
from dslc.compiler.ops.axes import from_zero
from dslc.compiler.ops.elementwise.arithmetic import abs_, add, neg, sub
from dslc.compiler.ops.reduction.distance import norm
from dslc.compiler.ops.reduction.reduce import max_
from dslc.compiler.ops.shape.views import reshape


class Cdist(Function):
    """cdist(x, y, p=2): the distance of each vector of x ``[..., P, M]`` to each of y ``[..., R, M]``: ``[..., P, R]``.

    ``sum(|a - b|^p)^(1/p)``, for ``p`` of at least 1; ``p=inf`` is the greatest difference. Leading axes broadcast. The
    gradient at a distance of 0 is 0, as in PyTorch; for ``p=inf``, equal greatest differences share it evenly. It takes
    differences, not products as ``|a|^2 + |b|^2 - 2*a*b``, which cancel where vectors are near each other; in training
    the differences ``[..., P, R, M]`` take memory.

    given: x: [B, 8], y: [16, 8]
    >>> nearest = argmin(cdist(x, y), axis=1)
    """

    name = "cdist"
    not_finite = frozenset({"p"})

    def build(self, call: Call, x: Value, y: Value, p: float = 2.0) -> Value:
        if min(x.type.rank, y.type.rank) < 2 or x.type.shape[-1] != y.type.shape[-1]:
            why = f"the vectors of {x.type} and {y.type}"
            raise Mismatch(why, "both need two axes at least, and the same size of the last", "E0302")
        size = x.type.shape[-1]
        left = call.emit(reshape, x, shape=(*x.type.shape[:-1], 1, size))
        right = call.emit(reshape, y, shape=(*y.type.shape[:-2], 1, y.type.shape[-2], size))
        apart = call.emit(add, left, call.emit(neg, right))  # not sub: its gradient would negate all differences
        over = (apart.type.rank - 1,)
        if p == math.inf:
            return call.emit(max_, call.emit(abs_, apart), over=over, keep=False)
        return call.emit(norm, apart, p=p, over=over, keep=False)


class PairwiseDistance(Function):
    """pairwise_distance(x, y, p=2, eps=1e-6, axis=-1, keep=false): the distance of each vector of x to that of y.

    ``sum(|x - y + eps|^p)^(1/p)`` along an axis, as in PyTorch. ``cdist`` takes each with each.

    given: x: [B, 8], y: [B, 8]
    >>> loss = mean(pairwise_distance(x, y))
    """

    name = "pairwise_distance"

    def build(
        self, call: Call, x: Value, y: Value, p: float = 2.0, eps: float = 1e-6, axis: Axis = -1, keep: bool = False
    ) -> Value:
        apart = call.emit(sub, x, y)
        apart = call.emit(add, *call.operands(apart, eps)) if eps else apart
        return call.emit(norm, apart, p=p, over=(from_zero(self.name, apart.type, axis),), keep=keep)


for _function in (Cdist, PairwiseDistance):
    function(_function())
