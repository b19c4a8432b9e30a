"""Normalisation of rows: layernorm (Ba, Kiros and Hinton 2016) and rmsnorm (Zhang and Sennrich 2019)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import TYPE_CHECKING, Any

from dslc.compiler.ir.function import Axes, Call, Function, function
from dslc.compiler.ir.graph import Attrs, Node, Value
from dslc.compiler.ir.op import Builder, Cost, NoGradient, Op, register
from dslc.compiler.ir.sizes import product
from dslc.compiler.ir.types import TensorType
from dslc.compiler.ops.attrs import float_attr, int_attr
from dslc.compiler.ops.axes import adjacent
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

if TYPE_CHECKING:
    from dslc.compiler.ir.op import Array


def _along(v: Array, axis: int, x: Array) -> Array:
    """A vector reshaped to lie along an axis of x."""
    return v.reshape(-1, *(1,) * (x.ndim - 1 - axis))


def _others(axis: int, x: Array) -> tuple[int, ...]:
    return tuple(i for i in range(x.ndim) if i != axis)


def _infer(op: str, types: Sequence[TensorType], attrs: Attrs) -> TensorType:
    """The type of a statistic: x without its axis."""
    x, *vectors = types
    axis = int_attr(attrs, "axis")
    assert 0 <= axis < x.rank
    dtype = statistics_dtype(op, x, vectors)
    require_vectors(op, x.shape[axis], vectors)
    return TensorType(dtype, x.shape[:axis] + x.shape[axis + 1 :])


def _moved(node: Node) -> int:
    return sum(t.bytes for t in (*node.input_types, *node.types))


def _rows(node: Node, rows: int | None, statistics: int) -> tuple[int | None, ...] | None:
    axis = int_attr(node.attrs, "axis")
    if rows == axis:
        return None
    return (rows, *[None if rows is None else rows - (rows > axis)] * statistics)


class LayerNorm(Op):
    """layernorm(x, weight, bias): normalises x along an axis: ``(x - mean) / sqrt(var + eps) * weight + bias``.

    Outputs: y like x; mean and 1/std, which the gradient reads, with the shape of x without the axis. Attributes
    ``axis`` (from 0) and ``eps``; the variance is the biased one.
    """

    name = "layernorm"
    mirror = True
    statistics = (1, 2)
    needs = (frozenset({"x0", "x1", "y1", "y2"}),)

    def infer(self, types: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
        assert len(types) == 3
        statistic = _infer("layernorm", types, attrs)
        return types[0], statistic, statistic

    def grad(self, node: Node, dys: Sequence[Value | None], b: Builder) -> Sequence[Value | None]:
        if any(dy is not None for dy in dys[1:]):
            raise NoGradient("no gradient flows through the statistics of `layernorm`")
        assert dys[0] is not None
        x, weight, _ = node.inputs
        return b.node(layernorm_grad, x, weight, *node.outputs[1:], dys[0], axis=node.attrs["axis"]).outputs

    def in_gradient(self, node: Node, b: Builder) -> Sequence[Value | None]:
        x, axis = node.inputs[0], int_attr(node.attrs, "axis")
        weight, bias = (along(b, v, axis, x.type.rank) for v in node.inputs[1:])
        y = normalised(b, x, (axis,), float_attr(node.attrs, "eps"))
        return [b(add, b(mul, y, weight), bias), None, None]

    def meaning(self, xs: Sequence[Array], attrs: Mapping[str, Any]) -> Sequence[Array]:
        x, weight, bias = xs
        inner, axis = weight.dtype, attrs["axis"]
        wide = x.astype(inner, copy=False)
        with np.errstate(all="ignore"):
            mean, var = moments(wide, (axis,))
            invstd = 1 / np.sqrt(var + inner.type(attrs["eps"]))
            y = (wide - mean) * invstd * _along(weight, axis, x) + _along(bias, axis, x)
        return y.astype(x.dtype, copy=False), mean.squeeze(axis), invstd.squeeze(axis)

    def cost(self, node: Node) -> Cost:
        return Cost(8 * prod(node.types[0].ints), _moved(node))

    def rows(self, node: Node, axes: Sequence[int | None]) -> tuple[int | None, ...] | None:
        return _rows(node, axes[0], 2) if axes[1] is axes[2] is None else None


class LayerNormGrad(Op):
    """layernorm_grad(x, weight, mean, invstd, dy): the gradients of ``layernorm`` in x, weight and bias.

    With ``xhat = (x - mean)*invstd`` and ``g = dy*weight``: ``dx = invstd*(g - mean(g) - xhat*mean(g*xhat))``, means
    along the axis; ``dweight`` and ``dbias`` are the sums of ``dy*xhat`` and ``dy`` over all other axes.
    """

    name = "layernorm_grad"
    statistics = (1, 2, 3)

    def infer(self, types: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
        x, weight, mean, invstd, dy = types
        assert dy == x and mean == invstd == _infer("layernorm", [x, weight], attrs)
        return x, weight, weight

    def grad(self, node: Node, dys: Sequence[Value | None], b: Builder) -> Sequence[Value | None]:
        raise NoGradient("`gradient` composes `layernorm` of other ops")

    def meaning(self, xs: Sequence[Array], attrs: Mapping[str, Any]) -> Sequence[Array]:
        x, weight, mean, invstd, dy = xs
        inner, axis = weight.dtype, attrs["axis"]
        with np.errstate(all="ignore"):
            scale = np.expand_dims(invstd, axis)
            xhat = (x.astype(inner, copy=False) - np.expand_dims(mean, axis)) * scale
            g = dy.astype(inner, copy=False)
            dx = through_moments(g * _along(weight, axis, x), xhat, scale, (axis,))
            others = _others(axis, x)
            return dx.astype(x.dtype, copy=False), np.sum(g * xhat, axis=others), np.sum(g, axis=others)

    def cost(self, node: Node) -> Cost:
        return Cost(12 * prod(node.types[0].ints), _moved(node))


class RmsNorm(Op):
    """rmsnorm(x, weight): divides x along an axis by its root mean square: ``x / sqrt(mean(x^2) + eps) * weight``.

    Outputs: y like x; 1/rms, which the gradient reads, with the shape of x without the axis. Attributes ``axis`` (from
    0) and ``eps``.
    """

    name = "rmsnorm"
    mirror = True
    statistics = (1,)
    needs = (frozenset({"x0", "x1", "y1"}),)

    def infer(self, types: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
        assert len(types) == 2
        return types[0], _infer("rmsnorm", types, attrs)

    def grad(self, node: Node, dys: Sequence[Value | None], b: Builder) -> Sequence[Value | None]:
        if dys[1] is not None:
            raise NoGradient("no gradient flows through the statistics of `rmsnorm`")
        assert dys[0] is not None
        return b.node(rmsnorm_grad, *node.inputs, node.outputs[1], dys[0], axis=node.attrs["axis"]).outputs

    def in_gradient(self, node: Node, b: Builder) -> Sequence[Value | None]:
        x, axis = node.inputs[0], int_attr(node.attrs, "axis")
        y = normalised(b, x, (axis,), float_attr(node.attrs, "eps"), centred=False)
        return [b(mul, y, along(b, node.inputs[1], axis, x.type.rank)), None]

    def meaning(self, xs: Sequence[Array], attrs: Mapping[str, Any]) -> Sequence[Array]:
        x, weight = xs
        inner, axis = weight.dtype, attrs["axis"]
        wide = x.astype(inner, copy=False)
        with np.errstate(all="ignore"):
            scale = 1 / np.sqrt(np.mean(np.square(wide), axis=axis, keepdims=True) + inner.type(attrs["eps"]))
            y = wide * scale * _along(weight, axis, x)
        return y.astype(x.dtype, copy=False), scale.squeeze(axis)

    def cost(self, node: Node) -> Cost:
        return Cost(5 * prod(node.types[0].ints), _moved(node))

    def rows(self, node: Node, axes: Sequence[int | None]) -> tuple[int | None, ...] | None:
        return _rows(node, axes[0], 1) if axes[1] is None else None


class RmsNormGrad(Op):
    """rmsnorm_grad(x, weight, invrms, dy): the gradients of ``rmsnorm`` in x and weight.

    With ``xhat = x*invrms`` and ``g = dy*weight``: ``dx = invrms*(g - xhat*mean(g*xhat))`` along the axis; ``dweight``
    is the sum of ``dy*xhat`` over all other axes.
    """

    name = "rmsnorm_grad"
    statistics = (1, 2)

    def infer(self, types: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
        x, weight, invrms, dy = types
        assert dy == x and invrms == _infer("rmsnorm", [x, weight], attrs)
        return x, weight

    def grad(self, node: Node, dys: Sequence[Value | None], b: Builder) -> Sequence[Value | None]:
        raise NoGradient("`gradient` composes `rmsnorm` of other ops")

    def meaning(self, xs: Sequence[Array], attrs: Mapping[str, Any]) -> Sequence[Array]:
        x, weight, invrms, dy = xs
        inner, axis = weight.dtype, attrs["axis"]
        with np.errstate(all="ignore"):
            scale = np.expand_dims(invrms, axis)
            xhat = x.astype(inner, copy=False) * scale
            g = dy.astype(inner, copy=False)
            slope = g * _along(weight, axis, x)
            dx = (slope - xhat * np.mean(slope * xhat, axis=axis, keepdims=True)) * scale
            return dx.astype(x.dtype, copy=False), np.sum(g * xhat, axis=_others(axis, x))

    def cost(self, node: Node) -> Cost:
        return Cost(9 * prod(node.types[0].ints), _moved(node))


layernorm = register(LayerNorm())
layernorm_grad = register(LayerNormGrad())
rmsnorm = register(RmsNorm())
rmsnorm_grad = register(RmsNormGrad())


def _over(call: Call, op: Op, x: Value, axes: Axes, eps: float, affine: bool, bias: bool) -> Value:
    """A norm of x over adjacent axes, which the op sees as one."""
    start, stop = adjacent(op.name, x.type, axes)
    check_eps(op.name, eps)
    shape = x.type.shape
    vectors = scale_and_shift(call, x, shape[start:stop], affine, bias)[: 1 if op is rmsnorm else 2]
    if stop - start == 1:
        return call.emit_all(op, x, *vectors, axis=start, eps=float(eps))[0]
    flat = call.emit(reshape, x, shape=(*shape[:start], product(shape[start:stop]), *shape[stop:]))
    y = call.emit_all(op, flat, *vectors, axis=start, eps=float(eps))[0]
    return call.emit(reshape, y, shape=shape)


class LayerNormFunction(Function):
    """layernorm(x, axis=-1, eps=1e-5, affine=true, bias=true): normalises to mean 0, variance 1, then scales, shifts.

    ``axis`` may be a list of neighbouring axes, over all of which it normalises together. With ``affine`` there is a
    ``weight``, which starts at 1, and with ``bias`` a ``bias``, which starts at 0; both have the sizes of the axes.

    given: x: [B, 16, 64]
    >>> y = layernorm(x)
    """

    name = "layernorm"

    def build(
        self, call: Call, x: Value, axis: Axes = (-1,), eps: float = 1e-5, affine: bool = True, bias: bool = True
    ) -> Value:
        return _over(call, layernorm, x, axis, eps, affine, bias)


class RmsNormFunction(Function):
    """rmsnorm(x, axis=-1, eps=1e-6, affine=true): divides by the root mean square along an axis, then scales.

    ``axis`` may be a list of neighbouring axes. ``weight``, with ``affine``, starts at 1 and has the sizes of the axes.

    given: x: [B, 16, 64]
    >>> y = rmsnorm(x)
    """

    name = "rmsnorm"

    def build(self, call: Call, x: Value, axis: Axes = (-1,), eps: float = 1e-6, affine: bool = True) -> Value:
        return _over(call, rmsnorm, x, axis, eps, affine, False)


function(LayerNormFunction())
function(RmsNormFunction())
