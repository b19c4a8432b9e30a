"""Losses of scores with margins between classes: soft_margin, multi_margin, multilabel_margin, multilabel_soft_margin.

Each ends in the op ``mean`` or ``sum``, so that evaluation can combine batches.
"""

from __future__ import annotations

from dslc.compiler.ir.function import LOGITS, Call, Floats, Function, function
from dslc.compiler.ir.graph import Value
from dslc.compiler.ir.op import Mismatch
from dslc.compiler.ops.elementwise.activation import relu, softplus
from dslc.compiler.ops.elementwise.arithmetic import add, mul, neg, sub
from dslc.compiler.ops.elementwise.powers import Power
from dslc.compiler.ops.index.embedding import gather_rows, one_hot
from dslc.compiler.ops.loss.class_losses import class_table
from dslc.compiler.ops.loss.losses import bce_with_logits, pair, reduced
from dslc.compiler.ops.loss.margins import signs
from dslc.compiler.ops.loss.nll import nll
from dslc.compiler.ops.reduction.reduce import mean, sum_
from dslc.compiler.ops.shape.views import reshape


def _classes(name: str, x: Value) -> int:
    """The size of the last axis, which must be fixed. Raises Mismatch."""
    count = x.type.shape[-1] if x.type.rank else 0
    if not isinstance(count, int) or count < 1:
        raise Mismatch(f"`{name}` of {x.type}", "the last axis has a fixed number of classes", "E0302")
    return count


class SoftMargin(Function):
    """soft_margin(x, t, reduce="mean"): ``log(1 + exp(-t * x))`` of scores x and targets t, 1 or -1.

    given: x: [B, 8], t: i32[B, 8]
    >>> loss = soft_margin(x, t)
    """

    name = "soft_margin"

    def build(self, call: Call, x: Value, t: Value, reduce: str = "mean") -> Value:
        agreed = call.emit(mul, signs(call, self.name, x, t), x)
        return reduced(call, call.emit(softplus, call.emit(neg, agreed)), reduce)


class MultiMargin(Function):
    """multi_margin(x, target, p=1, margin=1, weight=none, reduce="mean"): a multi-class
    hinge loss.

    For each row of scores x, with classes along the last axis: the sum over the other classes c of
    ``max(0, margin - x[target] + x[c])^p``, divided by the number of classes (Crammer and Singer 2001; PyTorch's).
    ``p`` is 1 or 2. ``weight``, a list, holds a factor for the rows of each class.

    given: x: [B, 10], target: i32[B]
    >>> loss = multi_margin(x, target)
    """

    name = "multi_margin"

    def build(
        self,
        call: Call,
        x: Value,
        target: Value,
        p: int = 1,
        margin: float = 1.0,
        weight: Floats | None = None,
        reduce: str = "mean",
    ) -> Value:
        if p not in (1, 2):
            raise Mismatch(f"`p` of `multi_margin` is {p}", "1 or 2", "E0209")
        count, axis = _classes(self.name, x), x.type.rank - 1
        own = call.emit(nll, x, target, axis=axis)  # minus the target's score
        apart = call.emit(add, x, call.emit(reshape, own, shape=(*own.type.shape, 1)))
        above = Power().build(call, call.emit(relu, call.emit(add, *call.operands(apart, margin))), p)
        others = call.emit(sub, *call.operands(1.0, call.emit(one_hot, target, count=count, dtype=x.type.dtype)))
        each = call.emit(mean, call.emit(mul, above, others), over=(axis,), keep=False)
        if weight is not None:
            table = class_table(call, self.name, x, axis, weight)
            each = call.emit(mul, each, call.emit(gather_rows, table, target))
        return reduced(call, each, reduce)


class MultilabelMargin(Function):
    """multilabel_margin(x, t, reduce="mean"): a hinge loss between the classes of a row and all other classes.

    x are scores with classes along the last axis; t, of the same shape, is 1 for the classes of a row, else 0. A row's
    loss is the sum of ``max(0, 1 - x[i] + x[j])`` over classes i with t = 1 and j with t = 0, divided by the number of
    classes (PyTorch's, where targets are lists of classes). It takes the differences ``[..., C, C]``.

    given: x: [B, 8], t: [B, 8]
    >>> loss = multilabel_margin(x, t)
    """

    name = "multilabel_margin"

    def build(self, call: Call, x: Value, t: Value, reduce: str = "mean") -> Value:
        x, t = pair(call, self.name, x, t)
        count, axis, lead = _classes(self.name, x), x.type.rank - 1, x.type.shape[:-1]

        def along(v: Value, own: bool) -> Value:
            return call.emit(reshape, v, shape=(*lead, count, 1) if own else (*lead, 1, count))

        lag = call.emit(sub, along(x, False), along(x, True))
        above = call.emit(relu, call.emit(add, *call.operands(lag, 1.0)))
        other = call.emit(sub, *call.operands(1.0, t))
        both = call.emit(mul, call.emit(mul, above, along(t, True)), along(other, False))
        each = call.emit(sum_, both, over=(axis, axis + 1), keep=False)
        return reduced(call, call.emit(mul, *call.operands(each, 1 / count)), reduce)


class MultilabelSoftMargin(Function):
    """multilabel_soft_margin(x, t, weight=none, reduce="mean"): for each row the mean over classes of bce_with_logits.

    x are logits with classes along the last axis, t targets in 0..1. ``weight``, a list, holds a factor for each class.

    given: x: [B, 8], t: [B, 8]
    >>> loss = multilabel_soft_margin(x, t)
    """

    name = "multilabel_soft_margin"
    takes = {"x": LOGITS}

    def build(self, call: Call, x: Value, t: Value, weight: Floats | None = None, reduce: str = "mean") -> Value:
        x, t = pair(call, self.name, x, t)
        axis = x.type.rank - 1
        _classes(self.name, x)
        loss = call.emit(bce_with_logits, x, t)
        if weight is not None:
            loss = call.emit(mul, loss, class_table(call, self.name, x, axis, weight))
        return reduced(call, call.emit(mean, loss, over=(axis,), keep=False), reduce)


for _function in (SoftMargin, MultiMargin, MultilabelMargin, MultilabelSoftMargin):
    function(_function())
