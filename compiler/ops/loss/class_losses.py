"""Losses and metrics over classes: cross_entropy, nll, accuracy.

Each ends in the op ``mean`` or ``sum``, so that evaluation can combine batches.
"""

from __future__ import annotations

from typing import Any

from dslc.base.words import of_percentage
from dslc.compiler.ir.function import LOG_PROBS, LOGITS, Axis, Call, Floats, Function, function
from dslc.compiler.ir.graph import Value
from dslc.compiler.ir.op import Mismatch
from dslc.compiler.ops.axes import from_zero
from dslc.compiler.ops.constants.constant import full
from dslc.compiler.ops.constants.literal import of_numbers
from dslc.compiler.ops.elementwise.arithmetic import add, div, mul, neg
from dslc.compiler.ops.elementwise.convert import cast
from dslc.compiler.ops.elementwise.logic import logical_and, ne
from dslc.compiler.ops.elementwise.selection import where
from dslc.compiler.ops.index.embedding import gather_rows
from dslc.compiler.ops.loss.cross_entropy import softmax_cross_entropy
from dslc.compiler.ops.loss.losses import pair, reduced
from dslc.compiler.ops.loss.nll import in_top_k, nll
from dslc.compiler.ops.reduction.reduce import sum_
from dslc.compiler.ops.reduction.softmax import log_softmax
from dslc.compiler.ops.shape.views import reshape


def _over_counted(
    call: Call, values: Value, target: Value, ignore_index: int | None, reduce: str, weights: Value | None = None
) -> Value:
    """Like ``reduced``, but the mean excludes ignored targets, whose values must be 0. With ``weights``,
    one per target and 0 for ignored ones, it is the sum divided by the sum of weights."""
    if reduce != "mean" or (ignore_index is None and weights is None):
        return reduced(call, values, reduce)
    if weights is None:
        assert ignore_index is not None
        weights = call.emit(cast, _counted(call, target, ignore_index), dtype=values.type.dtype)
    return call.emit(div, reduced(call, values, "sum"), reduced(call, weights, "sum"))


def _class_weights(
    call: Call, name: str, x: Value, target: Value, axis: int, ignore_index: int | None, weight: Floats
) -> tuple[Value, Value]:
    """The weights [classes] as a tensor, and the weight of each target, 0 if it is ignored. Raises Mismatch."""
    table = class_table(call, name, x, axis, weight)
    if ignore_index is None:
        return table, call.emit(gather_rows, table, target)
    counted = _counted(call, target, ignore_index)
    safe = call.emit(where, counted, target, call.full(0, target.type.dtype))
    found = call.emit(gather_rows, table, safe)
    return table, call.emit(where, counted, found, call.full(0.0, found.type.dtype))


def _along(call: Call, table: Value, x: Value, axis: int) -> Value:
    """The weights of classes, to be multiplied with x."""
    return call.emit(reshape, table, shape=(*table.type.shape, *(1,) * (x.type.rank - 1 - axis)))


def _check_smoothing(smoothing: float) -> None:
    if not 0 <= smoothing <= 1:
        help = of_percentage(smoothing) or "between 0 and 1, such as 0.1"
        raise Mismatch(f"`smoothing` is {smoothing:g}", help, "E0209")


def class_table(call: Call, name: str, x: Value, axis: int, weight: Floats) -> Value:
    """The weights of classes as a tensor [classes]. Raises Mismatch."""
    classes = x.type.shape[axis]
    if len(weight) != classes:
        why = f"`weight` of `{name}` has {len(weight)} numbers, there are {classes} classes"
        raise Mismatch(why, "one number for each class", "E0302")
    if not all(0 <= w < float("inf") for w in weight):
        raise Mismatch(f"`weight` of `{name}` holds {min(weight):g}", "finite numbers, at least 0", "E0209")
    return of_numbers(call, weight, (len(weight),))


def _counted(call: Call, target: Value, ignore_index: int) -> Value:
    return call.emit(ne, target, call.full(ignore_index, target.type.dtype))


def _class_attrs(name: str, x: Value, axis: int, ignore_index: int | None) -> dict[str, Any]:
    attrs: dict[str, Any] = {"axis": from_zero(name, x.type, axis)}
    return attrs if ignore_index is None else attrs | {"ignore_index": ignore_index}


