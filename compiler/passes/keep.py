"""Sums that make what they add up write it, too, where others want it: it is read once less.

Before::

    %1 = fused %y, %d1, %d2 {where(y <= 0, 0, d1 + d2)} : bf16[8, 14, 14, 64]
    %2, %3 = fused_sums %1, %x, ... {...} : f32[64], f32[64]
    %4 = fused %1, %x, %2, %3, ... {...} : bf16[8, 14, 14, 64]

After::

    %2, %3, %1 = fused_sums %y, %d1, %d2, %x, ... {where(y <= 0, 0, d1 + d2), ..., kept=(...)} : f32[64], f32[64], ...
    %4 = fused %1, %x, %2, %3, ... {...} : bf16[8, 14, 14, 64]

So it is with a dropout, and with a plain ``sum`` or ``sum_to``, as of a bias's gradient, which becomes such sums. Where
nobody else wants the value, or it is cheaper to compute anew, ``absorb`` has had its say. The bits stay, up to the
order of a sum. GPUs alone, linear in nodes and reads.
"""

from __future__ import annotations

import dataclasses
from typing import Final

from dslc.compiler.ir.build import Build
from dslc.compiler.ir.graph import Attr, Graph, Node, Value
from dslc.compiler.ir.program import Program
from dslc.compiler.ops.attrs import int_tuple
from dslc.compiler.ops.fused import MAX_STEPS
from dslc.compiler.ops.fused_sums import full_shape, fused_sums
from dslc.compiler.passes.absorb import joined
from dslc.compiler.passes.bodies import body_of, has_neighbours, is_pointwise

SMALL: Final = 1 << 16  # bytes of a value that is as well read
_MUCH: Final = 8  # nodes


def keep(program: Program, build: Build) -> Program:
    """The pass."""
    if build.target == "cpu" or not build.fuse:
        return program
    return dataclasses.replace(program, graph=keep_graph(program.graph))


def keep_graph(graph: Graph) -> Graph:
    """The graph with such sums. Running it twice changes nothing more."""
    keeps = _keeps(graph)
    if not keeps:
        return graph
    new: dict[Value, Value] = {}
    done: set[Node] = set()
    for first in graph.nodes:
        made = first if first in keeps else None
        # sums come to where what they make stood, behind the little that they need besides
        for node in (first,) if made is None else (*keeps[first].late, keeps[first].sums):
            if node in done:
                continue
            done.add(node)
            if made is not None and node is keeps[made].sums:
                fresh = _keeping(keeps[made], made, new)
                if keeps[made].wanted:
                    new[made.out] = fresh.outputs[-1]
            else:
                fresh = node.reading(new)
            if fresh is not node:
                new.update(zip(node.outputs, fresh.outputs))
    return graph.replace_values(new)


@dataclasses.dataclass(frozen=True)
class _Keep:
    """Sums that are to make a value, nodes behind its place that they need, in order, and whether others want it."""

    sums: Node
    late: tuple[Node, ...]
    wanted: bool


def _keeps(graph: Graph) -> dict[Node, _Keep]:
    """By the pointwise nodes that the sums are to make."""
    position = {node: i for i, node in enumerate(graph.nodes)}
    readers, roots = graph.readers(), set(graph.roots)
    found: dict[Node, _Keep] = {}
    for node in graph.nodes:
        if (node.op.name != "fused_sums" and summed_over(node) is None) or "kept" in node.attrs:
            continue
        for value in node.inputs:
            made = value.producer
            if isinstance(made, Node) and made not in found and _fits(made, node):
                late = _late(made, node, position)
                if late is not None and not any(n in found for n in late):
                    found[made] = _Keep(node, late, made.out in roots or len(readers[made.out]) > 1)
                    break
    return found


def _fits(made: Node, sums: Node) -> bool:
    """Whether the node is pointwise or a dropout, and as large as what is summed."""
    elements = is_pointwise(made) or (made.op.name == "dropout" and has_neighbours(made.out))
    if not elements or len(made.outputs) > 1 or made.types[0].bytes <= SMALL:
        return False
    if sums.op.name != "fused_sums":
        return True
    steps = len(body_of(made)) + len(body_of(sums))
    return steps <= MAX_STEPS and made.types[0].ints == full_shape(sums)


def summed_over(node: Node) -> tuple[int, ...] | None:
    """The axes of a plain sum whose result has the others alone; None for any other node."""
    if node.op.name == "sum" and not node.attrs["keep"]:
        return int_tuple(node.attrs, "over")
    if node.op.name == "sum_to":
        wide, small = node.input_types[0].ints, node.types[0].ints
        lost = len(wide) - len(small)
        return tuple(range(lost)) if lost and wide[lost:] == small else None
    return None


def _late(made: Node, sums: Node, position: dict[Node, int]) -> tuple[Node, ...] | None:
    """What the sums need besides that stands behind ``made``; None where that comes of it, or is much."""
    found: set[Node] = set()
    stack = [v.producer for v in sums.inputs if v is not made.out]
    while stack:
        node = stack.pop()
        if not isinstance(node, Node) or node in found or position[node] < position[made]:
            continue
        if node is made or node.op.name == "fused_sums" or len(found) == _MUCH:
            return None
        found.add(node)
        stack += [v.producer for v in node.inputs]
    return tuple(sorted(found, key=position.__getitem__))


def _keeping(keep: _Keep, made: Node, new: dict[Value, Value]) -> Node:
    sums, over = keep.sums, summed_over(keep.sums)
    if over is not None:
        plain: dict[str, Attr] = {"body": (), "summed": (0,), "over": over}
        sums = Node(
            fused_sums, sums.inputs, sums.types, plain,
            name=sums.name, span=sums.span, phase=sums.phase, origins=sums.origins,
        )  # fmt: skip
    whole = joined(sums, {made.out: made}, new)
    if not keep.wanted:
        return whole
    number = len(whole.inputs) + len(body_of(made)) - 1  # its steps stand in front
    attrs = {**whole.attrs, "kept": (number,)}
    types = (*whole.types, made.types[0])
    return Node(
        whole.op, whole.inputs, types, attrs,
        name=whole.name, span=whole.span, phase=whole.phase, origins=whole.origins,
    )  # fmt: skip
