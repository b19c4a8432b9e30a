"""Batch normalisation (Ioffe and Szegedy 2015), with PyTorch's running statistics."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import TYPE_CHECKING, Any

from dslc.base.words import of_percentage
from dslc.compiler.ir.function import Call, Function, function
from dslc.compiler.ir.graph import Attrs, Node, Value
from dslc.compiler.ir.op import Builder, Cost, Mismatch, NoGradient, Op, register
from dslc.compiler.ir.sizes import product
from dslc.compiler.ir.types import TensorType
from dslc.compiler.ops.attrs import float_attr
from dslc.compiler.ops.constants.constant import constant as scalar_like
from dslc.compiler.ops.elementwise.arithmetic import add, mul, sub
from dslc.compiler.ops.elementwise.convert import cast
from dslc.compiler.ops.elementwise.powers import rsqrt
from dslc.compiler.ops.lazy import np
from dslc.compiler.ops.normalization.moments import (
    along,
    check_eps,
    moments,
    normalised,
    require_vectors,
    scale_and_shift,
    statistics_dtype,
    through_moments,
)
from dslc.compiler.ops.random.init import constant
from dslc.compiler.ops.shape.views import reshape

if TYPE_CHECKING:
    from dslc.compiler.ir.op import Array


def _axes(x: Array) -> tuple[int, ...]:
    """All axes except the channels'."""
    return (0, *range(2, x.ndim))


def _column(v: Array, x: Array) -> Array:
    """A vector over channels, shaped to broadcast against x."""
    return v.reshape(-1, *(1,) * (x.ndim - 2))


