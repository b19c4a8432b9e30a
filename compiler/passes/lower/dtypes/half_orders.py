"""Lets ops that order elements read 16-bit values, whose order is that of the same numbers in f32.

Before::

    %2 = cast %1 {dtype=f32} : f32[64, 10]  # a forward
    %3, %4 = sort %2 {...} : f32[64, 10], i32[64, 10]  # a forward
    %5 = cast %dy {dtype=f32} : f32[64, 10]  # a backward
    %6 = unsort %5, %4 {...} : f32[64, 10]  # a backward
    %7 = cast %6 {dtype=bf16} : bf16[64, 10]  # a backward

After, where ``simplify`` drops what is cast to f32 and back::

    %2, %3 = sort %1 {...} : bf16[64, 10], i32[64, 10]  # a forward
    %4 = cast %2 {dtype=f32} : f32[64, 10]  # a forward
    %5 = unsort %dy, %3 {...} : bf16[64, 10]  # a backward

A sort by digits then takes half as many passes, over half as many bytes. The gradient of ``topk`` is a scatter, which
adds in f32 whatever it reads; it reads 16 bits if only a rounded result is used. All results keep their bits.
For targets with such kernels. Linear in nodes and reads.
"""

from __future__ import annotations

from collections.abc import Sequence

from dslc.compiler.ir.graph import Graph, Node, Value, made_by
from dslc.compiler.ir.op import OPS, Builder
from dslc.compiler.ir.types import DType
from dslc.compiler.passes.queries import has_one_reader

#: Ops whose first result has elements of the first input.
_ORDERS = ("sort", "topk", "unsort")


def half_orders(graph: Graph) -> Graph:
    """The graph with such nodes; the same object if there are none."""
    is_read_once = has_one_reader(graph)
    old = iter(graph.nodes)

    def rule(node: Node) -> Sequence[Value] | None:
        before = next(old)
        if node.op.name in _ORDERS and (source := _half(node.inputs[0])) is not None:
            b = Builder().at(node, node.phase)
            first, *rest = b.node(node.op, source, *node.inputs[1:], **node.attrs).outputs
            return [b(OPS["cast"], first, dtype=DType.F32), *rest]
        if node.op.name == "cast" and is_read_once(before.inputs[0]):
            return _added(node)
        return None

    return graph.rewrite(rule)


def _half(value: Value) -> Value | None:
    """The 16-bit value that was cast to this one of f32."""
    made = made_by(value, "cast")
    return made.inputs[0] if made and made.input_types[0].dtype.is_half and value.type.dtype is DType.F32 else None


def _added(cast: Node) -> Sequence[Value] | None:
    """The rounded sums of a scatter that alone reads values of the same dtype."""
    made = made_by(cast.inputs[0], "scatter_add")
    source = None if made is None else _half(made.inputs[0])
    if made is None or source is None or source.type.dtype is not cast.types[0].dtype:
        return None
    return Builder().at(cast, cast.phase).node(made.op, source, *made.inputs[1:], **made.attrs).outputs
