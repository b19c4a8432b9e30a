"""Lets attention of one or few queries, as in generation, read its cache in place, and splits the cache among the
blocks.

Before, for one token::

    %4 = cast %keys {dtype=bf16} : bf16[1024, 1, 12, 64]  # index_put forward
    %5 = transpose %4 {perm=(1, 2, 0, 3)} : bf16[1, 12, 1024, 64]  # rearrange forward
    %8, %9 = sdpa %q, %5, %7, %mask {...} : bf16[1, 12, 1, 64], f32[1, 12, 1]  # sdpa forward

After::

    %8 = few_queries_sdpa %q, %keys, %values, %mask {reads=..., writes=..., ...} : bf16[1, 1, 768]  # sdpa forward

Operands are followed back through reshapes, transposes and slices, and the cache through its cast to 16 bits. The pass
takes only attention whose sums of rows nothing reads; gradients read them. The order of sums differs from that of
tiles, and probabilities are not rounded. GPU only; linear in nodes and reads.
"""

from __future__ import annotations

from collections.abc import Sequence

from dslc.compiler.ir.graph import Graph, Node, Value
from dslc.compiler.ops.compound import few_queries as op
from dslc.compiler.ops.compound.strided_attention import View
from dslc.compiler.ops.products.attention import sdpa
from dslc.compiler.passes.lower.layout.attention_views import furthest, result, whole_of
from dslc.compiler.passes.rebuild import reading


def few_queries(graph: Graph) -> Graph:
    """The graph with such nodes; the same object if there are none."""
    readers, roots = graph.readers(), set(graph.roots)
    instead: dict[Value, Value] = {}
    for node in graph.nodes:
        if node.op is not sdpa or node.outputs[1] in readers or node.outputs[1] in roots:
            continue
        q, k, v, *mask = node.inputs
        end, write = result(node.outputs[0], (), readers, roots)
        operands = [furthest(q, slices=True), *_kept(k, v)]
        reads = [view for _, view in operands]
        if op.fits(node, reads, write):
            found = [*operands, *((x, whole_of(x)) for x in mask)]
            made = op.few_queries(node, [x for x, _ in found], [view for _, view in found], write, end.type.ints)
            instead[end] = made.out
    return reading(graph, instead) if instead else graph


def _kept(k: Value, v: Value) -> Sequence[tuple[Value, View]]:
    """The sources of keys and values, of one dtype."""
    near = [furthest(x, slices=True) for x in (k, v)]
    wide = [_before_cast(*each) for each in near]
    same = wide[0][0].type.dtype is wide[1][0].type.dtype
    return wide if same else near


def _before_cast(source: Value, view: View) -> tuple[Value, View]:
    """The wider float of which the source is the cast."""
    made = source.producer
    if not isinstance(made, Node) or made.op.name != "cast" or not made.input_types[0].dtype.is_float:
        return source, view
    wider = made.input_types[0].dtype.itemsize > source.type.dtype.itemsize
    return (made.inputs[0], view) if wider and made.input_types[0].dtype.itemsize <= 4 else (source, view)
