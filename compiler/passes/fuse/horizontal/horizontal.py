"""Merges pointwise nodes of small tensors with one shape into one node with several results, to save launches.

Before::

    %3 = fused %1, %2 {...} : f32[64]  # bn forward
    %4 = mul %3, %w : f32[64]  # bn forward
    %5 = fused %3, %rm {...} : f32[64]  # bn forward

After::

    %3, %4, %5 = fused %1, %2, %w, %rm {..., results=(...)} : f32[64], f32[64], f32[64]  # bn forward

Nodes are merged if they have the same shape, phase and depth. Depth is the longest path from an input, counting only
edges that change the shape, the phase or the kind of node. So no path leads from one merged node through a node outside
to another. Results keep their bits. GPU only; linear in nodes and reads.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from dslc.compiler.ir.build import Build
from dslc.compiler.ir.graph import Graph, Input, Node, Phase, Value, origins_of
from dslc.compiler.ops.compound.fused import MAX_STEPS, fused
from dslc.compiler.passes.fuse.body import Body, body_of, is_pointwise
from dslc.compiler.passes.queries import is_small
from dslc.compiler.passes.rebuild import reading

MAX_RESULTS: Final = 16


def slices(build: Build) -> Mapping[str, int]:
    """The slice of each tensor of the state that the update of a step with shards changes, by name."""
    return build.slices


def horizontal(graph: Graph, slices: Mapping[str, int] = MappingProxyType({})) -> Graph:
    """The graph with such nodes. Deterministic and idempotent. Parts of an update that read different ``slices`` of the
    state are not merged."""
    small = {node for node in graph.nodes if _is_small(node)}
    groups = _groups(graph, small, _depths(graph, small), slices)
    if not groups:
        return graph
    group_of = {node: number for number, nodes in enumerate(groups) for node in nodes}
    outside = set(graph.roots)
    for node in graph.nodes:
        outside.update(v for v in node.inputs if group_of.get(node, -1) != group_of.get(v.producer, -2))  # type: ignore[arg-type]
    instead: dict[Value, Value] = {}
    for nodes in groups:
        instead.update(_joined(nodes, outside))
    return reading(graph, instead)


def _is_small(node: Node) -> bool:
    shape = node.types[0].shape
    return all(is_small(v) and v.type.shape == shape for v in node.outputs) and is_pointwise(node)


def _depths(graph: Graph, small: set[Node]) -> dict[Node, int]:
    """The number of edges between nodes of different kind, shape or phase on the longest path to each node."""
    depth: dict[Node, int] = {}
    for node in graph.nodes:
        deepest = 0
        for value in node.inputs:
            made = value.producer
            if isinstance(made, Node):
                together = small.issuperset((made, node)) and _alike(made, node)
                deepest = max(deepest, depth[made] + (0 if together else 1))
        depth[node] = deepest
    return depth


def _alike(made: Node, node: Node) -> bool:
    return made.phase is node.phase and made.types[0].shape == node.types[0].shape


def _groups(graph: Graph, small: set[Node], depth: dict[Node, int], slices: Mapping[str, int]) -> list[list[Node]]:
    """Groups of two or more nodes to merge, in graph order."""
    found: dict[tuple[object, ...], list[list[Node]]] = {}
    for node in graph.nodes:
        if node not in small or node.op.name == "full":
            continue
        read = (v.producer.name for v in node.inputs if isinstance(v.producer, Input))
        of = frozenset(slices[name] for name in read if name in slices) if node.phase is Phase.UPDATE else None
        lists = found.setdefault((node.types[0].shape, node.phase, depth[node], of), [[]])
        steps = sum(len(body_of(n)) for n in (*lists[-1], node))
        if steps > MAX_STEPS or sum(len(n.outputs) for n in (*lists[-1], node)) > MAX_RESULTS:
            lists.append([])
        lists[-1].append(node)
    return [nodes for lists in found.values() for nodes in lists if len(nodes) > 1]


def _joined(nodes: list[Node], outside: set[Value]) -> dict[Value, Value]:
    """The values read outside as the outputs of one node for all."""
    own = {v for n in nodes for v in n.outputs}
    body = Body(v for n in nodes for v in n.inputs if v not in own)
    for node in nodes:
        body.add(node)
    kept = [v for n in nodes for v in n.outputs if v in outside]
    attrs = {"body": tuple(body.steps), "results": tuple(body.number[v] for v in kept)}
    whole = nodes[-1].replaced(
        op=fused, inputs=body.inputs, types=tuple(v.type for v in kept), attrs=attrs, origins=origins_of(nodes)
    )
    return dict(zip(kept, whole.outputs))
