"""Fuses pointwise trees into one node, so that intermediate values never go to memory; groups small optimizer updates.

Before::

    %2 = mul %0, %1 : f32[64, 10]  # a forward
    %3 = full {dtype=f32, shape=(), value=2.0} : f32[]  # y forward
    %4 = add %2, %3 : f32[64, 10]  # y forward

After::

    %2 = fused %0, %1 {body=(("mul", (0, 1), ()), ("full", (), ...), ("add", (2, 3), ()))} : f32[64, 10]  # y forward

A pointwise node joins the region of its consumers if all of them are in one region of the same phase and shape, and
nothing outside needs its value. Nodes recomputed for the backward pass may join backward regions. So a region has one
result, no path leaves and re-enters it, and nothing is computed twice except constants of rank 0, which each region
copies. Inner values are rounded to their dtypes, so results keep their bits. Linear in nodes and reads.

A region reads its operands when it runs, so all of them are kept until the last is computed: the sum of WaveNet's 30
skip connections would keep half of the step's bytes. So a region reads at most ``_MOST_KEPT`` tensors of its result's
shape that no other node needs; longer sums are several regions.

``optimizer.py`` merges the updates of small parameters.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Final

from dslc.compiler.ir.build import Build
from dslc.compiler.ir.graph import Graph, Node, Phase, Value, origins_of
from dslc.compiler.ir.op import Pointwise
from dslc.compiler.ir.program import Program
from dslc.compiler.ops.compound.fused import MAX_STEPS, fused
from dslc.compiler.passes.conditions import batches_launches
from dslc.compiler.passes.fuse.body import Body
from dslc.compiler.passes.fuse.horizontal.optimizer import group_updates, read_sums
from dslc.compiler.passes.rebuild import reading

#: Of n such tensors, the traffic grows by 2/n of theirs: each region but the first reads what one wrote.
_MOST_KEPT: Final = 12


def fuse(program: Program, build: Build) -> Program:
    """The pass; does nothing if ``build.fuse`` is off. Deterministic and idempotent."""
    if not build.fuse:
        return program
    return dataclasses.replace(
        program, graph=group_updates(fuse_graph(read_sums(program.graph)), batches_launches(build), build.slices)
    )


def fuse_graph(graph: Graph) -> Graph:
    """The graph with its regions as ``fused`` nodes."""
    return reading(graph, {last.out: _fused(members) for last, members in _regions(graph).items()})


def _is_constant(node: object) -> bool:
    return isinstance(node, Node) and node.op.name == "full" and node.types[0].rank == 0


def why_not_fused(graph: Graph) -> dict[Node, str]:
    """The nodes that no region takes -> the first of the rules above that prevents it."""
    readers, roots, last_of = graph.readers(), set(graph.roots), _last_of(graph)
    return {
        node: why
        for node in graph.nodes
        if not _is_constant(node)
        and last_of.get(node, node) is node
        and (why := _why_not_fused(node, readers.get(node.outputs[0], []), node.outputs[0] in roots, last_of))
    }


def _why_not_fused(node: Node, readers: list[Node], is_root: bool, last_of: dict[Node, Node]) -> str:
    if not isinstance(node.op, Pointwise):
        return f"`{node.op.name}` is not pointwise"
    if node.op.random:
        return f"`{node.op.name}` draws random numbers"
    if is_root:
        return "it is a result of the program"
    for reader in readers:
        if reader not in last_of:
            return f"`{reader.op.name}` reads it, which is not pointwise"
    regions = {last_of[reader]: None for reader in readers}
    if len(regions) > 1:
        return f"{len(regions)} nodes in different regions read it"
    [last] = regions
    if not _together(node.phase, last.phase):
        return f"it runs in {node.phase.value}, its reader in {last.phase.value}"
    if last.out.type.shape != node.out.type.shape:
        return f"it is {node.out.type}, the result of its reader is {last.out.type}"
    return f"the region would have more than {MAX_STEPS} steps, or keep more than {_MOST_KEPT} tensors until it runs"


def _last_of(graph: Graph) -> dict[Node, Node]:
    """Each pointwise node -> the last node of its region, which may be itself."""
    readers = graph.readers()
    roots = set(graph.roots)
    last_of: dict[Node, Node] = {}
    size: dict[Node, int] = {}
    kept: dict[Node, int] = {}
    for node in reversed(graph.nodes):
        if not isinstance(node.op, Pointwise) or node.op.random:
            continue
        last = _joins(node, readers.get(node.out, []), last_of) if node.out not in roots else None
        if last is None or size[last] + _steps(node) > MAX_STEPS or (kept[last] >= _MOST_KEPT and _combines(node)):
            last = node
        last_of[node] = last
        size[last] = size.get(last, 0) + _steps(node)
        kept[last] = kept.get(last, 0) + _kept(node, readers)
    return last_of


def _kept(node: Node, readers: Mapping[Value, list[Node]]) -> int:
    """How many operands of the node's shape, which are not pointwise themselves, only this node reads."""
    return sum(
        isinstance(v.producer, Node)
        and not isinstance(v.producer.op, Pointwise)
        and v.type.shape == node.out.type.shape
        and readers[v] == [node]
        for v in node.inputs
    )


def _combines(node: Node) -> bool:
    """Whether the node reads two tensors of its shape, so that its result alone takes less memory than both."""
    return sum(v.type.shape == node.out.type.shape for v in node.inputs) > 1


def _steps(node: Node) -> int:
    """Steps that a node adds to a region, including its constants."""
    return 1 + sum(_is_constant(v.producer) for v in node.inputs)


def _regions(graph: Graph) -> dict[Node, list[Node]]:
    """The last node of each region of two steps or more -> its nodes, in order."""
    last_of = _last_of(graph)
    regions: dict[Node, list[Node]] = {}
    for node in graph.nodes:
        if node in last_of:
            regions.setdefault(last_of[node], []).append(node)
    return {last: members for last, members in regions.items() if len(members) > 1 or _steps(last) > 1}


def _joins(node: Node, readers: list[Node], last_of: dict[Node, Node]) -> Node | None:
    """The region that contains all consumers, if the node may join it."""
    found = {last_of.get(reader) for reader in readers}
    last = found.pop() if len(found) == 1 else None
    if last is None or not _together(node.phase, last.phase) or last.out.type.shape != node.out.type.shape:
        return None
    return last


def _together(phase: Phase, last: Phase) -> bool:
    """Whether a node of ``phase`` may join a region that ends in phase ``last``: recomputed nodes may join their
    consumers."""
    return phase is last or (phase is Phase.MIRROR and last is Phase.BACKWARD)


def _fused(members: list[Node]) -> Value:
    """Returns the result of one node for the region, which takes the name and span of the last member."""
    inside = {n.out for n in members}
    outside = [v for n in members for v in n.inputs if v not in inside and not _is_constant(v.producer)]
    body = Body(outside)
    for node in members:
        for value in node.inputs:
            if isinstance(value.producer, Node) and _is_constant(value.producer) and value not in body.number:
                body.add(value.producer)
        body.add(node, is_last=node is members[-1])
    last = members[-1]
    attrs = {"body": tuple(body.steps)}
    # The type is the last member's. Inferring it would walk the body again; verify does that in any case.
    return last.replaced(op=fused, inputs=body.inputs, attrs=attrs, origins=origins_of(members)).out
