"""Group normalisation (Wu and He 2018): per row and group of channels; instancenorm: per row and channel."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import TYPE_CHECKING, Any

from dslc.compiler.ir.function import Call, Function, function
from dslc.compiler.ir.graph import Attrs, Node, Value
from dslc.compiler.ir.op import Builder, Cost, Mismatch, NoGradient, Op, register
from dslc.compiler.ir.sizes import exact_div, product, to_fix
from dslc.compiler.ir.types import TensorType
from dslc.compiler.ops.attrs import float_attr, int_attr
from dslc.compiler.ops.elementwise.arithmetic import add, mul
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
from dslc.compiler.ops.shape.views import reshape
from dslc.compiler.ops.spatial.windows import spatial_axes

if TYPE_CHECKING:
    from dslc.compiler.ir.op import Array


def _grouped(x: Array, groups: int) -> Array:
    """x [B, C, *space] as [B, groups, elements of a group]."""
    return x.reshape(x.shape[0], groups, prod(x.shape[1:]) // groups)


def _column(v: Array, x: Array) -> Array:
    """A vector over channels, shaped to broadcast against x."""
    return v.reshape(-1, *(1,) * (x.ndim - 2))


class GroupNorm(Op):
    """groupnorm(x, weight, bias): normalises x ``[B, C, *space]`` over each of ``groups`` groups of channels.

    Outputs: y like x; mean and 1/std ``[B, groups]``, which the gradient reads. Attributes ``groups``, a divisor of C,
    and ``eps``; with the biased variance; ``weight`` and ``bias`` are ``[C]``.
    """

    name = "groupnorm"
    mirror = True
    statistics = (1, 2)
    needs = (frozenset({"x0", "x1", "y1", "y2"}),)

    def infer(self, types: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
        x, *vectors = types
        groups = int_attr(attrs, "groups")
        if x.rank < 2:
            raise Mismatch(f"`groupnorm` needs [batch, channels, ...], got {x}", "`reshape` to rank 2 or more")
        if groups < 1 or exact_div(x.shape[1], groups) is None:
            raise Mismatch(
                f"{x.shape[1]} channels are not divisible by {groups} groups", "a divisor of the channels", "E0303"
            )
        dtype = statistics_dtype("groupnorm", x, vectors)
        require_vectors("groupnorm", x.shape[1], vectors)
        if product(x.shape[1:]) == 0:
            raise Mismatch(f"`groupnorm` over no elements: {x}", "give every axis at least one element", "E0308")
        statistic = TensorType(dtype, (x.shape[0], groups))
        return x, statistic, statistic

    def grad(self, node: Node, dys: Sequence[Value | None], b: Builder) -> Sequence[Value | None]:
        if any(dy is not None for dy in dys[1:]):
            raise NoGradient("no gradient flows through the statistics of `groupnorm`")
        assert dys[0] is not None
        x, weight, _ = node.inputs
        return b.node(groupnorm_grad, x, weight, *node.outputs[1:], dys[0]).outputs

    def in_gradient(self, node: Node, b: Builder) -> Sequence[Value | None]:
        x, groups = node.inputs[0], int_attr(node.attrs, "groups")
        weight, bias = (along(b, v, 1, x.type.rank) for v in node.inputs[1:])
        shape = x.type.ints
        lines = b(reshape, x, shape=(shape[0], groups, prod(shape[1:]) // groups))
        y = b(reshape, normalised(b, lines, (2,), float_attr(node.attrs, "eps")), shape=shape)
        return [b(add, b(mul, y, weight), bias), None, None]

    def meaning(self, xs: Sequence[Array], attrs: Mapping[str, Any]) -> Sequence[Array]:
        x, weight, bias = xs
        inner = weight.dtype
        wide = _grouped(x.astype(inner, copy=False), attrs["groups"])
        with np.errstate(all="ignore"):
            mean, var = moments(wide, (2,))
            invstd = 1 / np.sqrt(var + inner.type(attrs["eps"]))
            y = ((wide - mean) * invstd).reshape(x.shape) * _column(weight, x) + _column(bias, x)
        return y.astype(x.dtype, copy=False), mean.squeeze(2), invstd.squeeze(2)

    def cost(self, node: Node) -> Cost:
        return Cost(8 * prod(node.types[0].ints), sum(t.bytes for t in (*node.input_types, *node.types)))

    def rows(self, node: Node, axes: Sequence[int | None]) -> tuple[int | None, ...] | None:
        return (axes[0],) * 3 if axes[0] in (0, None) and axes[1] is axes[2] is None else None


class GroupNormGrad(Op):
    """groupnorm_grad(x, weight, mean, invstd, dy): the gradients of ``groupnorm`` in x, weight and bias.

    As for ``layernorm_grad``, with a group of channels as the row.
    """

    name = "groupnorm_grad"
    statistics = (1, 2, 3)

    def infer(self, types: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
        x, weight, mean, invstd, dy = types
        assert dy == x and mean == invstd and mean.rank == 2 and weight.shape == (x.shape[1],)
        return x, weight, weight

    def grad(self, node: Node, dys: Sequence[Value | None], b: Builder) -> Sequence[Value | None]:
        raise NoGradient("`gradient` composes `groupnorm` of other ops")

    def meaning(self, xs: Sequence[Array], attrs: Mapping[str, Any]) -> Sequence[Array]:
        x, weight, mean, invstd, dy = xs
        inner, groups = weight.dtype, mean.shape[1]
        others = (0, *range(2, x.ndim))
        with np.errstate(all="ignore"):
            scale = invstd[:, :, None]
            xhat = (_grouped(x.astype(inner, copy=False), groups) - mean[:, :, None]) * scale
            g = dy.astype(inner, copy=False)
            dx = through_moments(_grouped(g * _column(weight, x), groups), xhat, scale, (2,)).reshape(x.shape)
            dweight = np.sum(g * xhat.reshape(x.shape), axis=others)
        return dx.astype(x.dtype, copy=False), dweight, np.sum(g, axis=others)

    def cost(self, node: Node) -> Cost:
        return Cost(12 * prod(node.types[0].ints), sum(t.bytes for t in (*node.input_types, *node.types)))


groupnorm = register(GroupNorm())
groupnorm_grad = register(GroupNormGrad())


class GroupNormFunction(Function):
    """groupnorm(x, groups, eps=1e-5, affine=true): normalises ``[B, C, *space]`` over groups of channels, per row.

    With ``affine`` it then scales and shifts: ``weight`` [C] starts at 1, ``bias`` [C] at 0.

    given: x: [B, 32, 14, 14]
    >>> y = groupnorm(x, 8)
    """

    name = "groupnorm"

    def build(self, call: Call, x: Value, groups: int, *, eps: float = 1e-5, affine: bool = True) -> Value:
        if x.type.rank < 2:
            raise Mismatch(f"`groupnorm` needs [batch, channels, ...], got {x.type}", "`reshape` to rank 2 or more")
        check_eps("groupnorm", eps)
        weight, bias = scale_and_shift(call, x, (x.type.shape[1],), affine)
        return call.emit_all(groupnorm, x, weight, bias, groups=groups, eps=float(eps))[0]


class InstanceNormFunction(Function):
    """instancenorm(x, eps=1e-5, affine=false): normalises each channel of each image of ``[B, C, *space]`` separately.

    Ulyanov, Vedaldi and Lempitsky 2016: ``groupnorm`` with a group for each channel. With ``affine`` it then scales and
    shifts: ``weight`` [C] starts at 1, ``bias`` [C] at 0.

    given: x: [B, 32, 14, 14]
    >>> y = instancenorm(x)
    """

    name = "instancenorm"

    def build(self, call: Call, x: Value, *, eps: float = 1e-5, affine: bool = False) -> Value:
        spatial_axes("instancenorm", x.type)
        channels = x.type.shape[1]
        if not isinstance(channels, int):
            raise Mismatch(f"`instancenorm` of {x.type}: the channels are a dim", to_fix(channels), "E0307")
        check_eps("instancenorm", eps)
        weight, bias = scale_and_shift(call, x, (channels,), affine)
        return call.emit_all(groupnorm, x, weight, bias, groups=channels, eps=float(eps))[0]


function(GroupNormFunction())
function(InstanceNormFunction())
