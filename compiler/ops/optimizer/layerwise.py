"""Ops for optimizers that scale a tensor's step by its parameter's norm: LAMB and LARS.

First the norms of the whole tensor are computed, with 0 for elements whose gradient is not finite. Then the step goes
element by element, so the new tensors may overwrite the old ones.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from dslc.compiler.ir.op import register
from dslc.compiler.ops.lazy import np
from dslc.compiler.ops.optimizer.optim import Update, decayed

if TYPE_CHECKING:
    from dslc.compiler.ir.op import Array


def _length(x: Array) -> Any:
    """The Euclidean norm, a scalar of x's dtype."""
    return np.sqrt(np.sum(np.square(x), dtype=x.dtype))


class LambUpdate(Update):
    """lamb_update(param, grad, m, v, lr, step): LAMB (You et al. 2020).

    ``m' = m + (1 - beta1)*(g - m); v' = beta2*v + (1 - beta2)*g^2``; with t = step + 1,
    ``r = m'/(1 - beta1^t) / (sqrt(v'/(1 - beta2^t)) + eps) + weight_decay*param``, and the parameter decreases by
    ``lr * |param|/|r| * r``, by ``lr * r`` where one of the norms is 0. Outputs: parameter, m', v', flag. Attributes
    ``beta1``, ``beta2``, ``eps``, ``weight_decay``.
    """

    name = "lamb_update"
    slots = 2
    flops = 24
    layerwise = True

    def updated(
        self, p: Array, g: Array, slots: Sequence[Array], lr: float, t: int, attrs: Mapping[str, Any]
    ) -> tuple[Array, ...]:
        inner, (m, v) = p.dtype.type, slots
        beta1, beta2 = attrs["beta1"], attrs["beta2"]
        m = m + inner(1 - beta1) * (g - m)
        v = inner(beta2) * v + inner(1 - beta2) * (g * g)
        below = np.sqrt(v) / inner(math.sqrt(1 - beta2**t)) + inner(attrs["eps"])
        r = (m / inner(1 - beta1**t)) / below + inner(attrs["weight_decay"]) * p
        of_param, of_step = _length(p), _length(r)
        trust = of_param / of_step if of_param > 0 and of_step > 0 else inner(1)
        return p - (inner(lr) * trust) * r, m, v


class LarsUpdate(Update):
    """lars_update(param, grad, buf, lr, step): LARS (You, Gitman and Ginsburg 2017).

    ``trust = trust_coefficient * |param| / (|grad| + weight_decay*|param| + eps)``, 1 where a norm is 0;
    ``buf' = momentum*buf + trust*(grad + weight_decay*param)``, and the parameter decreases by ``lr * buf'``. Outputs:
    parameter, buf', flag. Attributes ``momentum``, ``trust_coefficient``, ``eps``, ``weight_decay``.
    """

    name = "lars_update"
    slots = 1
    flops = 12
    layerwise = True

    def updated(
        self, p: Array, g: Array, slots: Sequence[Array], lr: float, t: int, attrs: Mapping[str, Any]
    ) -> tuple[Array, ...]:
        inner = p.dtype.type
        of_param, of_grad = _length(p), _length(g)
        trust = inner(1)
        if of_param > 0 and of_grad > 0:
            below = of_grad + inner(attrs["weight_decay"]) * of_param + inner(attrs["eps"])
            trust = inner(attrs["trust_coefficient"]) * of_param / below
        buf = inner(attrs["momentum"]) * slots[0] + trust * decayed(p, g, attrs)
        return p - inner(lr) * buf, buf


lamb_update = register(LambUpdate())
lars_update = register(LarsUpdate())
