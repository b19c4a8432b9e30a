"""Joins loops with equal steps that do not need each other into one node, which one resident kernel runs at once.

Before, the two directions of a layer, one kernel after the other::

    %1, %2 = scan %w, %h, %x {consts=1, count=500, reverse=False} : bf16[32, 768], bf16[500, 32, 768]
    %3, %4 = scan %v, %h, %y {consts=1, count=500, reverse=True} : bf16[32, 768], bf16[500, 32, 768]

After::

    %1, %2, %3, %4 = scans %w, %h, %x, %v, %h, %y {consts=1, count=500, reverse=(False, True)} : ...

A step of a resident kernel mostly waits for words from other blocks, and needs few of a GPU's multiprocessors. So loops
that share them take little longer than one alone. Loops are joined if a build runs each as one kernel, and if the
target says that one for all takes less time. They have the same step, sizes, phase and depth, the number of loops on
the longest path to them; so no path leads from one to another. The tensors of joined loops are in memory together, so a
build with a budget of bytes keeps loops apart. In one kernel, a loop may be divided among other numbers of blocks and
warps than alone; then it adds the terms of its products in another order. Linear in nodes and reads.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Hashable
from typing import TypeAlias

from dslc.compiler.codegen.targets import target_of, traits_of
from dslc.compiler.ir.bodies.scans import joined, scans
from dslc.compiler.ir.build import Build
from dslc.compiler.ir.choice import key_of
from dslc.compiler.ir.graph import Graph, Node, Value
from dslc.compiler.ir.program import Program
from dslc.compiler.ir.scan import scan
from dslc.compiler.passes.plan.select_kernels import choice_of, way_of_loop
from dslc.compiler.passes.rebuild import reading

#: A loop, and how many like it there are -> how many of them one kernel runs.
AtOnce: TypeAlias = Callable[[Node, int], int]


def joined_loops(program: Program, build: Build) -> Program:
    """The pass."""
    if not build.fuse or build.budget is not None or not traits_of(build.target).blocks_may_wait:
        return program
    target = target_of(build.target)

    def at_once(loop: Node, count: int) -> int:
        way, _ = way_of_loop(loop, program, build)
        return 1 if way is None else target.loops_at_once(loop, way, count)

    def measured(loop: Node) -> Hashable:
        return choice_of(loop, build)

    return dataclasses.replace(program, graph=with_joined_loops(program.graph, at_once, measured))


def with_joined_loops(graph: Graph, at_once: AtOnce, measured: Callable[[Node], Hashable] = lambda loop: None) -> Graph:
    """The graph with joined loops. ``measured``: how a loop is computed by measurements; loops for which that differs,
    as those of two directions may, stay apart. Deterministic and idempotent."""
    depth: dict[Node, int] = {}
    alike: dict[Hashable, list[Node]] = {}
    for node in graph.nodes:
        made = [v.producer for v in node.inputs if isinstance(v.producer, Node)]
        depth[node] = max((depth[each] + (each.op in (scan, scans)) for each in made), default=0)
        if node.op is scan:
            step = key_of(node.replaced(attrs={**node.attrs, "reverse": False}))
            alike.setdefault((step, node.phase, depth[node], measured(node)), []).append(node)
    instead: dict[Value, Value] = {}
    for loops in alike.values():
        while len(loops) > 1 and (count := at_once(loops[0], len(loops))) > 1:
            some, loops = loops[:count], loops[count:]
            instead.update(zip((v for loop in some for v in loop.outputs), joined(some).outputs))
    return reading(graph, instead)
