"""Sums of small tensors of one shape become one node with a sum for each: what they cost is their launches.

Before::

    %5 = sum_to %1 {shape=(512,)} : f32[512]  # a backward
    %9 = sum_to %7 {shape=(512,)} : f32[512]  # b backward

After::

    %5, %9 = fused_sums %1, %7 {body=(), over=(0,), summed=(0, 1)} : f32[512], f32[512]  # b backward

Sums and means join that go over the same axes of tensors of one shape, dtype and phase, and that only optimizer steps
read, or nobody within the program: so no way leads from one to another. A sum's order is a matter of shape and dtype
alone: the bits stay. GPUs alone; linear in nodes and reads.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Hashable
from math import prod
from typing import Final

from dslc.compiler.ir.build import Build
from dslc.compiler.ir.graph import Attr, Graph, Node, Phase, Value, origins_of
from dslc.compiler.ir.program import Program
from dslc.compiler.ops.attrs import int_tuple
from dslc.compiler.ops.fused_sums import finished_sums, fused_sums
from dslc.compiler.passes.bodies import reading
from dslc.compiler.passes.keep import summed_over

SMALL: Final = 1 << 20  # bytes of what is summed, at most
_MOST: Final = 4  # sums of a node, for which a thread has registers


def join_sums(program: Program, build: Build) -> Program:
    """The pass."""
    if build.target == "cpu" or not build.fuse:
        return program
    return dataclasses.replace(program, graph=join_sums_graph(program.graph))


def join_sums_graph(graph: Graph) -> Graph:
    """The graph with such nodes. Deterministic. Running it twice changes nothing more."""
    groups = _groups(graph)
    if not groups:
        return graph
    instead: dict[Value, Value] = {}
    for nodes in groups:
        instead.update(zip((node.out for node in nodes), _joined(nodes).outputs))
    return reading(graph, instead)


def _groups(graph: Graph) -> list[list[Node]]:
    """Nodes that join, two or more each."""
    readers = graph.readers()
    found: dict[Hashable, list[Node]] = {}
    updates: set[object] = set()  # steps of optimizers and what comes of them
    for node in graph.nodes:
        if node.phase is Phase.UPDATE or any(v.producer in updates for v in node.inputs):
            updates.add(node)
            continue
        over = _over(node)
        if over is None or node.input_types[0].bytes > SMALL:
            continue
        if all(reader.phase is Phase.UPDATE for reader in readers.get(node.out, ())):
            found.setdefault((node.input_types[0], over, node.phase), []).append(node)
    cut = [nodes[i : i + _MOST] for nodes in found.values() for i in range(0, len(nodes), _MOST)]
    return [nodes for nodes in cut if len(nodes) > 1]


def _over(node: Node) -> tuple[int, ...] | None:
    """The axes of a sum or mean that joins others; None for any other node."""
    if node.op.name != "mean":
        return summed_over(node)
    rounds = node.types[0].dtype is not node.types[0].dtype.computed  # once, behind the division
    return None if node.attrs["keep"] or rounds else int_tuple(node.attrs, "over")


def _joined(nodes: list[Node]) -> Node:
    """One node for all. A tensor that is summed twice, as for a sum and a mean, is read once."""
    last, type = nodes[-1], nodes[0].input_types[0]
    over = _over(last)
    assert over is not None
    inputs = list(dict.fromkeys(node.inputs[0] for node in nodes))
    attrs: dict[str, Attr] = {"body": (), "summed": tuple(range(len(inputs))), "over": over}
    places = [inputs.index(node.inputs[0]) for node in nodes]
    finish: list[Attr] = []
    if any(node.op.name == "mean" for node in nodes):
        count = prod(type.ints[axis] for axis in over)
        full = (("dtype", type.dtype), ("shape", ()), ("value", float(count)))
        finish.append(("full", (), full))
        for number, node in enumerate(nodes):
            if node.op.name == "mean":
                finish.append(("div", (places[number], len(inputs)), ()))
                places[number] = len(inputs) + len(finish) - 1
    if finish or len(inputs) < len(nodes):
        attrs |= {"late": 0, "finish": tuple(finish), "results": tuple(places)}
    return Node(
        finished_sums if finish else fused_sums, tuple(inputs), tuple(node.types[0] for node in nodes), attrs,
        name=last.name, span=last.span, phase=last.phase, origins=origins_of(nodes),
    )  # fmt: skip
