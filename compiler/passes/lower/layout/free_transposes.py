"""Makes a reshape of each transpose that moves only axes of size 1.

Before::

    %1 = transpose %w {perm=(0, 2, 3, 1)} : f32[96, 1, 1, 16]  # conv forward
    %2 = conv_last %x, %1 {...} : f32[8, 14, 14, 96]  # conv forward

After::

    %1 = reshape %w {shape=(96, 1, 1, 16)} : f32[96, 1, 1, 16]  # conv forward
    %2 = conv_last %x, %1 {...} : f32[8, 14, 14, 96]  # conv forward

The elements stay where they are in memory: a reshape moves no bytes, but a transpose is copied. The pass comes after
all that move transposes, since until then such a transpose and the inverse of it cancel each other. Results keep their
bits. Linear in nodes.
"""

from __future__ import annotations

import dataclasses

from dslc.compiler.ir.build import Build
from dslc.compiler.ir.graph import Node
from dslc.compiler.ir.op import OPS
from dslc.compiler.ir.program import Program
from dslc.compiler.ops.attrs import int_tuple
from dslc.compiler.passes.lower.simplify.simplify import simplify_graph
from dslc.compiler.passes.queries import moves_nothing


def free_transposes(program: Program, build: Build) -> Program:
    """The program with such reshapes, joined with other reshapes next to them. Deterministic and idempotent."""
    graph = program.graph.rewrite(_reshape)
    return program if graph is program.graph else dataclasses.replace(program, graph=simplify_graph(graph))


def _reshape(node: Node) -> Node | None:
    if node.op.name != "transpose" or not moves_nothing(node.inputs[0], int_tuple(node.attrs, "perm")):
        return None
    return node.replaced(op=OPS["reshape"], attrs={"shape": node.types[0].shape})
