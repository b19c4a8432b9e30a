"""The parts that ``sdpa`` is composed of: grouped heads, masks from numbers, and scores with a bias or a cap."""

from __future__ import annotations

from dataclasses import dataclass

from dslc.compiler.ir.function import Call
from dslc.compiler.ir.graph import Value
from dslc.compiler.ir.op import Mismatch
from dslc.compiler.ir.sizes import Size
from dslc.compiler.ir.types import DType
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


def share_of_heads(q: Value, k: Value, v: Value) -> int:
    """How many heads of q read one head of k and v: 1 if the leading axes are equal, or do not fit (a later check)."""
    ours, theirs = q.type.shape[:-2], k.type.shape[:-2]
    if (
        ours == theirs
        or theirs != v.type.shape[:-2]
        or len(ours) != len(theirs)
        or not ours
        or ours[:-1] != theirs[:-1]
    ):
        return 1
    heads, kept = ours[-1], theirs[-1]
    if not isinstance(heads, int) or not isinstance(kept, int) or not kept or heads % kept:
        return 1
    return heads // kept


@dataclass(frozen=True)
class Heads:
    """Each ``share`` heads of q that read one head of k become one head with ``share`` times the queries, so that
    neither k nor v is repeated: q [..., H, Tq, d] -> [..., H / share, share * Tq, d]."""

    call: Call
    shape: tuple[Size, ...]  # of q
    share: int

    @property
    def _kept(self) -> Size:
        heads = self.shape[-3]
        assert isinstance(heads, int)
        return heads // self.share

    def joined(self, q: Value) -> Value:
        if self.share == 1:
            return q
        shape = (*self.shape[:-3], self._kept, self.shape[-2] * self.share, self.shape[-1])
        return self.call.emit(reshape, q, shape=shape)

    def apart(self, y: Value) -> Value:
        if self.share == 1:
            return y
        return self.call.emit(reshape, y, shape=(*self.shape[:-1], y.type.shape[-1]))

    def term(self, x: Value) -> Value:
        """What broadcasts to the scores [..., H, Tq, Tk], so that it broadcasts to those of joined heads."""
        old = (1,) * max(0, 3 - x.type.rank) + x.type.shape
        if self.share == 1 or (old[-2] == 1 and old[-3] == 1):
            return x
        lead, tail = old[:-3], (self.shape[-2], old[-1])
        x = self._of(x, old)
        if old[-3] == 1:  # the same for all heads: once for each head of a group
            x = self.call.emit(expand, x, shape=(*lead, self.share, *tail))
            return self._of(x, (*lead, 1, tail[0] * self.share, tail[1]))
        x = self.call.emit(expand, x, shape=(*lead, self.shape[-3], *tail))
        return self._of(x, (*lead, self._kept, tail[0] * self.share, tail[1]))

    def _of(self, x: Value, shape: tuple[Size, ...]) -> Value:
        return x if x.type.shape == shape else self.call.emit(reshape, x, shape=shape)


def both(call: Call, a: Value | None, b: Value | None) -> Value | None:
    """Where both masks are true; None is true everywhere."""
    if a is None or b is None:
        return a if b is None else b
    return call.emit(logical_and, a, b)


def near(call: Call, positions: Size, window: int, causal: bool) -> Value:
    """b1 [Tq, Tk]: the key is less than ``window`` positions before the query or, unless ``causal``, after it."""
    if window < 1:
        raise Mismatch(f"`window` of `sdpa` is {window}", "at least 1, the query's own position", "E0209")
    shape = (positions, positions)
    ahead = 0 if causal else window - 1
    late = call.emit(logical_not, call.emit(tri, shape=shape, diagonal=-window))
    return call.emit(logical_and, call.emit(tri, shape=shape, diagonal=ahead), late)


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
        allowed = both(call, allowed, call.emit(ne, terms.bias, lowest))
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
