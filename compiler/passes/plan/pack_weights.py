"""Makes a node of the copy of an operand into panels, with which the kernels of some products begin, if that saves
time.

Before, on a CPU::

    %0 = data x : f32[197, 768]
    %1 = param w : f32[3072, 768]
    %2 = matmul %0, %1 {transpose_a=False, transpose_b=True} : f32[197, 3072]  # fc1 forward

After::

    %2 = panels %1 {panel=32, ...} : f32[2359296]  # fc1 forward
    %3 = of_panels %0, %2 {product="matmul", operand=1, ...} : f32[197, 3072]  # fc1 forward

Only operands of ``predict`` that need nothing but weights are taken, because ``prepare.py``, the next pass, then
computes the copies once after the weights change. The kernels are those of the product, so the bits are the same.
"""

from __future__ import annotations

import dataclasses

from dslc.compiler.codegen.targets import target_of
from dslc.compiler.cost import machine_for, seconds
from dslc.compiler.ir.build import Build
from dslc.compiler.ir.graph import Attrs, Node, Value
from dslc.compiler.ir.program import Program
from dslc.compiler.ops.compound.panels import packed
from dslc.compiler.passes.plan.prepare import WORTH
from dslc.compiler.passes.queries import values_of_weights


def pack_weights(program: Program, build: Build) -> Program:
    """The pass. Linear in nodes."""
    if program.entry != "predict" or program.prepared is not None or not build.prepare or build.provider == "reference":
        return program
    target, machine = target_of(program.target, build.provider == "vendor"), machine_for(build)
    fixed = values_of_weights(program.graph)
    made: dict[tuple[Value, str], Value] = {}

    def rule(node: Node) -> Node | None:
        if node.op.kernel_kind != "product":
            return None
        choice = [i for i, value in enumerate(node.inputs) if value in fixed]
        layout: Attrs | None = target.panel_attrs(node, choice[0]) if len(choice) == 1 else None
        if layout is None:
            return None
        first, last = packed(node, choice[0], layout)
        if seconds(first, machine) < WORTH * seconds(last, machine):
            return None
        copy = made.setdefault((node.inputs[choice[0]], repr(sorted(layout.items()))), first.out)
        return last.with_inputs((last.inputs[0], copy))

    graph = program.graph.rewrite(rule)
    return program if graph is program.graph else dataclasses.replace(program, graph=graph)
