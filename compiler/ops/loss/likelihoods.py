"""Losses of distributions and of masks: gaussian_nll, poisson_nll, focal, dice, smooth_l1.

Each ends in the op ``mean`` or ``sum``, so that evaluation can combine batches.
"""

from __future__ import annotations

import math

from dslc.compiler.ir.function import LOGITS, PROBS, Axes, Call, Function, Operand, function
from dslc.compiler.ir.graph import Value
from dslc.compiler.ir.op import Mismatch
from dslc.compiler.ops.elementwise.activation import sigmoid
from dslc.compiler.ops.elementwise.arithmetic import abs_, add, div, mul, neg, sub
from dslc.compiler.ops.elementwise.logic import gt, lt
from dslc.compiler.ops.elementwise.powers import Power
from dslc.compiler.ops.elementwise.selection import maximum, where
from dslc.compiler.ops.elementwise.transcendental import exp, log
from dslc.compiler.ops.loss.losses import bce_with_logits, pair, reduced
from dslc.compiler.ops.reduction.reduce import sum_


def _sum(call: Call, x: Operand, y: Operand) -> Value:
    return call.emit(add, *call.operands(x, y))


def _product(call: Call, x: Operand, y: Operand) -> Value:
    return call.emit(mul, *call.operands(x, y))


class SmoothL1(Function):
    """smooth_l1(x, t, beta=1, reduce="mean"): ``e^2 / (2 * beta)`` where ``|e| < beta``, else ``|e| - beta/2``.

    e is ``x - t`` (Girshick 2015): ``huber`` divided by ``beta``.

    given: x: [B, 8], t: [B, 8]
    >>> loss = smooth_l1(x, t)
    """

    name = "smooth_l1"

    def build(self, call: Call, x: Operand, t: Operand, beta: float = 1.0, reduce: str = "mean") -> Value:
        if not 0 < beta < math.inf:
            raise Mismatch(f"`beta` of `smooth_l1` is {beta:g}", "a number above 0; with 0 it is `l1`", "E0209")
        error = call.emit(sub, *pair(call, self.name, x, t))
        size = call.emit(abs_, error)
        square = _product(call, call.emit(mul, error, error), 0.5 / beta)
        straight = _sum(call, size, -beta / 2)
        return reduced(call, call.emit(where, call.emit(lt, *call.operands(size, beta)), square, straight), reduce)


class GaussianNll(Function):
    """gaussian_nll(x, t, var, full=false, eps=1e-6, reduce="mean"): ``(log(var) + (x - t)^2 / var) / 2``.

    The negative logarithm of the density of t for mean x and variance ``var``, which is at least ``eps`` (Nix and
    Weigend 1994). With ``full`` the constant ``log(2 * pi) / 2`` is added. ``var`` may broadcast.

    given: x: [B, 8], t: [B, 8], v: [B, 8]
    >>> loss = gaussian_nll(x, t, exp(v))
    """

    name = "gaussian_nll"

    def build(
        self,
        call: Call,
        x: Operand,
        t: Operand,
        var: Value,
        full: bool = False,
        eps: float = 1e-6,
        reduce: str = "mean",
    ) -> Value:
        error = call.emit(sub, *pair(call, self.name, x, t))
        bounded = call.emit(maximum, *call.operands(var, eps))
        apart = call.emit(div, call.emit(mul, error, error), bounded)
        loss = _product(call, call.emit(add, call.emit(log, bounded), apart), 0.5)
        return reduced(call, _sum(call, loss, math.log(2 * math.pi) / 2) if full else loss, reduce)


