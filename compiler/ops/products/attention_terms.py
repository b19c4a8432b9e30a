"""The parts that ``sdpa`` is composed of: grouped heads, masks from numbers, and scores with a bias or a cap."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from dslc.compiler.ir.function import Call
from dslc.compiler.ir.graph import Attrs, Node, Value
from dslc.compiler.ir.op import Mismatch, broadcast
from dslc.compiler.ir.sizes import Size
from dslc.compiler.ir.types import DType, TensorType
from dslc.compiler.ops.attrs import bool_attr, int_attr
from dslc.compiler.ops.constants.constant import as_attr, full
from dslc.compiler.ops.constants.masks import tri
from dslc.compiler.ops.elementwise.activation import tanh
from dslc.compiler.ops.elementwise.arithmetic import add, div, mul
from dslc.compiler.ops.elementwise.convert import cast
from dslc.compiler.ops.elementwise.logic import le, logical_and, logical_not, ne
from dslc.compiler.ops.elementwise.selection import where
from dslc.compiler.ops.products.linear import matmul
from dslc.compiler.ops.random.stochastic import dropout
from dslc.compiler.ops.reduction.cumulative import cumsum
from dslc.compiler.ops.reduction.softmax import softmax
from dslc.compiler.ops.shape.broadcast import expand
from dslc.compiler.ops.shape.views import reshape
from dslc.compiler.ops.spatial.conv import float_dtype

#: Applies an op with one output: ``Call.emit``, or a ``Builder``.
Emit = Callable[..., Value]


def share_of_heads(q: TensorType, k: TensorType) -> int:
    """How many heads of q read one head of k: 1 if the leading axes are equal, or do not fit."""
    ours, theirs = q.shape[:-2], k.shape[:-2]
    if ours == theirs or len(ours) != len(theirs) or ours[:-1] != theirs[:-1]:
        return 1
    heads, kept = ours[-1], theirs[-1]
    if not isinstance(heads, int) or not isinstance(kept, int) or not kept or heads % kept:
        return 1
    return heads // kept


def check_operands(q: TensorType, k: TensorType, v: TensorType, square: bool) -> None:
    """``square``: there are as many queries as keys. Raises Mismatch."""
    for name, t in (("q", q), ("k", k), ("v", v)):
        if t.rank < 2:
            raise Mismatch(f"`sdpa` needs [..., T, d], `{name}` is {t}", "add axes with `reshape`")
    if k.shape[:-2] != v.shape[:-2] or (q.shape[:-2] != k.shape[:-2] and share_of_heads(q, k) == 1):
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
    if square and q.shape[-2] != k.shape[-2]:
        raise Mismatch(
            f"causal `sdpa` needs as many queries as keys, got {q.shape[-2]} and {k.shape[-2]}",
            "slice both to one length, or pass `mask`",
            "E0302",
        )


def check_mask(q: TensorType, k: TensorType, mask: TensorType) -> None:
    if mask.dtype is not DType.B1:
        raise Mismatch(f"`mask` of `sdpa` is {mask}", "a b1 mask, true where a query may look: `mask != 0`", "E0202")
    check_scores(q, k, mask, "mask")


def check_bias(q: TensorType, k: TensorType, bias: TensorType) -> None:
    float_dtype("sdpa", [q, bias])
    check_scores(q, k, bias, "bias")


def check_scores(q: TensorType, k: TensorType, x: TensorType, name: str) -> None:
    scores = (*q.shape[:-1], k.shape[-2])
    if x.rank > len(scores) or broadcast([x.shape, scores]) != scores:
        shown = ", ".join(map(str, scores))
        raise Mismatch(f"`{name}` is {x}, the scores are [{shown}]", None, "E0301")


def window_of(attrs: Attrs) -> int:
    """How many positions a query sees to each side, its own included; 0: all."""
    return int_attr(attrs, "window") if "window" in attrs else 0


@dataclass(frozen=True)
class Heads:
    """Each ``share`` heads of q that read one head of k become one head with ``share`` times the queries, so that
    neither k nor v is repeated: q [..., H, Tq, d] -> [..., H / share, share * Tq, d]."""

    emit: Emit
    shape: tuple[Size, ...]  # of q
    share: int

    @property
    def _kept(self) -> Size:
        heads = self.shape[-3]
        assert isinstance(heads, int)
        return heads // self.share

    def joined(self, x: Value) -> Value:
        """x [..., H, Tq, any] or [..., H, Tq] with joined heads."""
        if self.share == 1:
            return x
        rest = x.type.shape[len(self.shape) - 1 :]
        return self.emit(reshape, x, shape=(*self.shape[:-3], self._kept, self.shape[-2] * self.share, *rest))

    def apart(self, x: Value) -> Value:
        """The inverse of ``joined``."""
        if self.share == 1:
            return x
        return self.emit(reshape, x, shape=(*self.shape[:-1], *x.type.shape[len(self.shape) - 1 :]))

    def term(self, x: Value) -> Value:
        """What broadcasts to the scores [..., H, Tq, Tk], so that it broadcasts to those of joined heads."""
        old = (1,) * max(0, 3 - x.type.rank) + x.type.shape
        if self.share == 1 or (old[-2] == 1 and old[-3] == 1):
            return x
        lead, tail = old[:-3], (self.shape[-2], old[-1])
        x = self._of(x, old)
        if old[-3] == 1:  # the same for all heads: once for each head of a group
            x = self.emit(expand, x, shape=(*lead, self.share, *tail))
            return self._of(x, (*lead, 1, tail[0] * self.share, tail[1]))
        x = self.emit(expand, x, shape=(*lead, self.shape[-3], *tail))
        return self._of(x, (*lead, self._kept, tail[0] * self.share, tail[1]))

    def _of(self, x: Value, shape: tuple[Size, ...]) -> Value:
        return x if x.type.shape == shape else self.emit(reshape, x, shape=shape)


def both(emit: Emit, a: Value | None, b: Value | None) -> Value | None:
    """Where both masks are true; None is true everywhere."""
    if a is None or b is None:
        return a if b is None else b
    return emit(logical_and, a, b)


def positions(emit: Emit, count: Size, causal: bool, window: int) -> Value | None:
    """b1 [T, T]: the key is less than ``window`` positions before the query or, unless ``causal``, after it."""
    shape = (count, count)
    if not window:
        return emit(tri, shape=shape, diagonal=0) if causal else None
    late = emit(logical_not, emit(tri, shape=shape, diagonal=-window))
    return emit(logical_and, emit(tri, shape=shape, diagonal=0 if causal else window - 1), late)


def is_plain(node: Node) -> bool:
    """Whether an ``sdpa`` or its gradient has neither grouped heads nor a window."""
    return share_of_heads(*node.input_types[:2]) == 1 and not window_of(node.attrs)


def plain(
    emit: Emit, q: Value, k: Value, terms: Sequence[Value], attrs: Attrs
) -> tuple[Heads, Value | None, Value | None, bool]:
    """An ``sdpa`` as one without grouped heads and windows: its heads, mask and bias, and whether it is causal."""
    mask = next((x for x in terms if x.type.dtype is DType.B1), None)
    bias = next((x for x in terms if x.type.dtype is not DType.B1), None)
    share, window, causal = share_of_heads(q.type, k.type), window_of(attrs), bool_attr(attrs, "causal")
    heads = Heads(emit, q.type.shape, share)
    if share > 1 or window:
        mask, causal = both(emit, mask, positions(emit, q.type.shape[-2], causal, window)), False
    joined_mask, joined_bias = (None if x is None else heads.term(x) for x in (mask, bias))
    return heads, joined_mask, joined_bias, causal


def within(call: Call, q: Value, k: Value, lengths: Value) -> Value:
    """b1 [..., 1, Tk]: the first ``lengths`` keys of each row."""
    lead = lengths.type.shape
    if not lengths.type.dtype.is_int:
        raise Mismatch(f"`lengths` of `sdpa` is {lengths.type}", "integers, such as `lengths: i32[B]`", "E0204")
    if len(lead) > q.type.rank - 2 or lead != q.type.shape[: len(lead)]:
        raise Mismatch(
            f"`lengths` is {lengths.type}, q is {q.type}",
            "one length for each row of the first axes, such as [B]",
            "E0302",
        )
    shape = (*lead, *(1,) * (q.type.rank - len(lead)))
    wide = call.emit(cast, lengths, dtype=DType.I64) if lengths.type.dtype is not DType.I64 else lengths
    one = call.emit(full, value=1, dtype=DType.I64, shape=(k.type.shape[-2],))
    count = call.emit(cumsum, one, axis=0, reverse=False)
    return call.emit(le, count, call.emit(reshape, wide, shape=shape))


@dataclass(frozen=True)
class Terms:
    """What the scores of attention get in addition to ``scale * q k^T`` and a mask."""

    scale: float
    bias: Value | None
    softcap: float | None
    dropout: float

    def __bool__(self) -> bool:
        return self.bias is not None or self.softcap is not None or self.dropout != 0


def composed(call: Call, q: Value, k: Value, v: Value, allowed: Value | None, terms: Terms) -> Value:
    """Attention from matrix products and a softmax; a query that may see nothing gives 0, with the gradient 0."""

    def constant(value: float) -> Value:
        return call.full(value, q.type.dtype)

    s = call.emit(mul, call.emit(matmul, q, k, transpose_a=False, transpose_b=True), constant(terms.scale))
    if terms.softcap is not None:
        cap = constant(terms.softcap)
        s = call.emit(mul, call.emit(tanh, call.emit(div, s, cap)), cap)
    lowest = call.emit(full, value=as_attr(-float("inf")), dtype=q.type.dtype, shape=())
    if terms.bias is not None:
        allowed = both(call.emit, allowed, call.emit(ne, terms.bias, lowest))
        s = call.emit(add, s, terms.bias)
    if allowed is not None:
        s = call.emit(where, allowed, s, lowest)
    p = call.emit(softmax, s, axis=s.type.rank - 1)
    if allowed is not None:
        p = call.emit(where, allowed, p, constant(0.0))
    if terms.dropout:
        inputs, attrs = call.random("sdpa", p.type.shape)
        p = call.emit(dropout, p, *inputs, p=terms.dropout, **attrs)
    return call.emit(matmul, p, v, transpose_a=False, transpose_b=False)
