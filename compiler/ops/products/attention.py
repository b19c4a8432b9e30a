"""Scaled dot-product attention (Vaswani et al. 2017); the gradient recomputes probabilities (Dao et al. 2022)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import reduce
from math import prod
from typing import TYPE_CHECKING, Any

from dslc.compiler.ir.graph import Attrs, Node, Value
from dslc.compiler.ir.op import Builder, Cost, NoGradient, Op, register
from dslc.compiler.ir.types import DType, TensorType
from dslc.compiler.ops.attrs import bool_attr, float_attr
from dslc.compiler.ops.constants.constant import constant
from dslc.compiler.ops.constants.masks import tri
from dslc.compiler.ops.elementwise.arithmetic import mul
from dslc.compiler.ops.elementwise.selection import where
from dslc.compiler.ops.lazy import np
from dslc.compiler.ops.products.attention_terms import check_mask, check_operands, plain, window_of
from dslc.compiler.ops.products.linear import matmul
from dslc.compiler.ops.reduction.softmax import softmax
from dslc.compiler.ops.spatial.conv import float_dtype

if TYPE_CHECKING:
    from dslc.compiler.ir.op import Array

_STATISTIC = {DType.F16: DType.F32, DType.BF16: DType.F32}


def _allowed(q: Array, k: Array, mask: Sequence[Array], attrs: Mapping[str, Any]) -> Array | None:
    """The b1 mask of permitted scores, broadcast to [..., Tq, Tk]; None: all."""
    window, found = window_of(attrs), list(mask)
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


def _scores(q: Array, k: Array, allowed: Array | None, scale: float) -> Array:
    """[..., Tq, Tk], minus infinity for masked pairs."""
    scores = np.matmul(q, k.swapaxes(-1, -2)) * q.dtype.type(scale)
    result: Array = scores if allowed is None else np.where(allowed, scores, q.dtype.type(-np.inf))
    return result


def _probabilities(scores: Array, lse: Array) -> Array:
    """exp(scores - lse), and 0 in fully masked rows (their lse is minus infinity)."""
    result: Array = np.exp(scores - np.where(np.isneginf(lse), lse.dtype.type(0), lse)[..., None])
    return result


def _flops(q: TensorType, k: TensorType, v: TensorType, by_features: int, by_values: int) -> int:
    """Matrix products of these widths over all pairs of positions, and eight operations per pair for the softmax."""
    pairs = prod(q.ints[:-1]) * k.ints[-2]
    return pairs * (2 * by_features * q.ints[-1] + 2 * by_values * v.ints[-1] + 8)


class Sdpa(Op):
    """sdpa(q, k, v): ``softmax(scale * q k^T) v`` over the last two axes.

    q ``[..., Tq, d]``, k ``[..., Tk, d]``, v ``[..., Tk, e]`` -> y ``[..., Tq, e]``, and the log of each row's sum of
    exponentials ``[..., Tq]`` (f32 for 16-bit floats), which the gradient reads. k and v may have fewer heads, on axis
    -3, each of which then serves as many consecutive heads of q. A fourth input, a b1 mask that broadcasts to
    ``[..., Tq, Tk]``, is true where attention is allowed; ``causal`` masks later positions, and ``window``, if it is
    there, those as many or more positions away (both: Tq = Tk). A fully masked query gives 0. Attribute ``scale``: a
    float.
    """

    name = "sdpa"
    kernel_kind = "attention"
    needs = (frozenset({"x0", "x1", "x2", "x3", "y0", "y1"}),)

    def infer(self, types: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
        q, k, v, *mask = types
        dtype = float_dtype("sdpa", [q, k, v])
        check_operands(q, k, v, bool_attr(attrs, "causal") or window_of(attrs) > 0)
        for t in mask:
            check_mask(q, k, t)
        return TensorType(dtype, (*q.shape[:-1], v.shape[-1])), TensorType(_STATISTIC.get(dtype, dtype), q.shape[:-1])

    def grad(self, node: Node, dys: Sequence[Value | None], b: Builder) -> Sequence[Value | None]:
        if dys[1] is not None:
            raise NoGradient("no gradient flows through the statistics of `sdpa`")
        assert dys[0] is not None
        q, k, v, *mask = node.inputs
        found = b.node(sdpa_grad, q, k, v, *node.outputs, dys[0], *mask, **node.attrs).outputs
        return *found, *[None] * len(mask)

    def in_gradient(self, node: Node, b: Builder) -> Sequence[Value | None]:
        q, k, v, *given = node.inputs
        heads, mask, causal = plain(b, q, k, given[0] if given else None, node.attrs)
        masks = [] if mask is None else [mask]
        if causal:
            masks.append(b(tri, shape=(q.type.shape[-2], k.type.shape[-2]), diagonal=0))
        s = b(matmul, heads.joined(q), k, transpose_a=False, transpose_b=True)
        s = b(mul, s, constant(b, float_attr(node.attrs, "scale"), q))
        for mask in masks:
            s = b(where, mask, s, constant(b, -math.inf, q))
        p = b(softmax, s, axis=s.type.rank - 1)
        for mask in masks:  # a query that may see nothing: nan so far
            p = b(where, mask, p, constant(b, 0.0, q))
        return [heads.apart(b(matmul, p, v, transpose_a=False, transpose_b=False)), None]

    def meaning(self, xs: Sequence[Array], attrs: Mapping[str, Any]) -> Sequence[Array]:
        q, k, v, *mask = xs
        k, v = _repeated(q, k, v)
        with np.errstate(all="ignore"):
            scores = _scores(q, k, _allowed(q, k, mask, attrs), attrs["scale"])
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
    """sdpa_grad(q, k, v, y, lse, dy): the gradients of ``sdpa`` in q, k and v; the mask, if any, is the last input.

    With the probabilities P, recomputed from q, k and lse: ``dv = P^T dy``, ``dS = P * (dy v^T - sum(dy*y))``,
    ``dq = scale * dS k``, ``dk = scale * dS^T q``.
    """

    name = "sdpa_grad"
    kernel_kind = "attention gradient"
    statistics = (4,)

    def infer(self, types: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
        q, k, v, y, lse, dy, *mask = types
        assert (y, lse) == sdpa.infer([q, k, v, *mask], attrs) and dy == y
        return q, k, v

    def grad(self, node: Node, dys: Sequence[Value | None], b: Builder) -> Sequence[Value | None]:
        raise NoGradient("`gradient` composes `sdpa` of other ops")

    def meaning(self, xs: Sequence[Array], attrs: Mapping[str, Any]) -> Sequence[Array]:
        q, keys, values, y, lse, dy, *mask = xs
        k, v = _repeated(q, keys, values)
        scale = q.dtype.type(attrs["scale"])
        with np.errstate(all="ignore"):
            scores = _scores(q, k, _allowed(q, k, mask, attrs), attrs["scale"])
            weights = _probabilities(scores, lse)
            slope = np.matmul(dy, v.swapaxes(-1, -2)) - np.sum(dy * y, axis=-1, keepdims=True)
            slope = weights * slope * scale
            return (
                np.matmul(slope, k),
                _shared(np.matmul(slope.swapaxes(-1, -2), q), keys),
                _shared(np.matmul(weights.swapaxes(-1, -2), dy), values),
            )

    def cost(self, node: Node) -> Cost:
        q, k, v = node.input_types[:3]
        return Cost(_flops(q, k, v, 3, 2), sum(t.bytes for t in (*node.input_types, *node.types)))

    def rows(self, node: Node, axes: Sequence[int | None]) -> tuple[int | None, ...] | None:
        return _rows(node, axes, 6) if all(a == axes[0] for a in axes[:6]) else None


sdpa = register(Sdpa())
sdpa_grad = register(SdpaGrad())
