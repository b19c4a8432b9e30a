"""Joins reshapes of reshapes, which the passes before it leave where they change shapes.

Before::

    %3 = reshape %2 {shape=(8, 64, 64)} : bf16[8, 64, 64]  # rotary forward
    %4 = reshape %3 {shape=(512, 64)} : bf16[512, 64]  # flatten forward

After::

    %3 = reshape %2 {shape=(512, 64)} : bf16[512, 64]  # flatten forward

A reshape to the shape that its input has is none. So ``simplify`` finds nothing to do in a graph that all passes went
through. Results keep their bits. Linear in nodes.
"""

from __future__ import annotations

import dataclasses

from dslc.compiler.ir.build import Build
from dslc.compiler.ir.graph import Node, Value
from dslc.compiler.ir.program import Program
from dslc.compiler.passes.queries import before_reshapes


def joined_reshapes(program: Program, build: Build) -> Program:
    """The program with such nodes. Deterministic and idempotent."""
    return dataclasses.replace(program, graph=program.graph.rewrite(_joined))


def _joined(node: Node) -> Node | tuple[Value, ...] | None:
    if node.op.name != "reshape":
        return None
    x = before_reshapes(node.out)
    if x.type == node.types[0]:
        return (x,)
    return None if x is node.inputs[0] else node.with_inputs((x,))
