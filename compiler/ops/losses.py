"""Losses and metrics of the language: cross_entropy, nll, accuracy, bce_with_logits, mse, l1, huber, kl_div.

Each ends in ``mean`` or ``sum`` of the family of reductions, so that evaluation can add up over batches.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from dslc.compiler.ir import scalar as tree
from dslc.compiler.ir.function import Axis, Call, Function, Operand, function
from dslc.compiler.ir.graph import Attrs, Node, Value
from dslc.compiler.ir.op import OPS, Builder, Mismatch, register
from dslc.compiler.ir.scalar import Expr
from dslc.compiler.ops.activation import sigmoid
from dslc.compiler.ops.axes import from_zero
from dslc.compiler.ops.convert import cast
from dslc.compiler.ops.cross_entropy import in_top_k, nll, softmax_cross_entropy
from dslc.compiler.ops.elementwise import Elementwise, Gradients, abs_, div, mul, neg, only, sub
from dslc.compiler.ops.lazy import np
from dslc.compiler.ops.logic import gt, le, logical_and, ne, where
from dslc.compiler.ops.transcendental import log

if TYPE_CHECKING:
    from dslc.compiler.ir.op import Array


class BceWithLogits(Elementwise):
    """bce_with_logits(x, t): the binary cross entropy of logits x and targets t in 0..1, element by element.

    ``max(x, 0) - x*t + log(1 + exp(-|x|))``, which neither overflows nor cancels.
    """

    name = "bce_with_logits"
    arity = 2
    accepts = "float"
    needs = (frozenset({"x0", "x1"}),)

    def scalar(self, attrs: Attrs, *xs: Expr) -> Expr:
        x, t = xs
        return tree.call("max", x, 0.0) - x * t + tree.call("log1p", tree.call("exp", -tree.call("abs", x)))

    def compute(self, attrs: Mapping[str, Any], *xs: Array) -> Array:
        x, t = xs
        result: Array = np.maximum(x, 0) - x * t + np.log1p(np.exp(-np.abs(x)))
        return result

    def grad(self, node: Node, dys: Gradients, b: Builder) -> Gradients:
        x, t = node.inputs
        dy = only(dys)
        return b(mul, dy, b(sub, b(sigmoid, x), t)), b(neg, b(mul, dy, x))


bce_with_logits = register(BceWithLogits())


def _reduced(call: Call, losses: Value, reduce: str) -> Value:
    if reduce == "none":
        return losses
    if reduce not in ("mean", "sum"):
        raise Mismatch(f'`reduce` is "{reduce}"', 'one of "mean", "sum", "none"', "E0209")
    return call.emit(OPS[reduce], losses, over=tuple(range(losses.type.rank)), keep=False)


def _over_counted(call: Call, values: Value, target: Value, ignore_index: int | None, reduce: str) -> Value:
    """As ``_reduced``; the mean runs over the targets that are not ignored, and ignored values must be 0."""
    if ignore_index is None or reduce != "mean":
        return _reduced(call, values, reduce)
    counts = call.emit(cast, _counted(call, target, ignore_index), dtype=values.type.dtype)
    return call.emit(div, _reduced(call, values, "sum"), _reduced(call, counts, "sum"))


def _counted(call: Call, target: Value, ignore_index: int) -> Value:
    return call.emit(ne, target, call.full(ignore_index, target.type.dtype))


def _class_attrs(name: str, x: Value, axis: int, ignore_index: int | None) -> dict[str, Any]:
    attrs: dict[str, Any] = {"axis": from_zero(name, x.type, axis)}
    return attrs if ignore_index is None else attrs | {"ignore_index": ignore_index}


class CrossEntropy(Function):
    """cross_entropy(logits, target, axis=-1, smoothing=0, ignore_index=none, reduce="mean"): loss of a classifier.

    ``-log(softmax(logits)[target])`` with the classes of ``logits`` along ``axis`` (1 for images [B, C, H, W]) and an
    integer target without that axis. With ``smoothing`` s the target has probability 1 - s and s is shared by all
    classes. Targets equal to ``ignore_index`` give 0 and do not count in the mean. ``reduce``: "mean", "sum", "none".

    given: logits: [B, 10], target: i32[B]
    >>> loss = cross_entropy(logits, target)
    """

    name = "cross_entropy"

    def build(
        self,
        call: Call,
        logits: Value,
        target: Value,
        axis: Axis = -1,
        smoothing: float = 0.0,
        ignore_index: int | None = None,
        reduce: str = "mean",
    ) -> Value:
        attrs = _class_attrs("cross_entropy", logits, axis, ignore_index)
        loss = call.emit_all(softmax_cross_entropy, logits, target, smoothing=float(smoothing), **attrs)[0]
        return _over_counted(call, loss, target, ignore_index, reduce)


class NllFunction(Function):
    """nll(log_probs, target, axis=-1, ignore_index=none, reduce="mean"): ``-log_probs[target]``.

    For logits use ``cross_entropy``, which takes the softmax too. Arguments as there.

    given: x: [B, 10], target: i32[B]
    >>> loss = nll(log_softmax(x), target)
    """

    name = "nll"

    def build(
        self,
        call: Call,
        log_probs: Value,
        target: Value,
        axis: Axis = -1,
        ignore_index: int | None = None,
        reduce: str = "mean",
    ) -> Value:
        loss = call.emit(nll, log_probs, target, **_class_attrs("nll", log_probs, axis, ignore_index))
        return _over_counted(call, loss, target, ignore_index, reduce)


class Accuracy(Function):
    """accuracy(logits, target, axis=-1, top=1, ignore_index=none): the share of targets among the ``top`` best classes.

    Of equal logits the lower class is the better, as argmax says. Targets equal to ``ignore_index`` do not count.

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


