"""Norms that are composed: local_response_norm; spectral_norm and weight_norm of weights."""

from __future__ import annotations

from dslc.compiler.ir.function import Axis, Call, Function, Init, function
from dslc.compiler.ir.graph import Value
from dslc.compiler.ir.op import Mismatch
from dslc.compiler.ir.sizes import product
from dslc.compiler.ops.axes import from_zero
from dslc.compiler.ops.elementwise.arithmetic import add, div, mul
from dslc.compiler.ops.elementwise.convert import stop_gradient
from dslc.compiler.ops.elementwise.powers import pow_
from dslc.compiler.ops.elementwise.selection import maximum
from dslc.compiler.ops.normalization.moments import check_eps
from dslc.compiler.ops.products.linear import matmul
from dslc.compiler.ops.reduction.distance import norm
from dslc.compiler.ops.reduction.reduce import sum_
from dslc.compiler.ops.shape.slicing import pad
from dslc.compiler.ops.shape.views import reshape
from dslc.compiler.ops.spatial.pool import avgpool


class LocalResponseNorm(Function):
    """local_response_norm(x, size, alpha=1e-4, beta=0.75, k=1): divides each channel of ``[B, C, *space]``
    by a power of the mean square of its neighbouring channels.

    ``x / (k + alpha * m)^beta``, with m the mean square of ``size`` neighbouring channels; channels outside of
    0..C-1 count as 0 (Krizhevsky et al. 2012; PyTorch's).

    given: x: [B, 32, 14, 14]
    >>> y = local_response_norm(x, 5)
    """

    name = "local_response_norm"

    def build(self, call: Call, x: Value, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0) -> Value:
        shape, rest = x.type.shape, max(0, x.type.rank - 2)
        if x.type.rank < 2:
            raise Mismatch(f"`local_response_norm` needs [batch, channels, ...], got {x.type}", "`reshape` it")
        if size < 1:
            raise Mismatch(f"`size` of `local_response_norm` is {size}", "a number of channels, such as 5", "E0209")
        squares = call.emit(reshape, call.emit(mul, x, x), shape=(shape[0], 1, shape[1], product(shape[2:])))
        low, high = (0, 0, size // 2, 0), (0, 0, (size - 1) // 2, 0)
        padded = call.emit(pad, squares, low=low, high=high, interior=(0,) * 4, value=0.0)
        means = call.emit(avgpool, padded, k=(size, 1), stride=(1, 1), pad=(0, 0))
        whole = call.emit(mul, call.emit(reshape, means, shape=(*shape[:2], *shape[2 : 2 + rest])), call.full(alpha))
        return call.emit(div, x, call.emit(pow_, call.emit(add, whole, call.full(k)), call.full(beta)))


class SpectralNorm(Function):
    """spectral_norm(w, eps=1e-12): a weight ``[out, ...]`` divided by its greatest singular value (Miyato et al. 2018).

    The value is estimated by one step of power iteration from the buffer ``u`` [out], which training updates; no
    gradient flows through the singular vectors.

    given: x: [B, 16], w: [8, 16]
    >>> y = x @ transpose(spectral_norm(w))
    """

    name = "spectral_norm"

    def build(self, call: Call, w: Value, eps: float = 1e-12) -> Value:
        if w.type.rank < 2:
            raise Mismatch(f"`spectral_norm` of {w.type}", "a weight of rank 2 or more: [out, ...]", "E0306")
        check_eps(self.name, eps)
        out, *rest = w.type.shape
        flat = call.emit(reshape, w, shape=(out, product(tuple(rest))))
        fixed = call.emit(stop_gradient, flat)
        u = call.buffer("u", (out,), Init("normal", (0.0, 1.0)))
        straight = {"transpose_a": False, "transpose_b": False}
        column = call.emit(reshape, u, shape=(out, 1))
        v = _unit(call, call.emit(matmul, fixed, column, transpose_a=True, transpose_b=False), eps)
        new = _unit(call, call.emit(matmul, fixed, v, **straight), eps)
        call.update("u", call.emit(reshape, new, shape=(out,)))
        greatest = call.emit(sum_, call.emit(mul, new, call.emit(matmul, flat, v, **straight)), over=(0, 1), keep=False)
        return call.emit(div, w, greatest)


def _unit(call: Call, x: Value, eps: float) -> Value:
    """The vector with length 1."""
    length = call.emit(norm, x, over=(0, 1), keep=False, p=2.0)
    return call.emit(div, x, call.emit(maximum, length, call.full(eps)))


class WeightNorm(Function):
    """weight_norm(v, g, axis=0): the weight ``v`` rescaled to norms ``g`` (Salimans and Kingma 2016).

    ``v * g / |v|``, with a norm for each index of the axis, taken over all other axes. ``g`` is a vector, or has
    size 1 on the other axes, as PyTorch's ``original0``.

    given: x: [B, 16], v: [8, 16], g: [8]
    >>> y = x @ transpose(weight_norm(v, g))
    """

    name = "weight_norm"

    def build(self, call: Call, v: Value, g: Value, axis: Axis = 0) -> Value:
        at = from_zero(self.name, v.type, axis)
        if v.type.rank < 2:
            raise Mismatch(f"`weight_norm` of {v.type}", "a weight of rank 2 or more: [out, ...]", "E0306")
        shape = tuple(n if i == at else 1 for i, n in enumerate(v.type.shape))
        if g.type.shape not in (shape, shape[at : at + 1]):
            raise Mismatch(
                f"`g` of `weight_norm` is {g.type} for {v.type}", f"one length for each of {shape[at]}", "E0302"
            )
        wanted = g if g.type.shape == shape else call.emit(reshape, g, shape=shape)
        length = call.emit(norm, v, over=tuple(i for i in range(v.type.rank) if i != at), keep=True, p=2.0)
        return call.emit(mul, v, call.emit(div, wanted, length))


function(LocalResponseNorm())
function(WeightNorm())
function(SpectralNorm())