class PoissonNll(Function):
    """poisson_nll(x, t, log_input=true, full=false, eps=1e-8, reduce="mean"): ``exp(x) - t * x``, for counts t.

    Without ``log_input``, x is the rate itself: ``x - t * log(x + eps)``. With ``full``, Stirling's approximation of
    ``log(t!)`` is added where t is above 1.

    given: x: [B, 8], t: [B, 8]
    >>> loss = poisson_nll(x, t)
    """

    name = "poisson_nll"

    def build(
        self,
        call: Call,
        x: Operand,
        t: Operand,
        log_input: bool = True,
        full: bool = False,
        eps: float = 1e-8,
        reduce: str = "mean",
    ) -> Value:
        x, t = pair(call, self.name, x, t)
        rate, logarithm = (call.emit(exp, x), x) if log_input else (x, call.emit(log, _sum(call, x, eps)))
        loss = call.emit(sub, rate, call.emit(mul, t, logarithm))
        if full:
            many = call.emit(gt, *call.operands(t, 1.0))
            safe = call.emit(where, many, *call.operands(t, 1.0))
            of_t = call.emit(log, safe)
            half = _product(call, _sum(call, of_t, math.log(2 * math.pi)), 0.5)
            factorial = call.emit(add, call.emit(sub, call.emit(mul, safe, of_t), safe), half)
            loss = call.emit(add, loss, call.emit(where, many, *call.operands(factorial, 0.0)))
        return reduced(call, loss, reduce)


class Focal(Function):
    """focal(x, t, gamma=2, alpha=0.25, reduce="mean"): ``bce_with_logits`` times ``(1 - p)^gamma``, for rare objects.

    p is the probability that the logits x give to the targets t in 0..1; ``alpha`` weighs t = 1, and ``1 - alpha``
    t = 0, unless it is ``none`` (Lin et al. 2017; torchvision's ``sigmoid_focal_loss``).

    given: x: [B, 8], t: [B, 8]
    >>> loss = focal(x, t, reduce="sum")
    """

    name = "focal"
    takes = {"x": LOGITS, "t": PROBS}

    def build(
        self,
        call: Call,
        x: Operand,
        t: Operand,
        gamma: float = 2.0,
        alpha: float | None = 0.25,
        reduce: str = "mean",
    ) -> Value:
        x, t = pair(call, self.name, x, t)
        if gamma < 0:
            raise Mismatch(f"`gamma` of `focal` is {gamma:g}", "a number of at least 0, such as 2", "E0209")
        other = call.emit(sub, *call.operands(1.0, t))
        # from both sides of the sigmoid, since 1 - p cancels
        missed = call.emit(
            add,
            call.emit(mul, call.emit(sigmoid, x), other),
            call.emit(mul, call.emit(sigmoid, call.emit(neg, x)), t),
        )
        loss = call.emit(mul, call.emit(bce_with_logits, x, t), Power().build(call, missed, gamma))
        if alpha is not None:
            loss = call.emit(mul, loss, _sum(call, _product(call, t, 2 * alpha - 1), 1 - alpha))
        return reduced(call, loss, reduce)


class Dice(Function):
    """dice(p, t, over=none, smooth=1, reduce="mean"): ``1 - (2 * sum(p*t) + s) / (sum(p) + sum(t) + s)``, of masks.

    p are probabilities, so apply ``sigmoid`` or ``softmax`` first; s is ``smooth``. The sums are over the axes
    ``over``, by default all but the first, so that each row has a loss (Milletari et al. 2016, without squares).

    given: x: [B, 8], t: [B, 8]
    >>> loss = dice(sigmoid(x), t)
    """

    name = "dice"
    takes = {"p": PROBS, "t": PROBS}

    def build(
        self,
        call: Call,
        p: Value,
        t: Value,
        over: Axes | None = None,
        smooth: float = 1.0,
        reduce: str = "mean",
    ) -> Value:
        p, t = pair(call, self.name, p, t)
        if over is None and p.type.rank < 2:
            raise Mismatch(f"`dice` of {p.type} has no axes but the first", "name the axes: `over=0`", "E0306")
        axes = tuple(range(1, p.type.rank)) if over is None else over
        both, of_p, of_t = (call.emit(sum_, each, over=axes, keep=False) for each in (call.emit(mul, p, t), p, t))
        met = _sum(call, _product(call, both, 2.0), smooth)
        share = call.emit(div, met, _sum(call, call.emit(add, of_p, of_t), smooth))
        return reduced(call, call.emit(sub, *call.operands(1.0, share)), reduce)


for _function in (SmoothL1, GaussianNll, PoissonNll, Focal, Dice):
    function(_function())
