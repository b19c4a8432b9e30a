"""Computes small pointwise values inside their readers, if that takes less time than a launch of their own.

Before::

    %1 = fused %x {x * 2 - 1, floor} : f32[80, 7, 1, 2]
    %2 = fused %1, %a {...} : f32[80, 7, 7, 2, 2]
    %3 = fused %1, %b {...} : i32[80, 7, 7, 2, 2]

After::

    %2 = fused %x, %a {x * 2 - 1, floor, ...} : f32[80, 7, 7, 2, 2]
    %3 = fused %x, %b {x * 2 - 1, floor, ...} : i32[80, 7, 7, 2, 2]

``fuse`` joins only nodes of one shape whose value one region reads, so that nothing is computed twice. Here each reader
computes the value for each of its elements. The value is not a result of the graph, and all of its readers are
pointwise nodes of the same phase. By the cost model, their additional operations take less time than a launch; so does
moving the bytes of the value and of what it is computed from. So indices and weights that are computed from a few
numbers, such as the pixels of boxes, take one or two kernels. Steps round as before, so results keep their bits. The
pass is for GPUs. It runs after the passes that join reductions with pointwise nodes, since steps may be smaller than
the result here. Linear in nodes and reads, for each link of a chain of such values.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import TypeAlias

from dslc.compiler.cost import kernel_seconds, machine_for, moved, operations
from dslc.compiler.ir.build import Build
from dslc.compiler.ir.graph import Graph, Node
from dslc.compiler.ops.compound.fused import MAX_STEPS
from dslc.compiler.passes.fuse.body import body_of, inlined, is_pointwise, packs_bits

#: Whether readers compute a value in less time than its node takes.
Pays: TypeAlias = "Callable[[Node, Sequence[Node]], bool]"


def pays(build: Build) -> Pays:
    """The rule of a build."""
    machine = machine_for(build)
    launch, start = machine.device.launch, kernel_seconds("elements", 0, 0, machine)

    def rule(made: Node, readers: Sequence[Node]) -> bool:
        each = operations(made) / max(1, prod(made.types[0].ints))
        more = sum(each * prod(reader.types[0].ints) for reader in readers)
        arithmetic = kernel_seconds("elements", 0, int(more), machine) - start
        return max(arithmetic, moved(made) / machine.device.bandwidth) < launch

    return rule


def small_producers(graph: Graph, rule: Pays) -> Graph:
    """The graph in which no more such values move into their readers. Deterministic and idempotent."""
    while chosen := _chosen(graph, rule):
        graph = inlined(graph, chosen)
    return graph


def _chosen(graph: Graph, rule: Pays) -> dict[Node, list[Node]]:
    """A reader -> the producers of its inputs that it will compute. Of a chain of such values, the last."""
    readers, roots = graph.readers(), set(graph.roots)
    found: dict[Node, list[Node]] = {}
    moving: set[Node] = set()
    for made in reversed(graph.nodes):
        if not _is_able(made) or any(v in roots for v in made.outputs):
            continue
        own = list(dict.fromkeys(reader for v in made.outputs for reader in readers.get(v, ())))
        if (
            own
            and all(reader not in moving and _may_compute(reader, made, found) for reader in own)
            and rule(made, own)
        ):
            moving.add(made)
            for reader in own:
                found.setdefault(reader, []).append(made)
    # the order of a body is that of its node's inputs
    return {
        node: [n for n in dict.fromkeys(v.producer for v in node.inputs) if n in own] for node, own in found.items()
    }


def _may_compute(reader: Node, made: Node, found: dict[Node, list[Node]]) -> bool:
    nodes = (reader, made, *found.get(reader, ()))
    return made.phase is reader.phase and _is_able(reader) and sum(len(body_of(node)) for node in nodes) <= MAX_STEPS


def _is_able(node: Node) -> bool:
    return is_pointwise(node) and not packs_bits(node)
