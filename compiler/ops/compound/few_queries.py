"""``few_queries_sdpa``: attention of one or few queries to a long cache. A pass makes it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import TYPE_CHECKING, Any, Final

from dslc.compiler.ir.graph import Attr, Input, Kind, Node, Value
from dslc.compiler.ir.op import Builder, Cost, NoGradient, Op, register
from dslc.compiler.ir.types import DType, TensorType
from dslc.compiler.ops.attrs import bool_attr, dtype_attr
from dslc.compiler.ops.compound.strided_attention import View, bias_of, pairs, places, strided_sdpa, unstrided, whole
from dslc.compiler.ops.elementwise.convert import cast
from dslc.compiler.ops.products.attention import sdpa
from dslc.compiler.ops.products.attention_terms import share_of_heads, window_of

if TYPE_CHECKING:
    from dslc.compiler.ir.op import Array

MOST_ROWS: Final = 8  # queries that read one head of k, of all heads of q
_MOST_FEATURES: Final = 128
_CHUNK: Final = 8  # features that a thread loads at once
_DTYPES: Final = (DType.BF16, DType.F16, DType.F32)


class FewQueriesSdpa(Op):
    """few_queries_sdpa(q, k, v): the first result of ``strided_sdpa``, for at most 8 queries to each head of k.

    Attributes as for ``strided_sdpa``; ``dtype``: that of q. k and v may be of wider floats, which are rounded to it.
    """

    name = "few_queries_sdpa"

    def infer(self, types: Sequence[TensorType], attrs: Mapping[str, Any]) -> tuple[TensorType, ...]:
        q, k, v, *mask = types
        assert q.dtype is dtype_attr(attrs) and k.dtype is v.dtype and k.dtype.is_float
        same = [TensorType(q.dtype, t.shape) for t in (k, v)]
        return strided_sdpa.infer([q, *same, *mask], _whole_attrs(attrs))[:1]

    def grad(self, node: Node, dys: Sequence[Value | None], b: Builder) -> Sequence[Value | None]:
        raise NoGradient("few queries are for prediction")

    def meaning(self, xs: Sequence[Array], attrs: Mapping[str, Any]) -> Sequence[Array]:
        q, k, v, *mask = xs
        same = [cast.meaning([x], {"dtype": attrs["dtype"]})[0] for x in (k, v)]
        return strided_sdpa.meaning([q, *same, *mask], _whole_attrs(attrs))[:1]

    def cost(self, node: Node) -> Cost:
        moved = sum(v.type.bytes for v in dict.fromkeys(node.inputs)) + sum(t.bytes for t in node.types)
        own = plain_node(node)
        return Cost(own.op.cost(own).flops, moved)


def _whole_attrs(attrs: Mapping[str, Any]) -> dict[str, Any]:
    """Those of the ``strided_sdpa``, with its second result."""
    lse = attrs["reads"][0][0][:-1]
    found = {name: value for name, value in attrs.items() if name != "dtype"}
    found["writes"] = (*attrs["writes"], (1, *whole(lse)))
    return {**found, "results": (*attrs["results"], tuple(lse))}


def plain_node(node: Node) -> Node:
    """The ``sdpa`` that computes the same of operands of its own."""
    types = [TensorType(dtype_attr(node.attrs) if n < 3 else v.type.dtype, v.type.shape) for n, v in
             enumerate(node.inputs)]  # fmt: skip
    operands = [Input("operand", Kind.DATA, type).value for type in types]
    return unstrided(Builder().at(node, node.phase).node(strided_sdpa, *operands, **_whole_attrs(node.attrs)))


def fits(node: Node, reads: Sequence[View], write: View) -> bool:
    """Whether the kernel computes an ``sdpa`` with these views of q, k, v and its result."""
    q, k, v, *terms = node.inputs
    features = q.type.ints[-1]
    if node.op is not sdpa or bias_of(node) is not None or q.type.dtype not in _DTYPES or features != v.type.ints[-1]:
        return False
    if features > _MOST_FEATURES or features % _CHUNK or not prod(q.type.ints) or not prod(k.type.ints):
        return False
    if bool_attr(node.attrs, "causal") or window_of(node.attrs):
        return False
    if q.type.ints[-2] * share_of_heads(q.type, k.type) > MOST_ROWS:
        return False
    return places([*reads, write], [pairs(node, x) for x in terms]) is not None


def few_queries(node: Node, inputs: Sequence[Value], reads: Sequence[View], write: View, shape: Sequence[int]) -> Node:
    """The node that computes an ``sdpa`` on views of ``inputs``, and writes a view of a tensor of a shape."""
    attrs: dict[str, Attr] = {**node.attrs, "reads": tuple(map(tuple, reads)), "writes": ((0, *write),)}
    attrs |= {"results": (tuple(shape),), "dtype": node.inputs[0].type.dtype}
    return Builder().at(node, node.phase).node(few_queries_sdpa, *inputs, **attrs)


few_queries_sdpa = register(FewQueriesSdpa())
