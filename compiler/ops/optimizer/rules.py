"""Elementwise updates, each with one formula: Lion, Adagrad, Adadelta, Adamax, NAdam, RAdam, Rprop.

All but Lion's are those of ``torch.optim``, with its names of slots.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

from dslc.compiler.ir.op import register
from dslc.compiler.ir.scalar import Expr, call, select
from dslc.compiler.ops.optimizer.formula import Formula, Operands


class LionUpdate(Formula):
    """lion_update(param, grad, m, lr, step): Lion (Chen et al. 2023), steps of one size.

    The parameter is scaled by ``1 - lr*weight_decay`` and decreases by ``lr * sign(beta1*m + (1 - beta1)*grad)``; then
    ``m' = m + (1 - beta2)*(grad - m)``. Outputs: parameter, m', flag. Attributes ``beta1``, ``beta2``,
    ``weight_decay``.
    """

    name = "lion_update"
    slots = 1
    flops = 10

    def formula(self, s: Operands) -> Sequence[Expr]:
        way = s.let(call("sign", s.mean(0, "beta1", s.g)))
        return s.shrunk() - s.rate * way, s.mean(0, "beta2", s.g)


class AdagradUpdate(Formula):
    """adagrad_update(param, grad, sum, lr, step): Adagrad (Duchi, Hazan and Singer 2011).

    ``sum' = sum + g^2``, where g has ``weight_decay * param`` added; the parameter decreases by
    ``lr/(1 + step*lr_decay) * g / (sqrt(sum') + eps)``. Outputs: parameter, sum', flag. Attributes ``lr_decay``,
    ``eps``, ``weight_decay``.
    """

    name = "adagrad_update"
    slots = 1
    flops = 10

    def formula(self, s: Operands) -> Sequence[Expr]:
        g = s.decayed()
        total = s.let(s.slots[0] + g * g)
        pace = s.let(s.wide(s.rate) / (1 + (s.count() - 1) * s.number("lr_decay")))
        return s.p - pace * (g / (call("sqrt", total) + s.number("eps"))), total


class AdadeltaUpdate(Formula):
    """adadelta_update(param, grad, square, moved, lr, step): Adadelta (Zeiler 2012).

    ``square' = rho*square + (1 - rho)*g^2``, where g has ``weight_decay * param`` added; the parameter decreases by
    ``lr * d`` with ``d = sqrt(moved + eps) / sqrt(square' + eps) * g``, and ``moved' = rho*moved + (1 - rho)*d^2``.
    Outputs: parameter, square', moved', flag. Attributes ``rho``, ``eps``, ``weight_decay``.
    """

    name = "adadelta_update"
    slots = 2
    flops = 17

    def formula(self, s: Operands) -> Sequence[Expr]:
        g, eps = s.decayed(), s.number("eps")
        square = s.square(0, "rho", g)
        move = s.let(call("sqrt", s.slots[1] + eps) / call("sqrt", square + eps) * g)
        return s.p - s.rate * move, square, s.square(1, "rho", move)


class AdamaxUpdate(Formula):
    """adamax_update(param, grad, m, u, lr, step): Adam by the infinity norm (Kingma and Ba 2015).

    ``m' = m + (1 - beta1)*(g - m); u' = max(beta2*u, |g| + eps)``, where g has ``weight_decay * param`` added; with
    t = step + 1 the parameter decreases by ``lr/(1 - beta1^t) * m'/u'``. Outputs: parameter, m', u', flag. Attributes
    ``beta1``, ``beta2``, ``eps``, ``weight_decay``.
    """

    name = "adamax_update"
    slots = 2
    flops = 13

    def formula(self, s: Operands) -> Sequence[Expr]:
        g = s.decayed()
        mean = s.mean(0, "beta1", g)
        most = s.let(call("max", s.slots[1] * s.number("beta2"), call("abs", g) + s.number("eps")))
        pace = s.let(s.wide(s.rate) / s.rest("beta1", s.count()))
        # 0 where all gradients were 0 and eps is 0
        return s.p - pace * select(most > 0, mean / most, 0.0), mean, most


#: Terms of the series of ``log(1 - x/2)`` at x in 0..1, the last of which is below the precision of f64.
_TERMS: Final = 50


class NAdamUpdate(Formula):
    """nadam_update(param, grad, m, v, lr, step): Adam with Nesterov's momentum (Dozat 2016).

    With t = step + 1, ``mu_t = beta1 * (1 - 0.96^(t*momentum_decay)/2)``, and M_t the product of mu_1 to mu_t, the
    parameter decreases by ``lr * (g*(1 - mu_t)/(1 - M_t) + m'*mu_t+1/(1 - M_t+1)) / (sqrt(v'/(1 - beta2^t)) + eps)``;
    m' and v' are those of Adam. Outputs: parameter, m', v', flag. Attributes as in ``adam_update``, and
    ``momentum_decay``.
    """

    name = "nadam_update"
    slots = 2
    flops = 22

    def formula(self, s: Operands) -> Sequence[Expr]:
        p, g = s.by_decay()
        t, rate = s.count(), s.wide(s.rate)
        mean, square = s.mean(0, "beta1", g), s.square(1, "beta2", g)
        root = s.let(call("sqrt", s.rest("beta2", t)))
        here, there = self._momentum(s, t), self._momentum(s, s.wide(t + 1))
        of_all = self._product(s, t)
        of_grad = s.let(rate * (1 - here) / (1 - of_all))
        of_mean = s.let(rate * there / (1 - of_all * there))
        below = s.let(call("sqrt", square) / root + s.number("eps"))
        return p - of_grad * (g / below) - of_mean * (mean / below), mean, square

    def _pace(self, s: Operands) -> float:
        """``c`` of ``0.96^(t*momentum_decay) = e^(-c*t)``."""
        return -math.log(0.96) * s.number("momentum_decay")

    def _momentum(self, s: Operands, t: Expr) -> Expr:
        return s.wide((1 - call("exp", t * -self._pace(s)) * 0.5) * s.number("beta1"))

    def _product(self, s: Operands, t: Expr) -> Expr:
        """The product of mu_1 to mu_t, from the sums of ``log(1 - q^i/2) = -sum_k (q^i/2)^k / k`` over i, which are
        geometric: ``q = e^-c``."""
        beta, pace = s.number("beta1"), self._pace(s)
        if beta == 0:
            return s.wide(t * 0.0)
        if pace == 0:
            return s.wide(call("exp", t * math.log(beta / 2)))
        shares = [0.5**k / k * math.exp(-pace * k) / -math.expm1(-pace * k) for k in range(1, _TERMS + 1)]
        x = s.wide(call("exp", t * -pace))
        total = s.wide(x * shares[-1])
        for share in reversed(shares[:-1]):
            total = s.wide((total + share) * x)
        return s.wide(call("exp", t * math.log(beta) - (math.fsum(shares) - total)))


class RAdamUpdate(Formula):
    """radam_update(param, grad, m, v, lr, step): Adam whose steps wait for the variance (Liu et al. 2020).

    m' and v' are those of Adam. With t = step + 1, ``most = 2/(1 - beta2) - 1`` and
    ``r = most - 2*t*beta2^t/(1 - beta2^t)``, the parameter decreases by ``lr * m'/(1 - beta1^t)``, which for r > 5 is
    multiplied by ``sqrt((r-4)*(r-2)*most / ((most-4)*(most-2)*r)) * sqrt(1 - beta2^t) / (sqrt(v') + eps)``. Outputs:
    parameter, m', v', flag. Attributes as in ``adam_update``.
    """

    name = "radam_update"
    slots = 2
    flops = 18

    def formula(self, s: Operands) -> Sequence[Expr]:
        p, g = s.by_decay()
        t = s.count()
        mean, square = s.mean(0, "beta1", g), s.square(1, "beta2", g)
        rest, most = s.rest("beta2", t), 2 / (1 - s.number("beta2")) - 1
        length = s.wide(most - t * 2 * (1 - rest) / rest)
        sure = length > 5
        scale = most / ((most - 4) * (most - 2)) if most > 5 else 0.0  # most bounds the length
        known = s.wide(select(sure, length, 6.0))
        factor = s.let(call("sqrt", (known - 4) * (known - 2) * scale / known * rest))
        move = s.let(select(sure, factor / (call("sqrt", square) + s.number("eps")), 1.0))
        pace = s.let(s.wide(s.rate) / s.rest("beta1", t))
        return p - pace * mean * move, mean, square


class RpropUpdate(Formula):
    """rprop_update(param, grad, previous, size, lr, step): resilient backpropagation (Riedmiller and Braun 1993).

    Each element has a step size, at first ``lr``: times ``grow`` where the gradient keeps its sign, times ``shrink``
    where it changes it, within ``least`` and ``most``. Where the sign changed the parameter stays, and the gradient
    counts as 0; else the parameter moves by the size against the gradient's sign, if ``lr`` is not 0. Weight decay is
    added to the gradient. Outputs: parameter, gradient, size, flag. Attributes ``shrink``, ``grow``, ``least``,
    ``most``, ``weight_decay``.
    """

    name = "rprop_update"
    slots = 2
    flops = 12

    def formula(self, s: Operands) -> Sequence[Expr]:
        g = s.decayed()
        before, size = s.slots[0], s.let(select(s.slots[1] > 0, s.slots[1], s.rate))
        same = s.let(call("sign", g) * call("sign", before))
        factor = select(same > 0, s.number("grow"), select(same < 0, s.number("shrink"), 1.0))
        size = s.let(call("min", call("max", size * s.let(factor), s.number("least")), s.number("most")))
        g = s.let(select(same < 0, 0.0, g))
        return s.p - call("sign", g) * select(s.rate > 0, size, 0.0), g, size


lion_update = register(LionUpdate())
adagrad_update = register(AdagradUpdate())
adadelta_update = register(AdadeltaUpdate())
adamax_update = register(AdamaxUpdate())
nadam_update = register(NAdamUpdate())
radam_update = register(RAdamUpdate())
rprop_update = register(RpropUpdate())
