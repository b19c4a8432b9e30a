"""Dropout of more than one element: dropout2d, dropout3d, stochastic_depth; alpha_dropout.

They multiply by ``dropout`` of ones, which is 1 everywhere outside of training.
"""

from __future__ import annotations

from dslc.base.words import of_percentage
from dslc.compiler.ir.function import Call, Function, Shape, function
from dslc.compiler.ir.graph import Value
from dslc.compiler.ir.op import Mismatch
from dslc.compiler.ops.elementwise.arithmetic import add, mul
from dslc.compiler.ops.elementwise.logic import eq, gt
from dslc.compiler.ops.elementwise.selection import where
from dslc.compiler.ops.random.stochastic import dropout

#: What selu tends to far below 0: -scale * alpha (Klambauer et al. 2017).
_SELU_LIMIT = -1.7580993408473766


def _kept(call: Call, name: str, x: Value, p: float, shape: Shape) -> Value:
    """1 / (1 - p) with probability 1 - p, else 0, for each element of ``shape``; 1 outside of training."""
    inputs, attrs = call.random(name, shape)
    return call.emit(dropout, call.full(1.0, x.type.dtype, shape), *inputs, p=p, **attrs)


def _of_channels(call: Call, name: str, x: Value, p: float, rank: int) -> Value:
    if x.type.rank != rank:
        raise Mismatch(f"`{name}` needs [batch, channels, {rank - 2} more axes], got {x.type}", "`reshape` it", "E0306")
    return call.emit(mul, x, _kept(call, name, x, p, (*x.type.shape[:2], *(1,) * (rank - 2))))


class Dropout2d(Function):
    """dropout2d(x, p=0.5): as ``dropout``, but each whole channel of images ``[B, C, H, W]`` is kept or 0.

    given: x: [B, 8, 14, 14]
    >>> y = x |> dropout2d(0.1)
    """

    name = "dropout2d"

    def build(self, call: Call, x: Value, p: float = 0.5) -> Value:
        return _of_channels(call, self.name, x, p, 4)


class Dropout3d(Function):
    """dropout3d(x, p=0.5): as ``dropout``, but each whole channel of volumes ``[B, C, D, H, W]`` is kept or 0.

    given: x: [B, 8, 4, 4, 4]
    >>> y = x |> dropout3d(0.1)
    """

    name = "dropout3d"

    def build(self, call: Call, x: Value, p: float = 0.5) -> Value:
        return _of_channels(call, self.name, x, p, 5)


class StochasticDepth(Function):
    """stochastic_depth(x, p): in training each row of the batch is 0 with probability ``p``, else divided by ``1 - p``.

    Applied to a residual branch (Huang et al. 2016), also called drop path.

    given: x: [B, 8]
    >>> x + (x |> linear(8) |> stochastic_depth(0.1))
    """

    name = "stochastic_depth"

    def build(self, call: Call, x: Value, p: float) -> Value:
        if not x.type.rank:
            raise Mismatch("`stochastic_depth` of a number has no rows", "give a tensor with a batch axis", "E0306")
        shape = (x.type.shape[0], *(1,) * (x.type.rank - 1))
        return call.emit(mul, x, _kept(call, self.name, x, p, shape))


class AlphaDropout(Function):
    """alpha_dropout(x, p=0.5): dropout for ``selu``: in training it keeps mean 0 and variance 1; else ``x``.

    Each element becomes selu's limit with probability ``p``; then all are scaled and shifted (Klambauer et al. 2017).

    given: x: [B, 8]
    >>> x |> selu |> alpha_dropout(0.1)
    """

    name = "alpha_dropout"

    def build(self, call: Call, x: Value, p: float = 0.5) -> Value:
        if not 0 <= p < 1:
            help = of_percentage(p, below=True) or "p lies between 0 and 1, below 1"
            raise Mismatch(f"`alpha_dropout` with probability {p:g}", help, "E0209")
        kept = _kept(call, self.name, x, p, x.type.shape)
        scale = ((1 - p) * (1 + p * _SELU_LIMIT**2)) ** -0.5
        shift = -scale * p * _SELU_LIMIT
        drawn = call.emit(where, call.emit(gt, *call.operands(kept, 0.0)), *call.operands(x, _SELU_LIMIT))
        trained = call.emit(add, *call.operands(call.emit(mul, *call.operands(drawn, scale)), shift))
        return call.emit(where, call.emit(eq, *call.operands(kept, 1.0)), x, trained)


for _function in (Dropout2d, Dropout3d, StochasticDepth, AlphaDropout):
    function(_function())
