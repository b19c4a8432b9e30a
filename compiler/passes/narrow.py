"""Pointwise ops read what was expanded as it was before: they broadcast anyhow. A rule of ``simplify``.

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

Where nothing else that an op reads has its shape, what it makes is expanded in place of what it reads. So the gradient
of a sum or mean is as many numbers as it has, and no tensor of one number lies in memory. The bits stay.
"""

from __future__ import annotations

from collections.abc import Callable

from dslc.compiler.ir.graph import Node, Value
from dslc.compiler.ir.op import OPS, Builder, Pointwise


def narrowed(node: Node, constant: Callable[[Node], Value]) -> Node | None:
    """The pointwise op of what its inputs were before they were expanded; its result may be smaller, to be expanded.
    None where nothing was, and for other ops. ``constant`` gives the value of a constant of rank 0, each once."""
    if not isinstance(node.op, Pointwise) or node.op.random:
        return None
    before = [_before(value, constant) for value in node.inputs]
    if all(one is other for one, other in zip(before, node.inputs)):
        return None
    return _at(node).node(node.op, *before, **node.attrs)


def expanded_like(value: Value, node: Node) -> Node:
    """The value in the shape of a node's result."""
    return _at(node).node(OPS["expand"], value, shape=node.types[0].shape)


def _before(value: Value, constant: Callable[[Node], Value]) -> Value:
    """What a value was expanded from, a number for a constant; else itself."""
    made = value.producer
    if isinstance(made, Node) and made.op.name == "expand":
        return made.inputs[0]
    if isinstance(made, Node) and made.op.name == "full" and value.type.rank:
        return constant(_at(made).node(made.op, **{**made.attrs, "shape": ()}))
    return value


def _at(node: Node) -> Builder:
    return Builder().at(node, node.phase)
