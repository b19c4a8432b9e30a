"""Computes, at build time, small tensors that depend on no input, and stores them in the artifact.

Before::

    %1 = arange {shape=(14,), start=0, step=1} : i32[14]
    %2 = cast %1 {dtype=f32} : f32[14]
    %3 = full {dtype=f32, shape=(), value=0.5} : f32[]
    %4 = add %2, %3 : f32[14]
    %5 = reshape %4 {shape=(7, 2)} : f32[7, 2]
    %6 = mul %0, %5 : f32[80, 7, 2]

After::

    %1 = constant known:6c3a52f1be0c7d10.f32 : f32[14]
    %2 = reshape %1 {shape=(7, 2)} : f32[7, 2]
    %3 = mul %0, %2 : f32[80, 7, 2]

The pass takes only values that numpy and each target compute with the same bits: results of ops that move elements, of
integer ops, and of those float operations that IEEE 754 rounds exactly. It is for GPUs, where a launch takes longer
than the work on such a tensor. Views of a value read what is stored. The pass leaves values of equal numbers to
``simplify``, and larger tensors to the kernels, which then read fewer bytes. Linear in nodes and reads.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Final

from dslc.compiler.ir.graph import Graph, Input, Kind, Node, Value
from dslc.compiler.ir.stored import Stored
from dslc.compiler.ir.types import DType, TensorType
from dslc.compiler.ops.lazy import np
from dslc.compiler.passes.lower.simplify.simplify import plain
from dslc.compiler.passes.queries import SMALL_BYTES

if TYPE_CHECKING:
    from dslc.compiler.ir.op import Array

#: Ops without inputs whose elements differ.
_SOURCES: Final = frozenset({"arange", "ramp", "literal", "tri"})
_EXACT: Final = _SOURCES | {
    "full", "reshape", "slice", "transpose", "expand", "concat", "cast", "add", "sub", "mul", "div", "neg", "abs",
    "floor", "minimum", "maximum", "eq", "ne", "lt", "le", "gt", "ge", "logical_and", "logical_or", "logical_not",
    "where",
}  # fmt: skip
_OF_INTEGERS: Final = frozenset({"mod", "floordiv"})
_DTYPES: Final = frozenset({DType.B1, DType.I32, DType.I64, DType.F32, DType.F64})


def known_values(graph: Graph) -> Graph:
    """The graph with such constants; the same object if it has none. Deterministic and idempotent."""
    known = _known(graph)
    roots = set(graph.roots)
    wanted = {_source(v) for node in graph.nodes if node.outputs[0] not in known for v in node.inputs if v in known}
    wanted |= {_source(v) for v in roots if v in known}
    stored: dict[str, Input] = {}
    new: dict[Value, Value] = {}
    for node in graph.nodes:
        if node.outputs[0] in wanted and node.op.name != "full" and known[node.out][1]:
            new[node.out] = _constant(known[node.out][0], node.types[0], stored).value
    if not new:
        return graph
    changed = graph.rewrite(lambda node: (new[node.outputs[0]],) if node.outputs[0] in new else None)
    return dataclasses.replace(changed, inputs=(*graph.inputs, *stored.values()))


def _known(graph: Graph) -> dict[Value, tuple[Array, bool]]:
    """The numbers of the values that depend on no input, and whether they may differ from one another."""
    known: dict[Value, tuple[Array, bool]] = {}
    for source in graph.inputs:
        if source.kind is Kind.CONSTANT and source.stored is not None and _is_small(source.value.type):
            known[source.value] = (source.stored.numbers(source.value.type.dtype), True)
    for node in graph.nodes:
        if not _is_exact(node) or not _is_small(node.types[0]) or not all(v in known for v in node.inputs):
            continue
        with np.errstate(all="ignore"):
            [numbers] = node.op.meaning([known[v][0] for v in node.inputs], plain(node.attrs))
        known[node.out] = (numbers, node.op.name in _SOURCES or any(known[v][1] for v in node.inputs))
    return known


def _is_exact(node: Node) -> bool:
    return node.op.name in _EXACT or (node.op.name in _OF_INTEGERS and node.types[0].dtype.is_int)


def _is_small(type: TensorType) -> bool:
    return type.dtype in _DTYPES and 0 < type.bytes <= SMALL_BYTES


def _source(value: Value) -> Value:
    """What a view is a view of."""
    while isinstance(value.producer, Node) and value.producer.op.view:
        value = value.producer.inputs[0]
    return value


def _constant(numbers: Array, type: TensorType, stored: dict[str, Input]) -> Input:
    constant = Stored(np.ascontiguousarray(numbers))
    name = f"known:{constant.digest[:16]}.{type.dtype.value}"
    return stored.setdefault(name, Input(name, Kind.CONSTANT, type, None, constant))
