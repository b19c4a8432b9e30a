"""Replaces each op that a package composes of other ops with these, unless the target has a kernel for the whole.

Before, on the CPU::

    %1 = gating.swiglu %0 : f32[4, 8]  # swiglu forward

After::

    %1 = slice %0 {...} : f32[4, 8]  # swiglu forward
    %2 = silu %1 : f32[4, 8]  # swiglu forward
    %3 = slice %0 {...} : f32[4, 8]  # swiglu forward
    %4 = mul %2, %3 : f32[4, 8]  # swiglu forward

The parts are those of the dtypes that the precision pass chose, so it runs first.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from dslc.compiler.codegen.lowering_cache import lowered
from dslc.compiler.ir.build import Build
from dslc.compiler.ir.graph import Node, Value
from dslc.compiler.ir.op import Builder
from dslc.compiler.ir.program import Program
from dslc.compiler.ops.packages.composed import Composed


def compose(program: Program, build: Build) -> Program:
    """The pass. Ops whose parts are such ops themselves are replaced down to ops that are not."""

    def rule(node: Node) -> Sequence[Value] | None:
        if not _composed(node):
            return None
        assert isinstance(node.op, Composed)
        return node.op.parts(Builder().at(node, node.phase), node.inputs, node.attrs).results

    def _composed(node: Node) -> bool:
        return isinstance(node.op, Composed) and (
            build.provider == "reference" or lowered(node, program.target, vendor=False) is None
        )

    graph = program.graph
    while any(_composed(node) for node in graph.nodes):
        graph = graph.rewrite(rule)
    return program if graph is program.graph else dataclasses.replace(program, graph=graph)
