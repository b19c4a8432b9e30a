"""Scaled dot-product attention (Vaswani et al. 2017); the gradient recomputes probabilities (Dao et al. 2022)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import reduce
from math import prod
from typing import TYPE_CHECKING, Any

from dslc.compiler.ir.graph import Attr, Attrs, Node, Value
from dslc.compiler.ir.op import Builder, Cost, NoGradient, Op, register
from dslc.compiler.ir.types import DType, TensorType
from dslc.compiler.ops.attrs import bool_attr, flag_attr, float_attr
from dslc.compiler.ops.constants.constant import constant
from dslc.compiler.ops.constants.masks import tri
from dslc.compiler.ops.elementwise.arithmetic import add, mul
from dslc.compiler.ops.elementwise.selection import where
from dslc.compiler.ops.lazy import np
from dslc.compiler.ops.products.attention_terms import check_bias, check_mask, check_operands, plain, window_of
from dslc.compiler.ops.products.linear import matmul
from dslc.compiler.ops.reduction.softmax import softmax
from dslc.compiler.ops.spatial.conv import float_dtype

if TYPE_CHECKING:
    from dslc.compiler.ir.op import Array

_STATISTIC = {DType.F16: DType.F32, DType.BF16: DType.F32}


def _allowed(q: Array, k: Array, terms: Sequence[Array], attrs: Mapping[str, Any]) -> Array | None:
    """The b1 mask of permitted scores, broadcast to [..., Tq, Tk]; None: all."""
    window, found = window_of(attrs), [x for x in terms if x.dtype == bool]
    if attrs["causal"]:
        found.append(np.tri(q.shape[-2], k.shape[-2], dtype=bool))
    if window:
        ahead = np.arange(k.shape[-2]) - np.arange(q.shape[-2])[:, None]
        found.append(np.abs(ahead) < window)
    return reduce(np.logical_and, found) if found else None


def _repeated(q: Array, *xs: Array) -> list[Array]:
    """k and v with a head for each of q's."""
    return [x if x.ndim < 3 else np.repeat(x, q.shape[-3] // x.shape[-3], axis=-3) if x.shape[-3] else x for x in xs]


def _shared(x: Array, like: Array) -> Array:
    """The gradient of ``_repeated``."""
    if x.shape == like.shape:
        return x
    found: Array = x.reshape(*like.shape[:-2], -1, *like.shape[-2:]).sum(-3)
    return found


def _scores(q: Array, k: Array, terms: Sequence[Array], attrs: Mapping[str, Any]) -> Array:
    """[..., Tq, Tk], minus infinity for masked pairs."""
    scores = np.matmul(q, k.swapaxes(-1, -2)) * q.dtype.type(attrs["scale"])
    for bias in (x for x in terms if x.dtype != bool):
        scores = scores + bias
    allowed = _allowed(q, k, terms, attrs)
    result: Array = scores if allowed is None else np.where(allowed, scores, q.dtype.type(-np.inf))
    return result


def _probabilities(scores: Array, lse: Array) -> Array:
    """exp(scores - lse), and 0 in fully masked rows (their lse is minus infinity)."""
    result: Array = np.exp(scores - np.where(np.isneginf(lse), lse.dtype.type(0), lse)[..., None])
    return result


def _summed_to(x: Array, shape: tuple[int, ...]) -> Array:
    """The sum over the axes along which a tensor of this shape is broadcast."""
    x = x.sum(tuple(range(x.ndim - len(shape))))
    found: Array = x.sum(tuple(axis for axis, size in enumerate(shape) if size == 1), keepdims=True)
    return found


def _flops(q: TensorType, k: TensorType, v: TensorType, by_features: int, by_values: int) -> int:
    """Matrix products of these widths over all pairs of positions, and eight operations per pair for the softmax."""
    pairs = prod(q.ints[:-1]) * k.ints[-2]
    return pairs * (2 * by_features * q.ints[-1] + 2 * by_values * v.ints[-1] + 8)


class Sdpa(Op):
    """sdpa(q, k, v): ``softmax(scale * q k^T) v`` over the last two axes.

    q ``[..., Tq, d]``, k ``[..., Tk, d]``, v ``[..., Tk, e]`` -> y ``[..., Tq, e]``, and the log of each row's sum of
    exponentials ``[..., Tq]`` (f32 for 16-bit floats), which the gradient reads. k and v may have fewer heads, on axis
    -3, each of which then serves as many consecutive heads of q. Two more inputs may follow, which broadcast to
    ``[..., Tq, Tk]``: a b1 mask, true where attention is allowed, and a bias of q's dtype, which is added to the scaled
    scores. ``causal`` masks later positions, and ``window``, if it is there, those as many or more positions away
    (both: Tq = Tk). A query whose scores are all masked or minus infinity gives 0. Attribute ``scale``: a float.
    """

    name = "sdpa"
    kernel_kind = "attention"
    needs = (frozenset({"x0", "x1", "x2", "x3", "x4", "y0", "y1"}),)

    def infer(self, types: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
        q, k, v, *terms = types
        dtype = float_dtype("sdpa", [q, k, v])
        check_operands(q, k, v, bool_attr(attrs, "causal") or window_of(attrs) > 0)
        assert [t.dtype is DType.B1 for t in terms] in ([], [True], [False], [True, False]), "a mask, then a bias"
        for t in terms:
            (check_mask if t.dtype is DType.B1 else check_bias)(q, k, t)
        return TensorType(dtype, (*q.shape[:-1], v.shape[-1])), TensorType(_STATISTIC.get(dtype, dtype), q.shape[:-1])

    def grad(self, node: Node, dys: Sequence[Value | None], b: Builder) -> Sequence[Value | None]:
        if dys[1] is not None:
            raise NoGradient("no gradient flows through the statistics of `sdpa`")
        assert dys[0] is not None
        q, k, v, *terms = node.inputs
        more: dict[str, Attr] = {"bias": True} if terms and terms[-1].type.dtype is not DType.B1 else {}
        found = b.node(sdpa_grad, q, k, v, *node.outputs, dys[0], *terms, **node.attrs, **more).outputs
        return *found[:3], *[None] * (len(terms) - len(more)), *found[3:]

    def in_gradient(self, node: Node, b: Builder) -> Sequence[Value | None]:
        q, k, v, *terms = node.inputs
        heads, mask, bias, causal = plain(b, q, k, terms, node.attrs)
        masks = [] if mask is None else [mask]
        if causal:
            masks.append(b(tri, shape=(q.type.shape[-2], k.type.shape[-2]), diagonal=0))
        s = b(matmul, heads.joined(q), k, transpose_a=False, transpose_b=True)
        s = b(mul, s, constant(b, float_attr(node.attrs, "scale"), q))
        s = s if bias is None else b(add, s, bias)
        for mask in masks:
            s = b(where, mask, s, constant(b, -math.inf, q))
        p = b(softmax, s, axis=s.type.rank - 1)
        for mask in masks:  # a query that may see nothing: nan so far
            p = b(where, mask, p, constant(b, 0.0, q))
        return [heads.apart(b(matmul, p, v, transpose_a=False, transpose_b=False)), None]

    def meaning(self, xs: Sequence[Array], attrs: Mapping[str, Any]) -> Sequence[Array]:
        q, k, v, *terms = xs
        k, v = _repeated(q, k, v)
        with np.errstate(all="ignore"):
            scores = _scores(q, k, terms, attrs)
            top = np.max(scores, axis=-1, keepdims=True)
            top = np.where(np.isneginf(top), top.dtype.type(0), top)
            weights = np.exp(scores - top)
            total = np.sum(weights, axis=-1, keepdims=True)
            y = np.matmul(weights / np.where(total == 0, total.dtype.type(1), total), v)
            return y, (np.log(total) + top).squeeze(-1)

    def cost(self, node: Node) -> Cost:
        q, k, v = node.input_types[:3]
        return Cost(_flops(q, k, v, 1, 1), sum(t.bytes for t in (*node.input_types, *node.types)))

    def rows(self, node: Node, axes: Sequence[int | None]) -> tuple[int | None, ...] | None:
        return _rows(node, axes, 3)


def _rows(node: Node, axes: Sequence[int | None], masks_from: int) -> tuple[int | None, ...] | None:
    """Every leading axis is independent; a mask must have the rows on the same axis, or broadcast over them."""
    rank = node.input_types[0].rank
    main = axes[0]
    if main is None:
        return (None,) * len(node.outputs) if all(a is None for a in axes) else None
    masks = zip(axes[masks_from:], node.input_types[masks_from:])
    same = all(a == main for a in axes[1 : min(3, masks_from)])
    grouped = main == rank - 3 and node.input_types[0].shape[main] != node.input_types[1].shape[main]
    if main >= rank - 2 or grouped or not same or any(a is not None and a + rank - t.rank != main for a, t in masks):
        return None
    return (main,) * len(node.outputs)


class SdpaGrad(Op):
    """sdpa_grad(q, k, v, y, lse, dy): the gradients of ``sdpa`` in q, k and v; its mask and bias are the last inputs.

    With the probabilities P, recomputed from q, k and lse: ``dv = P^T dy``, ``dS = P * (dy v^T - sum(dy*y))``,
    ``dq = scale * dS k``, ``dk = scale * dS^T q``. With the attribute ``bias``, a fourth result is the gradient of the
    bias: dS, summed over the axes along which it is broadcast.
    """

    name = "sdpa_grad"
    kernel_kind = "attention gradient"
    statistics = (4,)

    def infer(self, types: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
        q, k, v, y, lse, dy, *terms = types
        assert (y, lse) == sdpa.infer([q, k, v, *terms], attrs) and dy == y
        return q, k, v, *(terms[-1:] if flag_attr(attrs, "bias") else ())

    def grad(self, node: Node, dys: Sequence[Value | None], b: Builder) -> Sequence[Value | None]:
        raise NoGradient("`gradient` composes `sdpa` of other ops")

    def meaning(self, xs: Sequence[Array], attrs: Mapping[str, Any]) -> Sequence[Array]:
        q, keys, values, y, lse, dy, *terms = xs
        k, v = _repeated(q, keys, values)
        scale = q.dtype.type(attrs["scale"])
        with np.errstate(all="ignore"):
            scores = _scores(q, k, terms, attrs)
            weights = _probabilities(scores, lse)
            slope = np.matmul(dy, v.swapaxes(-1, -2)) - np.sum(dy * y, axis=-1, keepdims=True)
            raw = weights * slope
            slope = raw * scale
            return (
                np.matmul(slope, k),
                _shared(np.matmul(slope.swapaxes(-1, -2), q), keys),
                _shared(np.matmul(weights.swapaxes(-1, -2), dy), values),
                *([_summed_to(raw, terms[-1].shape)] if attrs.get("bias") else []),
            )

    def cost(self, node: Node) -> Cost:
        q, k, v = node.input_types[:3]
        return Cost(_flops(q, k, v, 3, 2), sum(t.bytes for t in (*node.input_types, *node.types)))

    def rows(self, node: Node, axes: Sequence[int | None]) -> tuple[int | None, ...] | None:
        if flag_attr(node.attrs, "bias"):
            return None  # the gradient of a bias sums over rows
        return _rows(node, axes, 6) if all(a == axes[0] for a in axes[:6]) else None


sdpa = register(Sdpa())
sdpa_grad = register(SdpaGrad())
