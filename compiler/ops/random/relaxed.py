"""Random choices and slopes that gradients pass: gumbel_softmax, rrelu."""

from __future__ import annotations

import math
from typing import Final

from dslc.compiler.ir.function import Axis, Call, Function, Shape, function
from dslc.compiler.ir.graph import Value
from dslc.compiler.ir.op import Mismatch
from dslc.compiler.ops.axes import from_zero
from dslc.compiler.ops.elementwise.arithmetic import add, div, mul, neg, sub
from dslc.compiler.ops.elementwise.convert import stop_gradient
from dslc.compiler.ops.elementwise.logic import ge
from dslc.compiler.ops.elementwise.selection import maximum, where
from dslc.compiler.ops.elementwise.transcendental import log
from dslc.compiler.ops.index.embedding import one_hot
from dslc.compiler.ops.index.ordering import argmax
from dslc.compiler.ops.random.stochastic import dropout, rand
from dslc.compiler.ops.reduction.softmax import softmax
from dslc.compiler.ops.shape.views import transpose

#: Below the least number above 0 that ``rand`` draws in f32, so that its 0 has a logarithm.
_LEAST: Final = 2.0**-25


def _drawn(call: Call, name: str, x: Value, shape: Shape) -> Value:
    """Uniform in [0, 1), in the dtype of x."""
    inputs, attrs = call.random(name, shape)
    return call.emit(rand, *inputs, shape=shape, dtype=x.type.dtype, **attrs)


class GumbelSoftmax(Function):
    """gumbel_softmax(x, tau=1, hard=false, axis=-1): a differentiable random choice along an axis.

    ``softmax((x + g) / tau)`` with logits x and noise ``g = -log(-log(u))``, u uniform, new in each step, also in
    evaluation. With ``hard`` the result is 1 at the greatest element, else 0, and its gradient is that of the softmax
    (Jang et al. 2017, Maddison et al. 2017).

    given: x: [B, 8]
    >>> gumbel_softmax(x, tau=0.5, hard=true)
    """

    name = "gumbel_softmax"

    def build(self, call: Call, x: Value, tau: float = 1.0, hard: bool = False, axis: Axis = -1) -> Value:
        if not 0 < tau < math.inf:
            raise Mismatch(f"`tau` of `gumbel_softmax` is {tau:g}", "a number above 0", "E0209")
        at = from_zero(self.name, x.type, axis)
        count = x.type.shape[at]
        u = call.emit(maximum, *call.operands(_drawn(call, self.name, x, x.type.shape), _LEAST))
        noise = call.emit(neg, call.emit(log, call.emit(neg, call.emit(log, u))))
        moved = call.emit(add, x, noise)
        soft = call.emit(softmax, call.emit(div, *call.operands(moved, tau)) if tau != 1 else moved, axis=at)
        if not hard:
            return soft
        chosen = call.emit(one_hot, call.emit(argmax, soft, axis=at, keep=False), count=count, dtype=x.type.dtype)
        last = x.type.rank - 1
        if at != last:
            chosen = call.emit(transpose, chosen, perm=(*range(at), last, *range(at, last)))
        return call.emit(add, chosen, call.emit(sub, soft, call.emit(stop_gradient, soft)))


class Rrelu(Function):
    """rrelu(x, lower=0.125, upper=1/3): ``x`` for x >= 0, else x times a random slope, new for each element and step.

    The slope is uniform in lower..upper in training, and their mean otherwise (Xu et al. 2015).

    given: x: [B, 8]
    >>> rrelu(x)
    """

    name = "rrelu"

    def build(self, call: Call, x: Value, lower: float = 0.125, upper: float = 1 / 3) -> Value:
        if not -math.inf < lower <= upper < math.inf:
            raise Mismatch(f"slopes of `rrelu` from {lower:g} to {upper:g}", "`lower` is at most `upper`", "E0209")
        inputs, attrs = call.random(self.name, ())
        resting = call.emit(dropout, call.full(1.0, x.type.dtype), *inputs, p=1.0, **attrs)  # 0 in training, else 1
        away = call.emit(sub, *call.operands(_drawn(call, self.name, x, x.type.shape), 0.5))
        away = call.emit(mul, away, call.emit(sub, *call.operands(1.0, resting)))
        slope = call.emit(add, *call.operands(call.emit(mul, *call.operands(away, upper - lower)), (lower + upper) / 2))
        return call.emit(where, call.emit(ge, *call.operands(x, 0.0)), x, call.emit(mul, x, slope))


for _function in (GumbelSoftmax, Rrelu):
    function(_function())