class BatchNorm(Op):
    """batchnorm(x, weight, bias, running_mean, running_var): normalises each channel (axis 1) over the batch.

    Outputs: y like x; the new running mean and variance; the batch's mean and 1/std, which the gradient reads. All but
    y are ``[C]``. Attributes ``eps`` and ``momentum``: ``y = (x - mean) / sqrt(var + eps) * weight + bias`` with the
    biased variance; ``running = (1 - momentum)*running + momentum*new`` with the unbiased one, as in PyTorch. A channel
    with a single value has variance 0 (PyTorch refuses it).

    In evaluation the running statistics replace the batch's, and rows are independent.
    """

    name = "batchnorm"
    mirror = True
    statistics = (1, 2, 3, 4)
    needs = (frozenset({"x0", "x1", "y3", "y4"}),)
    inplace = ((3, 1), (4, 2))

    def infer(self, types: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
        x, *vectors = types
        assert len(vectors) == 4
        if x.rank < 2:
            raise Mismatch(f"`batchnorm` needs [batch, channels, ...], got {x}", "`reshape` to rank 2 or more")
        dtype = statistics_dtype("batchnorm", x, vectors)
        require_vectors("batchnorm", x.shape[1], vectors)
        if product((x.shape[0], *x.shape[2:])) == 0:
            raise Mismatch(f"`batchnorm` over no elements: {x}", "give every axis at least one element", "E0308")
        return (x, *[TensorType(dtype, (x.shape[1],))] * 4)

    def grad(self, node: Node, dys: Sequence[Value | None], b: Builder) -> Sequence[Value | None]:
        if any(dy is not None for dy in dys[1:]):
            raise NoGradient("no gradient flows through the statistics of `batchnorm`")
        assert dys[0] is not None
        x, weight = node.inputs[:2]
        return *b.node(batchnorm_grad, x, weight, *node.outputs[3:], dys[0]).outputs, None, None

    def in_gradient(self, node: Node, b: Builder) -> Sequence[Value | None]:
        x = node.inputs[0]
        weight, bias = (along(b, v, 1, x.type.rank) for v in node.inputs[1:3])
        over = (0, *range(2, x.type.rank))
        y = normalised(b, x, over, float_attr(node.attrs, "eps"))
        return [b(add, b(mul, y, weight), bias), *[None] * 4]

    def meaning(self, xs: Sequence[Array], attrs: Mapping[str, Any]) -> Sequence[Array]:
        x, weight, bias, running_mean, running_var = xs
        inner = weight.dtype
        wide = x.astype(inner, copy=False)
        with np.errstate(all="ignore"):
            mean, var = moments(wide, _axes(x))
            invstd = 1 / np.sqrt(var + inner.type(attrs["eps"]))
            y = (wide - mean) * (invstd * _column(weight, x)) + _column(bias, x)
            count = x.size // x.shape[1]
            keep, take = inner.type(1 - attrs["momentum"]), inner.type(attrs["momentum"])
            unbiased = var.reshape(-1) * inner.type(count / max(1, count - 1))
            return (
                y.astype(x.dtype, copy=False),
                keep * running_mean + take * mean.reshape(-1),
                keep * running_var + take * unbiased,
                mean.reshape(-1),
                invstd.reshape(-1).astype(inner, copy=False),
            )

    def cost(self, node: Node) -> Cost:
        return Cost(8 * prod(node.types[0].ints), sum(t.bytes for t in (*node.input_types, *node.types)))

    def in_eval(self, node: Node, b: Builder) -> Sequence[Value]:
        x, weight, bias, running_mean, running_var = node.inputs
        eps = scalar_like(b, float_attr(node.attrs, "eps"), running_var)
        invstd = b(rsqrt, b(add, running_var, eps))
        column = (weight.type.shape[0], *(1,) * (x.type.rank - 2))

        def over_channels(v: Value) -> Value:
            return b(reshape, v, shape=column)

        wide = x if x.type.dtype is weight.type.dtype else b(cast, x, dtype=weight.type.dtype)
        scale = over_channels(b(mul, invstd, weight))
        y = b(add, b(mul, b(sub, wide, over_channels(running_mean)), scale), over_channels(bias))
        if wide is not x:
            y = b(cast, y, dtype=x.type.dtype)
        return y, running_mean, running_var, running_mean, invstd


class BatchNormGrad(Op):
    """batchnorm_grad(x, weight, mean, invstd, dy): the gradients of ``batchnorm`` in x, weight and bias.

    With ``xhat = (x - mean)*invstd``: ``dbias = sum(dy)``, ``dweight = sum(dy*xhat)``, and
    ``dx = weight*invstd*(dy - mean(dy) - xhat*mean(dy*xhat))``, sums and means over all axes but 1.
    """

    name = "batchnorm_grad"
    statistics = (1, 2, 3)

    def infer(self, types: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
        x, weight, mean, invstd, dy = types
        assert dy == x and mean == invstd == weight and weight.shape == (x.shape[1],)
        return x, weight, weight

    def grad(self, node: Node, dys: Sequence[Value | None], b: Builder) -> Sequence[Value | None]:
        raise NoGradient("`gradient` composes `batchnorm` of other ops")

    def meaning(self, xs: Sequence[Array], attrs: Mapping[str, Any]) -> Sequence[Array]:
        x, weight, mean, invstd, dy = xs
        inner = weight.dtype
        with np.errstate(all="ignore"):
            scale = _column(invstd, x)
            xhat = (x.astype(inner, copy=False) - _column(mean, x)) * scale
            g = dy.astype(inner, copy=False)
            dx = through_moments(g * _column(weight, x), xhat, scale, _axes(x))
            return dx.astype(x.dtype, copy=False), np.sum(g * xhat, axis=_axes(x)), np.sum(g, axis=_axes(x))

    def cost(self, node: Node) -> Cost:
        return Cost(11 * prod(node.types[0].ints), sum(t.bytes for t in (*node.input_types, *node.types)))


batchnorm = register(BatchNorm())
batchnorm_grad = register(BatchNormGrad())


class BatchNormFunction(Function):
    """batchnorm(x, eps=1e-5, momentum=0.1, affine=true): normalises each channel (axis 1) over all other axes.

    Training uses the batch's mean and biased variance, and updates the buffers ``running_mean`` and ``running_var`` by
    ``momentum`` (the latter with the unbiased variance); evaluation uses the buffers. With ``affine`` it scales and
    shifts: ``weight`` starts at 1, ``bias`` at 0. All are ``[C]``, as in PyTorch. A shared layer updates its buffers
    once per call, in order.

    given: x: [B, 8, 14, 14]
    >>> y = batchnorm(x)
    """

    name = "batchnorm"

    def build(self, call: Call, x: Value, *, eps: float = 1e-5, momentum: float = 0.1, affine: bool = True) -> Value:
        if x.type.rank < 2:
            raise Mismatch(f"`batchnorm` needs [batch, channels, ...], got {x.type}", "`reshape` to rank 2 or more")
        check_eps("batchnorm", eps, above_zero=True)
        if not 0 <= momentum <= 1:
            help = of_percentage(momentum) or "between 0 and 1, such as 0.1"
            raise Mismatch(f"`momentum` of `batchnorm` is {momentum:g}", help, "E0209")
        shape = (x.type.shape[1],)
        weight, bias = scale_and_shift(call, x, shape, affine)
        mean = call.buffer("running_mean", shape, constant(0))
        var = call.buffer("running_var", shape, constant(1))
        y, new_mean, new_var, _, _ = call.emit_all(
            batchnorm, x, weight, bias, mean, var, eps=float(eps), momentum=float(momentum)
        )
        call.update("running_mean", new_mean)
        call.update("running_var", new_var)
        return y


function(BatchNormFunction())