def _pair(call: Call, name: str, x: Operand, t: Operand) -> tuple[Value, Value]:
    """Two tensors of one shape, or a tensor and a number: losses do not broadcast, which would hide mistakes."""
    a, b = call.operands(x, t)
    if isinstance(x, Value) and isinstance(t, Value) and a.type.shape != b.type.shape:
        raise Mismatch(f"`{name}` of {a.type} and {b.type}", "`reshape` one to the shape of the other", "E0302")
    return a, b


class BceWithLogitsFunction(Function):
    """bce_with_logits(x, t, reduce="mean"): binary cross entropy of logits x and targets t in 0..1 of the same shape.

    ``reduce``: "mean", "sum" over all elements, or "none".

    given: x: [B, 8], t: [B, 8]
    >>> loss = sum(bce_with_logits(x, t, reduce="none"), over=1)
    """

    name = "bce_with_logits"

    def build(self, call: Call, x: Operand, t: Operand, reduce: str = "mean") -> Value:
        return _reduced(call, call.emit(bce_with_logits, *_pair(call, self.name, x, t)), reduce)


class Mse(Function):
    """mse(x, t, reduce="mean"): the squared difference.

    given: x: [B, 8], t: [B, 8]
    >>> loss = mse(x, t)
    """

    name = "mse"

    def build(self, call: Call, x: Operand, t: Operand, reduce: str = "mean") -> Value:
        error = call.emit(sub, *_pair(call, self.name, x, t))
        return _reduced(call, call.emit(mul, error, error), reduce)


class L1(Function):
    """l1(x, t, reduce="mean"): the absolute difference.

    given: x: [B, 8], t: [B, 8]
    >>> loss = l1(x, t)
    """

    name = "l1"

    def build(self, call: Call, x: Operand, t: Operand, reduce: str = "mean") -> Value:
        return _reduced(call, call.emit(abs_, call.emit(sub, *_pair(call, self.name, x, t))), reduce)


class Huber(Function):
    """huber(x, t, delta=1, reduce="mean"): ``e^2 / 2`` where ``|e| <= delta``, else ``delta * (|e| - delta/2)``.

    e is ``x - t`` (Huber 1964; PyTorch's ``huber_loss``).

    given: x: [B, 8], t: [B, 8]
    >>> loss = huber(x, t, delta=0.5)
    """

    name = "huber"

    def build(self, call: Call, x: Operand, t: Operand, delta: float = 1.0, reduce: str = "mean") -> Value:
        if not 0 < delta < float("inf"):
            raise Mismatch(f"`delta` of `huber` is {delta:g}", "a number above 0", "E0209")
        error = call.emit(sub, *_pair(call, self.name, x, t))
        size = call.emit(abs_, error)
        bound, half = call.operands(error, delta)[1], call.operands(error, 0.5)[1]
        square = call.emit(mul, call.emit(mul, error, error), half)
        straight = call.emit(mul, bound, call.emit(sub, size, call.operands(error, delta / 2)[1]))
        return _reduced(call, call.emit(where, call.emit(le, size, bound), square, straight), reduce)


class KlDiv(Function):
    """kl_div(log_q, p, reduce="mean"): ``p * (log(p) - log_q)``, 0 where p is 0, as PyTorch's ``kl_div``.

    ``log_q`` are log-probabilities, ``p`` probabilities; the mean is over all elements.

    given: x: [B, 8], p: [B, 8]
    >>> loss = kl_div(log_softmax(x), p, reduce="sum")
    """

    name = "kl_div"

    def build(self, call: Call, log_q: Operand, p: Operand, reduce: str = "mean") -> Value:
        q, p = _pair(call, self.name, log_q, p)
        zero, one = call.operands(p, 0.0)[1], call.operands(p, 1.0)[1]
        positive = call.emit(gt, p, zero)
        safe = call.emit(where, positive, p, one)
        loss = call.emit(mul, p, call.emit(sub, call.emit(log, safe), q))
        return _reduced(call, call.emit(where, positive, loss, zero), reduce)


for _function in (
    CrossEntropy(), NllFunction(), Accuracy(), BceWithLogitsFunction(), Mse(), L1(), Huber(), KlDiv()
):  # fmt: skip
    function(_function)