class CrossEntropy(Function):
    """cross_entropy(logits, target, axis=-1, smoothing=0, ignore_index=none, weight=none, reduce="mean"): minus the
    logarithm of the probability of the target class.

    ``-log(softmax(logits)[target])`` with the classes of ``logits`` along ``axis`` (1 for images [B, C, H, W]) and an
    integer target without that axis, or a probability for each class, shaped as ``logits``. With ``smoothing`` s the
    target has probability 1 - s, and s is shared by all classes. Targets equal to ``ignore_index`` give 0 and do not
    count in the mean. ``weight``, a list, holds a factor for each class; the mean over integer targets is a weighted
    one, divided by the sum of their factors, as in PyTorch. ``reduce``: "mean", "sum", "none".

    given: logits: [B, 10], target: i32[B]
    >>> loss = cross_entropy(logits, target)
    """

    name = "cross_entropy"
    takes = {"logits": LOGITS}

    def build(
        self,
        call: Call,
        logits: Value,
        target: Value,
        axis: Axis = -1,
        smoothing: float = 0.0,
        ignore_index: int | None = None,
        weight: Floats | None = None,
        reduce: str = "mean",
    ) -> Value:
        attrs = _class_attrs("cross_entropy", logits, axis, ignore_index)
        at = attrs["axis"]
        if target.type.dtype.is_float and target.type.rank == logits.type.rank:
            return self._of_shares(call, logits, target, at, smoothing, ignore_index, weight, reduce)
        # with weights the smoothing is computed here, because its classes have weights, too
        inside = float(smoothing) if weight is None else 0.0
        _check_smoothing(smoothing)
        loss = call.emit_all(softmax_cross_entropy, logits, target, smoothing=inside, **attrs)[0]
        if weight is None:
            return _over_counted(call, loss, target, ignore_index, reduce)
        table, each = _class_weights(call, self.name, logits, target, at, ignore_index, weight)
        loss = call.emit(mul, loss, each)
        if smoothing:
            spread = call.emit(mul, call.emit(log_softmax, logits, axis=at), _along(call, table, logits, at))
            even = call.emit(mul, call.emit(sum_, spread, over=(at,), keep=False), call.full(-smoothing / len(weight)))
            if ignore_index is not None:
                even = call.emit(where, _counted(call, target, ignore_index), even, call.full(0.0, even.type.dtype))
            loss = call.emit(add, call.emit(mul, loss, call.full(1 - smoothing)), even)
        return _over_counted(call, loss, target, ignore_index, reduce, each)

    def _of_shares(
        self,
        call: Call,
        logits: Value,
        target: Value,
        axis: int,
        smoothing: float,
        ignore_index: int | None,
        weight: Floats | None,
        reduce: str,
    ) -> Value:
        """Of a target that holds a probability for each class."""
        logits, target = pair(call, self.name, logits, target)
        if ignore_index is not None:
            raise Mismatch("`ignore_index` needs class numbers, not probabilities", "leave it out", "E0209")
        _check_smoothing(smoothing)
        classes = logits.type.shape[axis]
        if smoothing:
            count = call.emit(full, value=classes, dtype=target.type.dtype, shape=())
            even = call.emit(div, *call.operands(smoothing, count))
            target = call.emit(add, call.emit(mul, target, call.full(1 - smoothing)), even)
        if weight is not None:
            table = class_table(call, self.name, logits, axis, weight)
            target = call.emit(mul, target, _along(call, table, logits, axis))
        each = call.emit(mul, target, call.emit(log_softmax, logits, axis=axis))
        return reduced(call, call.emit(neg, call.emit(sum_, each, over=(axis,), keep=False)), reduce)


class NllFunction(Function):
    """nll(log_probs, target, axis=-1, ignore_index=none, weight=none, reduce="mean"): ``-log_probs[target]``.

    For logits use ``cross_entropy``, which includes the softmax. Arguments as there.

    given: x: [B, 10], target: i32[B]
    >>> loss = nll(log_softmax(x), target)
    """

    name = "nll"
    takes = {"log_probs": LOG_PROBS}

    def build(
        self,
        call: Call,
        log_probs: Value,
        target: Value,
        axis: Axis = -1,
        ignore_index: int | None = None,
        weight: Floats | None = None,
        reduce: str = "mean",
    ) -> Value:
        attrs = _class_attrs("nll", log_probs, axis, ignore_index)
        loss = call.emit(nll, log_probs, target, **attrs)
        if weight is None:
            return _over_counted(call, loss, target, ignore_index, reduce)
        each = _class_weights(call, self.name, log_probs, target, attrs["axis"], ignore_index, weight)[1]
        return _over_counted(call, call.emit(mul, loss, each), target, ignore_index, reduce, each)


class Accuracy(Function):
    """accuracy(logits, target, axis=-1, top=1, ignore_index=none): the share of targets among the ``top`` best classes.

    Among equal logits the lower class ranks higher, as in argmax. Targets equal to ``ignore_index`` do not count.

    given: logits: [B, 10], target: i32[B]
    >>> top5 = accuracy(logits, target, top=5)
    """

    name = "accuracy"

    def build(
        self,
        call: Call,
        logits: Value,
        target: Value,
        axis: Axis = -1,
        top: int = 1,
        ignore_index: int | None = None,
    ) -> Value:
        right = call.emit(in_top_k, logits, target, axis=from_zero("accuracy", logits.type, axis), top=top)
        if ignore_index is not None:
            right = call.emit(logical_and, right, _counted(call, target, ignore_index))
        values = call.emit(cast, right, dtype=logits.type.dtype)
        return _over_counted(call, values, target, ignore_index, "mean")


for _function in (CrossEntropy, NllFunction, Accuracy):
    function(_function())
