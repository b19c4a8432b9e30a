"""Losses that compare two tensors: bce_with_logits, bce, mse, l1, huber, kl_div.

Each ends in the op ``mean`` or ``sum``, so that evaluation can combine batches.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from dslc.compiler.ir import scalar as tree
from dslc.compiler.ir.function import LOG_PROBS, LOGITS, PROBS, Call, Floats, Function, Operand, function
from dslc.compiler.ir.graph import Attrs, Node, Value
from dslc.compiler.ir.op import OPS, Builder, Mismatch, register
from dslc.compiler.ir.scalar import Expr
from dslc.compiler.ops.constants.literal import of_numbers
from dslc.compiler.ops.elementwise.activation import sigmoid, softplus
from dslc.compiler.ops.elementwise.arithmetic import Elementwise, Gradients, abs_, add, mul, neg, only, sub
from dslc.compiler.ops.elementwise.logic import eq, gt, le, ne
from dslc.compiler.ops.elementwise.selection import maximum, where
from dslc.compiler.ops.elementwise.transcendental import log
from dslc.compiler.ops.lazy import np

if TYPE_CHECKING:
    from dslc.compiler.ir.op import Array


class BceWithLogits(Elementwise):
    """bce_with_logits(x, t): the binary cross entropy of logits x and targets t in 0..1, element by element.

    ``|x| * w + log(1 + exp(-|x|))`` with w the target's share of the other sign, ``1 - t`` for x above 0, else t; this
    neither overflows nor cancels. An infinite logit of the correct sign gives 0, any other infinity.
    """

    name = "bce_with_logits"
    wide = "exponent"
    arity = 2
    accepts = "float"
    needs = (frozenset({"x0", "x1"}),)

    def scalar(self, attrs: Attrs, *xs: Expr) -> Expr:
        x, t = xs
        size, wrong = tree.call("abs", x), tree.select(x > 0, 1 - t, t)
        straight = tree.select(tree.call("eq", wrong, 0.0), 0.0, size * wrong)  # avoids inf * 0
        return straight + tree.call("log1p", tree.call("exp", -size))

    def compute(self, attrs: Mapping[str, Any], *xs: Array) -> Array:
        x, t = xs
        size, wrong = np.abs(x), np.where(x > 0, 1 - t, t)
        result: Array = np.where(wrong == 0, x.dtype.type(0), size * wrong) + np.log1p(np.exp(-size))
        return result

    def grad(self, node: Node, dys: Gradients, b: Builder) -> Gradients:
        x, t = node.inputs
        dy = only(dys)
        return b(mul, dy, b(sub, b(sigmoid, x), t)), b(neg, b(mul, dy, x))


bce_with_logits = register(BceWithLogits())


def reduced(call: Call, losses: Value, reduce: str) -> Value:
    if reduce == "none":
        return losses
    if reduce not in ("mean", "sum"):
        rows = ' of `reduce="none"`: `sum(..., over=1)`, whose mean over the rows is the loss'
        help = f"sum each row{rows}" if reduce == "batchmean" else 'one of "mean", "sum", "none"'
        raise Mismatch(f'`reduce` is "{reduce}"', help, "E0209")
    return call.emit(OPS[reduce], losses, over=tuple(range(losses.type.rank)), keep=False)


def pair(call: Call, name: str, x: Operand, t: Operand) -> tuple[Value, Value]:
    """Two tensors of one shape, or a tensor and a number: losses do not broadcast, because that would hide mistakes."""
    a, b = call.operands(x, t)
    if isinstance(x, Value) and isinstance(t, Value) and a.type.shape != b.type.shape:
        raise Mismatch(f"`{name}` of {a.type} and {b.type}", "`reshape` one to the shape of the other", "E0302")
    return a, b


class BceWithLogitsFunction(Function):
    """bce_with_logits(x, t, pos_weight=none, reduce="mean"): binary cross entropy of logits x and targets t in 0..1.

    x and t have the same shape. ``pos_weight``, a number or one for each index of the last axis, multiplies the loss
    of t = 1: above 1, fewer ones are missed. ``reduce``: "mean", "sum" over all elements, or "none".

    given: x: [B, 8], t: [B, 8]
    >>> loss = sum(bce_with_logits(x, t, reduce="none"), over=1)
    """

    name = "bce_with_logits"
    takes = {"x": LOGITS, "t": PROBS}

    def build(
        self, call: Call, x: Operand, t: Operand, pos_weight: Floats | None = None, reduce: str = "mean"
    ) -> Value:
        x, t = pair(call, self.name, x, t)
        if pos_weight is None:
            return reduced(call, call.emit(bce_with_logits, x, t), reduce)
        # t * w * softplus(-x) + (1 - t) * softplus(x), each 0 where its factor is: neither cancels nor is inf * 0
        weight = self._weight(call, x, pos_weight)
        zero, one = call.operands(t, 0.0)[1], call.operands(t, 1.0)[1]
        other = call.emit(sub, one, t)
        missed = call.emit(mul, call.emit(mul, t, weight), call.emit(softplus, call.emit(neg, x)))
        false = call.emit(mul, other, call.emit(softplus, x))
        parts = (call.emit(where, call.emit(eq, of, zero), zero, part) for of, part in ((t, missed), (other, false)))
        return reduced(call, call.emit(add, *parts), reduce)

    def _weight(self, call: Call, x: Value, numbers: Floats) -> Value:
        if not all(0 <= w < float("inf") for w in numbers):
            raise Mismatch(f"`pos_weight` of `{self.name}` holds {min(numbers):g}", "finite, at least 0", "E0209")
        if len(numbers) == 1:
            return call.operands(x, numbers[0])[1]
        if not x.type.rank or x.type.shape[-1] != len(numbers):
            why = f"`pos_weight` of `{self.name}` has {len(numbers)} numbers, the logits are {x.type}"
            raise Mismatch(why, "one number, or one for each index of the last axis", "E0302")
        return of_numbers(call, numbers, (len(numbers),), x.type.dtype)


class Bce(Function):
    """bce(p, t, reduce="mean"): binary cross entropy of probabilities p, ``-(t * log(p) + (1 - t) * log(1 - p))``.

    Each logarithm is at least -100, as in PyTorch; where p is 0 or 1 it has no gradient. After a
    ``sigmoid``, ``1 - p`` cancels: use ``bce_with_logits``.

    given: p: [B, 8], t: [B, 8]
    >>> loss = bce(clip(p, 0, 1), t)
    """

    name = "bce"
    takes = {"p": PROBS, "t": PROBS}

    def build(self, call: Call, p: Operand, t: Operand, reduce: str = "mean") -> Value:
        p, t = pair(call, self.name, p, t)
        one = call.operands(p, 1.0)[1]
        parts = (
            call.emit(mul, share, self._log(call, of, one))
            for share, of in ((t, p), (call.emit(sub, one, t), call.emit(sub, one, p)))
        )
        return reduced(call, call.emit(neg, call.emit(add, *parts)), reduce)

    def _log(self, call: Call, p: Value, one: Value) -> Value:
        """log(p), at least -100."""
        least, zero = call.operands(p, -100.0)[1], call.operands(p, 0.0)[1]
        positive = call.emit(ne, p, zero)
        safe = call.emit(where, positive, p, one)
        return call.emit(where, positive, call.emit(maximum, call.emit(log, safe), least), least)


class Mse(Function):
    """mse(x, t, reduce="mean"): the squared difference.

    given: x: [B, 8], t: [B, 8]
    >>> loss = mse(x, t)
    """

    name = "mse"

    def build(self, call: Call, x: Operand, t: Operand, reduce: str = "mean") -> Value:
        error = call.emit(sub, *pair(call, self.name, x, t))
        return reduced(call, call.emit(mul, error, error), reduce)


class L1(Function):
    """l1(x, t, reduce="mean"): the absolute difference.

    given: x: [B, 8], t: [B, 8]
    >>> loss = l1(x, t)
    """

    name = "l1"

    def build(self, call: Call, x: Operand, t: Operand, reduce: str = "mean") -> Value:
        return reduced(call, call.emit(abs_, call.emit(sub, *pair(call, self.name, x, t))), reduce)


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
        error = call.emit(sub, *pair(call, self.name, x, t))
        size = call.emit(abs_, error)
        bound, half = call.operands(error, delta)[1], call.operands(error, 0.5)[1]
        square = call.emit(mul, call.emit(mul, error, error), half)
        straight = call.emit(mul, bound, call.emit(sub, size, call.operands(error, delta / 2)[1]))
        return reduced(call, call.emit(where, call.emit(le, size, bound), square, straight), reduce)


class KlDiv(Function):
    """kl_div(log_q, p, reduce="mean"): ``p * (log(p) - log_q)``, 0 where p is 0, as PyTorch's ``kl_div``.

    ``log_q`` are log-probabilities, ``p`` probabilities; the mean is over all elements. The divergence
    of each row, whose mean PyTorch calls ``batchmean``, is the sum over its classes:

    given: x: [B, 8], p: [B, 8]
    >>> loss = sum(kl_div(log_softmax(x), p, reduce="none"), over=1)
    """

    name = "kl_div"
    takes = {"log_q": LOG_PROBS, "p": PROBS}

    def build(self, call: Call, log_q: Operand, p: Operand, reduce: str = "mean") -> Value:
        q, p = pair(call, self.name, log_q, p)
        zero, one = call.operands(p, 0.0)[1], call.operands(p, 1.0)[1]
        positive = call.emit(gt, p, zero)
        safe = call.emit(where, positive, p, one)
        loss = call.emit(mul, p, call.emit(sub, call.emit(log, safe), q))
        return reduced(call, call.emit(where, positive, loss, zero), reduce)


for _function in (
    BceWithLogitsFunction(), Bce(), Mse(), L1(), Huber(), KlDiv()
):  # fmt: skip
    function(_function)
