"""More activations: mish, softsign, logsigmoid, celu, selu, tanhshrink, glu, prelu."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from dslc.compiler.ir import scalar as tree
from dslc.compiler.ir.function import Axis, Call, Function, Init, Operand, function
from dslc.compiler.ir.graph import Attrs, Value
from dslc.compiler.ir.op import Mismatch, register
from dslc.compiler.ir.scalar import Expr
from dslc.compiler.ops.attrs import float_attr
from dslc.compiler.ops.elementwise.activation import elu, sigmoid, tanh
from dslc.compiler.ops.elementwise.arithmetic import Unary, mul, sub
from dslc.compiler.ops.elementwise.formula import Of1
from dslc.compiler.ops.elementwise.logic import gt
from dslc.compiler.ops.elementwise.selection import where
from dslc.compiler.ops.shape.slicing_functions import Split
from dslc.compiler.ops.shape.views import reshape

_FAR: Final = 2.0**100  # from here on softsign is 1 in every float; inf / inf would be nan
#: Klambauer et al. 2017: activations keep mean 0 and variance 1.
_SELU_ALPHA: Final = 1.6732632423543772848170429916717
_SELU_SCALE: Final = 1.0507009873554804934193349852946


def _decay(x: Expr) -> Expr:
    """exp(-|x|), which does not overflow."""
    return tree.call("exp", -tree.call("abs", x))


class Mish(Of1):
    """mish(x): ``x * tanh(softplus(x))`` (Misra 2019).

    given: x: [B, 8]
    >>> mish(x)
    """

    name = "mish"

    def _gate(self, x: Expr) -> Expr:
        return tree.call("tanh", tree.call("max", x, 0) + tree.call("log1p", _decay(x)))

    def scalar(self, attrs: Attrs, *xs: Expr) -> Expr:
        return xs[0] * self._gate(xs[0])

    def backward(self, attrs: Attrs, *xs: Expr) -> Sequence[Expr]:
        x, dy = xs
        gate, e = self._gate(x), _decay(x)
        logistic = tree.select(x < 0, e, 1) / (1 + e)
        return (dy * (gate + x * ((1 - gate * gate) * logistic)),)


class Softsign(Of1):
    """softsign(x): ``x / (1 + abs(x))``; 1 and -1 for the infinities.

    given: x: [B, 8]
    >>> softsign(x)
    """

    name = "softsign"

    def scalar(self, attrs: Attrs, *xs: Expr) -> Expr:
        x = tree.call("max", tree.call("min", xs[0], _FAR), -_FAR)
        return x / (1 + tree.call("abs", x))

    def backward(self, attrs: Attrs, *xs: Expr) -> Sequence[Expr]:
        x, dy = xs
        size = 1 + tree.call("abs", x)
        return (dy / size / size,)  # the square may overflow


class Logsigmoid(Of1):
    """logsigmoid(x): ``log(sigmoid(x))``, without overflow and without cancellation.

    given: x: [B, 8]
    >>> logsigmoid(x)
    """

    name = "logsigmoid"

    def scalar(self, attrs: Attrs, *xs: Expr) -> Expr:
        return tree.call("min", xs[0], 0) - tree.call("log1p", _decay(xs[0]))

    def backward(self, attrs: Attrs, *xs: Expr) -> Sequence[Expr]:
        x, dy = xs
        e = _decay(x)
        return (dy * (tree.select(x > 0, e, 1) / (1 + e)),)


class Celu(Of1):
    """celu(x): ``x`` for x > 0, else ``alpha * (exp(x / alpha) - 1)``, with the attribute ``alpha``."""

    name = "celu"

    def scalar(self, attrs: Attrs, *xs: Expr) -> Expr:
        x, alpha = xs[0], float_attr(attrs, "alpha")
        return tree.select(x > 0, x, tree.call("expm1", x / alpha) * alpha)

    def backward(self, attrs: Attrs, *xs: Expr) -> Sequence[Expr]:
        x, dy = xs
        return (tree.select(x > 0, dy, dy * tree.call("exp", x / float_attr(attrs, "alpha"))),)


mish = register(Mish())
softsign = register(Softsign())
logsigmoid = register(Logsigmoid())
celu = register(Celu())


class CeluFunction(Function):
    """celu(x, alpha=1): ``x`` for x > 0, else ``alpha * (exp(x / alpha) - 1)`` (Barron 2017).

    given: x: [B, 8]
    >>> celu(x)
    """

    name = "celu"

    def build(self, call: Call, x: Operand, alpha: float = 1.0) -> Value:
        if alpha <= 0:
            raise Mismatch(f"`celu` with alpha = {alpha:g}", "alpha is positive: it divides", "E0209")
        return call.emit(celu, *call.operands(x), alpha=alpha)


class Selu(Function):
    """selu(x): ``1.0507 * elu(x, 1.6733)``, with more digits (Klambauer et al. 2017).

    given: x: [B, 8]
    >>> selu(x)
    """

    name = "selu"

    def build(self, call: Call, x: Operand) -> Value:
        bent = call.emit(elu, *call.operands(x), alpha=_SELU_ALPHA)
        return call.emit(mul, *call.operands(bent, _SELU_SCALE))


class Tanhshrink(Function):
    """tanhshrink(x): ``x - tanh(x)``.

    given: x: [B, 8]
    >>> tanhshrink(x)
    """

    name = "tanhshrink"

    def build(self, call: Call, x: Operand) -> Value:
        [x] = call.operands(x)
        return call.emit(sub, x, call.emit(tanh, x))


class Glu(Function):
    """glu(x, axis=-1): the first half along an axis times the sigmoid of the second (Dauphin et al. 2017).

    With another gate, write it out: ``a, b = split(x, 2, axis=1)``, then ``a * gelu(b)`` for geglu, ``a * silu(b)`` for
    swiglu.

    given: x: [B, 8]
    >>> glu(x)
    """

    name = "glu"

    def build(self, call: Call, x: Value, axis: Axis = -1) -> Value:
        first, second = Split().build(call, x, 2, axis)
        return call.emit(mul, first, call.emit(sigmoid, second))


class Prelu(Function):
    """prelu(x, channels=false, init=0.25): ``x`` for x > 0, else ``weight * x`` (He et al. 2015).

    ``weight`` is learnt: one number, or with ``channels`` one for each index of axis 1.

    given: x: [B, 8]
    >>> prelu(x)
    """

    name = "prelu"

    def build(self, call: Call, x: Value, channels: bool = False, init: float = 0.25) -> Value:
        if channels and x.type.rank < 2:
            raise Mismatch(f"`prelu` of {x.type} has no channels", "leave out `channels`")
        weight = call.param("weight", (x.type.shape[1] if channels else 1,), Init("constant", (init,)))
        if channels and x.type.rank > 2:
            weight = call.emit(reshape, weight, shape=(x.type.shape[1],) + (1,) * (x.type.rank - 2))
        above = call.emit(gt, *call.operands(x, 0.0))
        return call.emit(where, above, x, call.emit(mul, weight, x))


for _op in (mish, softsign, logsigmoid):
    function(Unary(_op))
for _function in (CeluFunction, Selu, Tanhshrink, Glu, Prelu):
    function(_function())
