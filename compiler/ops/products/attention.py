"""Scaled dot-product attention (Vaswani et al. 2017); the gradient recomputes probabilities (Dao et al. 2022)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import prod
from typing import TYPE_CHECKING, Any

from dslc.compiler.ir.function import Call, Function, function
from dslc.compiler.ir.graph import Attrs, Node, Value
from dslc.compiler.ir.op import Builder, Cost, Mismatch, NoGradient, Op, broadcast, register
from dslc.compiler.ir.types import DType, TensorType
from dslc.compiler.ops.attrs import bool_attr, float_attr
from dslc.compiler.ops.constants.constant import constant
from dslc.compiler.ops.constants.masks import tri
from dslc.compiler.ops.elementwise.arithmetic import mul
from dslc.compiler.ops.elementwise.selection import where
from dslc.compiler.ops.lazy import np
from dslc.compiler.ops.products.attention_terms import Heads, Terms, both, composed, near, share_of_heads, within
from dslc.compiler.ops.products.linear import matmul
from dslc.compiler.ops.reduction.softmax import softmax
from dslc.compiler.ops.spatial.conv import float_dtype

if TYPE_CHECKING:
    from dslc.compiler.ir.op import Array

_STATISTIC = {DType.F16: DType.F32, DType.BF16: DType.F32}


def _check(q: TensorType, k: TensorType, v: TensorType, causal: bool) -> None:
    for name, t in (("q", q), ("k", k), ("v", v)):
        if t.rank < 2:
            raise Mismatch(f"`sdpa` needs [..., T, d], `{name}` is {t}", "add axes with `reshape`")
    if q.shape[:-2] != k.shape[:-2] or q.shape[:-2] != v.shape[:-2]:
        raise Mismatch(
            f"the leading axes of `sdpa` differ: q {q}, k {k}, v {v}",
            "give q, k and v the same batch and heads",
            "E0302",
        )
    if q.shape[-1] != k.shape[-1]:
        raise Mismatch(f"q has {q.shape[-1]} features, k has {k.shape[-1]}", None, "E0302")
    if k.shape[-2] != v.shape[-2]:
        raise Mismatch(f"k has {k.shape[-2]} positions, v has {v.shape[-2]}", None, "E0302")
    if 0 in (q.shape[-1], k.shape[-2]):
        raise Mismatch(f"`sdpa` over no features or no positions: q {q}, k {k}", "sizes of at least 1", "E0308")
    if causal and q.shape[-2] != k.shape[-2]:
        raise Mismatch(
            f"causal `sdpa` needs as many queries as keys, got {q.shape[-2]} and {k.shape[-2]}",
            "slice both to one length, or pass `mask`",
            "E0302",
        )


def _check_mask(q: TensorType, k: TensorType, mask: TensorType) -> None:
    if mask.dtype is not DType.B1:
        raise Mismatch(f"`mask` of `sdpa` is {mask}", "a b1 mask, true where a query may look: `mask != 0`", "E0202")
    _check_scores(q, k, mask, "mask")


def _check_scores(q: TensorType, k: TensorType, x: TensorType, name: str) -> None:
    scores = (*q.shape[:-1], k.shape[-2])
    if x.rank > len(scores) or broadcast([x.shape, scores]) != scores:
        shown = ", ".join(map(str, scores))
        raise Mismatch(f"`{name}` is {x}, the scores are [{shown}]", None, "E0301")


def _allowed(q: Array, k: Array, mask: Sequence[Array], causal: bool) -> Array | None:
    """The b1 mask of permitted scores, broadcast to [..., Tq, Tk]; None: all."""
    if not causal:
        return mask[0] if mask else None
    lower = np.tri(q.shape[-2], k.shape[-2], dtype=bool)
    return lower & mask[0] if mask else lower


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
    exponentials ``[..., Tq]`` (f32 for 16-bit floats), which the gradient reads. A fourth input, a b1 mask that
    broadcasts to ``[..., Tq, Tk]``, is true where attention is allowed; ``causal`` masks later positions (Tq = Tk).
    A fully masked query gives 0. Attribute ``scale``: a float.
    """

    name = "sdpa"
    needs = (frozenset({"x0", "x1", "x2", "x3", "y0", "y1"}),)

    def infer(self, types: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
        q, k, v, *mask = types
        dtype = float_dtype("sdpa", [q, k, v])
        _check(q, k, v, bool_attr(attrs, "causal"))
        for t in mask:
            _check_mask(q, k, t)
        return TensorType(dtype, (*q.shape[:-1], v.shape[-1])), TensorType(_STATISTIC.get(dtype, dtype), q.shape[:-1])

    def grad(self, node: Node, dys: Sequence[Value | None], b: Builder) -> Sequence[Value | None]:
        if dys[1] is not None:
            raise NoGradient("no gradient flows through the statistics of `sdpa`")
        assert dys[0] is not None
        q, k, v, *mask = node.inputs
        found = b.node(sdpa_grad, q, k, v, *node.outputs, dys[0], *mask, **node.attrs).outputs
        return *found, *[None] * len(mask)

    def in_gradient(self, node: Node, b: Builder) -> Sequence[Value | None]:
        q, k, v, *masks = node.inputs
        if bool_attr(node.attrs, "causal"):
            masks.append(b(tri, shape=(q.type.shape[-2], k.type.shape[-2]), diagonal=0))
        s = b(matmul, q, k, transpose_a=False, transpose_b=True)
        s = b(mul, s, constant(b, float_attr(node.attrs, "scale"), q))
        for mask in masks:
            s = b(where, mask, s, constant(b, -math.inf, q))
        p = b(softmax, s, axis=s.type.rank - 1)
        for mask in masks:  # a query that may see nothing: nan so far
            p = b(where, mask, p, constant(b, 0.0, q))
        return [b(matmul, p, v, transpose_a=False, transpose_b=False), None]

    def meaning(self, xs: Sequence[Array], attrs: Mapping[str, Any]) -> Sequence[Array]:
        q, k, v, *mask = xs
        with np.errstate(all="ignore"):
            scores = _scores(q, k, _allowed(q, k, mask, attrs["causal"]), attrs["scale"])
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
    if main >= rank - 2 or not same or any(a is not None and a + rank - t.rank != main for a, t in masks):
        return None
    return (main,) * len(node.outputs)


class SdpaGrad(Op):
    """sdpa_grad(q, k, v, y, lse, dy): the gradients of ``sdpa`` in q, k and v; the mask, if any, is the last input.

    With the probabilities P, recomputed from q, k and lse: ``dv = P^T dy``, ``dS = P * (dy v^T - sum(dy*y))``,
    ``dq = scale * dS k``, ``dk = scale * dS^T q``.
    """

    name = "sdpa_grad"
    statistics = (4,)

    def infer(self, types: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
        q, k, v, y, lse, dy, *mask = types
        assert (y, lse) == sdpa.infer([q, k, v, *mask], attrs) and dy == y
        return q, k, v

    def grad(self, node: Node, dys: Sequence[Value | None], b: Builder) -> Sequence[Value | None]:
        raise NoGradient("`gradient` composes `sdpa` of other ops")

    def meaning(self, xs: Sequence[Array], attrs: Mapping[str, Any]) -> Sequence[Array]:
        q, k, v, y, lse, dy, *mask = xs
        scale = q.dtype.type(attrs["scale"])
        with np.errstate(all="ignore"):
            scores = _scores(q, k, _allowed(q, k, mask, attrs["causal"]), attrs["scale"])
            weights = _probabilities(scores, lse)
            slope = np.matmul(dy, v.swapaxes(-1, -2)) - np.sum(dy * y, axis=-1, keepdims=True)
            slope = weights * slope * scale
            return (
                np.matmul(slope, k),
                np.matmul(slope.swapaxes(-1, -2), q),
                np.matmul(weights.swapaxes(-1, -2), dy),
            )

    def cost(self, node: Node) -> Cost:
        q, k, v = node.input_types[:3]
        return Cost(_flops(q, k, v, 3, 2), sum(t.bytes for t in (*node.input_types, *node.types)))

    def rows(self, node: Node, axes: Sequence[int | None]) -> tuple[int | None, ...] | None:
        return _rows(node, axes, 6) if all(a == axes[0] for a in axes[:6]) else None


sdpa = register(Sdpa())
sdpa_grad = register(SdpaGrad())


class SdpaFunction(Function):
    """sdpa(q, k, v, causal=false, mask=none, scale=1/sqrt(d)): attention, ``softmax(scale * q k^T) v``.

    q is ``[..., Tq, d]``, k ``[..., Tk, d]``, v ``[..., Tk, e]``, with the same leading axes (batch, heads). k and v
    may have fewer heads, a divisor of q's: each then serves as many consecutive heads of q, and is not repeated.
    ``causal`` lets a query attend only to its own and earlier positions, and needs Tq = Tk.

    - ``mask`` is b1, broadcasts to ``[..., Tq, Tk]`` and is true where attention is allowed.
    - ``lengths`` holds integers with the first axes of q, such as ``i32[B]``: a row sees so many first keys.
    - ``window``: keys less than ``window`` positions away from the query are seen; needs Tq = Tk.
    - ``softcap``: the scaled scores become ``softcap * tanh(scores / softcap)``.
    - ``bias`` is float, broadcasts to ``[..., Tq, Tk]`` and is added to the scores after that; it has a gradient.
    - ``dropout``: in training, each probability is 0 with this probability, else divided by ``1 - dropout``.

    A query that may attend to nothing gives 0. With ``bias``, ``softcap`` or ``dropout`` the scores lie in memory.

    given: q: [B, 4, 16, 32], k: [B, 2, 16, 32], v: [B, 2, 16, 32], n: i32[B]
    >>> y = sdpa(q, k, v, causal=true, window=4)
    >>> z = sdpa(q, k, v, lengths=n, softcap=50.0)
    """

    name = "sdpa"

    def build(
        self,
        call: Call,
        q: Value,
        k: Value,
        v: Value,
        causal: bool = False,
        mask: Value | None = None,
        scale: float | None = None,
        *,
        bias: Value | None = None,
        lengths: Value | None = None,
        window: int | None = None,
        softcap: float | None = None,
        dropout: float = 0.0,
    ) -> Value:
        float_dtype("sdpa", [q.type, k.type, v.type])
        share = share_of_heads(q, k, v)
        kept = TensorType(q.type.dtype, (*k.type.shape[:-2], *q.type.shape[-2:])) if share > 1 else q.type
        _check(kept, k.type, v.type, causal or window is not None)
        if scale is None:
            features = q.type.shape[-1]
            if not isinstance(features, int):
                raise Mismatch(f"the features of q, {features}, are not fixed", "`scale=0.125`, for instance", "E0307")
            scale = 1 / math.sqrt(features)
        if not math.isfinite(scale):
            raise Mismatch(f"`scale` of `sdpa` is {scale}", "a finite number", "E0209")
        if softcap is not None and not 0 < softcap < math.inf:
            raise Mismatch(f"`softcap` of `sdpa` is {softcap:g}", "a finite number above 0", "E0209")
        if not 0 <= dropout < 1:
            raise Mismatch(f"`dropout` of `sdpa` is {dropout:g}", "from 0 to below 1", "E0209")
        if mask is not None:
            _check_mask(q.type, k.type, mask.type)
        if bias is not None:
            float_dtype("sdpa", [q.type, bias.type])
            _check_scores(q.type, k.type, bias.type, "bias")
        terms = Terms(float(scale), bias, softcap, dropout)
        if window is not None:
            mask = both(call, mask, near(call, q.type.shape[-2], window, causal))
        elif causal and (share > 1 or terms):
            mask = both(call, mask, call.emit(tri, shape=(q.type.shape[-2], k.type.shape[-2]), diagonal=0))
        if lengths is not None:
            mask = both(call, mask, within(call, q, k, lengths))
        heads = Heads(call, q.type.shape, share)
        mask = None if mask is None else heads.term(mask)
        if terms:
            if bias is not None:
                terms = replace(terms, bias=heads.term(bias))
            return heads.apart(composed(call, heads.joined(q), k, v, mask, terms))
        inputs = (heads.joined(q), k, v) if mask is None else (heads.joined(q), k, v, mask)
        fused = causal and share == 1 and window is None
        return heads.apart(call.emit_all(sdpa, *inputs, causal=fused, scale=float(scale))[0])


function(SdpaFunction())
