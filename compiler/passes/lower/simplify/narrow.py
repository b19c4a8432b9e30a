"""Lets pointwise ops read a value before its expansion, since they broadcast. A rule of ``simplify``.

Before::

    %1 = full {dtype=f32, shape=(64,), value=0.5} : f32[64]  # mean backward
    %2 = mul %1, %beta : f32[64]  # loss backward
    %3 = reshape %2 {shape=(64, 1)} : f32[64, 1]  # sum backward
    %4 = expand %3 {shape=(64, 784)} : f32[64, 784]  # sum backward
    %5 = mul %4, %x : f32[64, 784]  # loss backward

After::

    %1 = full {dtype=f32, shape=(), value=0.5} : f32[]  # mean backward
    %2 = mul %1, %beta : f32[]  # loss backward
    %3 = mul %2, %x : f32[64, 784]  # loss backward

If no other operand has the result's shape, the op's result is expanded instead of its operand. So the gradient of a sum
or mean keeps its small shape, and no tensor of one repeated number lies in memory. Results keep their bits.
"""

from __future__ import annotations

from collections.abc import Callable

from dslc.compiler.ir.graph import Node, Value
from dslc.compiler.ir.op import OPS, Builder, Pointwise


def narrowed(node: Node, constant: Callable[[Node], Value]) -> Node | None:
    """The pointwise op applied to its inputs before their expansion; its result may be smaller and need expansion. None
    if no input was expanded, and for other ops. ``constant`` returns the shared value of a constant of rank 0."""
    if not isinstance(node.op, Pointwise) or node.op.random:
        return None
    before = [_before(value, constant) for value in node.inputs]
    if all(one is other for one, other in zip(before, node.inputs)):
        return None
    return _at(node).node(node.op, *before, **node.attrs)


def expanded_like(value: Value, node: Node) -> Node:
    """The value expanded to the shape of a node's result."""
    return _at(node).node(OPS["expand"], value, shape=node.types[0].shape)


def _before(value: Value, constant: Callable[[Node], Value]) -> Value:
    """The value before its expansion; for a constant, one of rank 0; else the value itself."""
    made = value.producer
    if isinstance(made, Node) and made.op.name == "expand":
        return made.inputs[0]
    if isinstance(made, Node) and made.op.name == "full" and value.type.rank:
        return constant(_at(made).node(made.op, **{**made.attrs, "shape": ()}))
    return value


def _at(node: Node) -> Builder:
    return Builder().at(node, node.phase)
