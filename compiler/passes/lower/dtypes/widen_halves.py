"""Computes ops on 16-bit floats in f32, and rounds each result, for targets without kernels of 16 bits.

Before::

    %2 = mul %0, %1 : bf16[4]
    %3 = transpose %2 {...} : bf16[4]

After::

    %2 = cast %0 {dtype=f32} : f32[4]
    %3 = cast %1 {dtype=f32} : f32[4]
    %4 = mul %2, %3 : f32[4]
    %5 = cast %4 {dtype=bf16} : bf16[4]
    %6 = transpose %5 {...} : bf16[4]

So an op gives the f32 result rounded once, as in PyTorch on a CPU. Views, ops that only move elements and ops with
``Op.in_halves``, such as casts and constants, stay. Each phase has its own casts, so that values wait for the backward
pass in 16 bits.
"""

from __future__ import annotations

from collections.abc import Sequence

from dslc.compiler.ir.graph import Attr, Graph, Node, Phase, Value
from dslc.compiler.ir.op import OPS, Builder
from dslc.compiler.ir.types import DType


def widen_halves(graph: Graph) -> Graph:
    """The graph without other ops on 16-bit floats; the same object if it has none."""
    wide: dict[tuple[Value, Phase], Value] = {}

    def widened(value: Value, b: Builder) -> Value:
        if not value.type.dtype.is_half:
            return value
        key = (value, b.phase)
        if key not in wide:
            wide[key] = b(OPS["cast"], value, dtype=DType.F32)
        return wide[key]

    def rule(node: Node) -> Sequence[Value] | None:
        kept = node.op.moves or node.op.view or node.op.in_halves
        if kept or not any(t.dtype.is_half for t in (*node.input_types, *node.types)):
            return None
        b = Builder().at(node, node.phase)
        attrs = {name: _wide(attr) for name, attr in node.attrs.items()}
        found = b.node(node.op, *(widened(v, b) for v in node.inputs), **attrs).outputs
        return [
            v if v.type.dtype is t.dtype else b(OPS["cast"], v, dtype=t.dtype)
            for v, t in zip(found, node.types, strict=True)
        ]

    return graph.rewrite(rule)


def _wide(attr: Attr) -> Attr:
    """An attribute with f32 in place of 16-bit floats."""
    if isinstance(attr, tuple):
        return tuple(_wide(a) for a in attr)
    return DType.F32 if isinstance(attr, DType) and attr.is_half else attr
