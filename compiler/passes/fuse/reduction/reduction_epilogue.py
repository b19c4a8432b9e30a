"""Fuses the pointwise epilogue of a reduction into the kernel that finishes the reduction, e.g. batch statistics.

Before::

    %2, %3 = fused_sums %x, %rm {...} : f32[64], f32[64]  # bn forward
    %4, %5, %6 = fused %2, %3, %w, %rm {...} : f32[64], f32[64], f32[64]  # bn forward

After::

    %4, %5, %6 = finished_sums %x, %rm, %w, %rm {..., finish=..., late=2, results=...} : f32[64], f32[64], f32[64]

This saves a launch for a few numbers. The epilogue's other operands must have the reduction's result shape. They must
be computed before the reduction, or be reshapes of values that are. Results keep their bits. GPU only; linear in nodes
and reads.
"""

from __future__ import annotations

from dslc.compiler.ir.graph import Graph, Node, Value, origins_of
from dslc.compiler.ops.attrs import int_tuple
from dslc.compiler.ops.compound.fused import MAX_STEPS
from dslc.compiler.ops.compound.fused_sums import MAX_LATE, MAX_RESULTS, finished_sums, fused_sums
from dslc.compiler.passes.fuse.body import Body, body_of, is_pointwise
from dslc.compiler.passes.rebuild import reading


def reduction_epilogue(graph: Graph) -> Graph:
    """The graph with such reductions. Idempotent."""
    epilogues = _epilogues(graph)
    taken = {node: sums for sums, node in epilogues.items()}
    wanted = {v for n in graph.nodes for v in n.inputs if v.producer is not taken.get(n)} | {*graph.roots}
    instead: dict[Value, Value] = {}
    for sums, node in epilogues.items():
        instead.update(_merged(sums, node, wanted))
    return reading(graph, instead)


def _epilogues(graph: Graph) -> dict[Node, Node]:
    """A reduction -> the pointwise node that becomes its epilogue."""
    all_sums = [node for node in graph.nodes if node.op is fused_sums and "finish" not in node.attrs]
    if not all_sums:
        return {}
    position = {node: i for i, node in enumerate(graph.nodes)}
    readers = graph.readers()
    found: dict[Node, Node] = {}
    taken: set[Node] = set()
    for sums in all_sums:
        for node in dict.fromkeys(r for v in _reduced(sums) for r in readers.get(v, ())):
            if node not in taken and _fits(sums, node, position):
                found[sums] = node
                taken.add(node)
                break
    return found


def _reduced(node: Node) -> tuple[Value, ...]:
    """The reduced outputs, without extra ("kept") ones."""
    return node.outputs[: len(int_tuple(node.attrs, "summed"))]


def _fits(sums: Node, node: Node, position: dict[Node, int]) -> bool:
    shape = sums.types[0].shape
    if not is_pointwise(node) or node.phase is not sums.phase or any(t.shape != shape for t in node.types):
        return False
    late = [v for v in node.inputs if v not in _reduced(sums)]
    there = all(_is_computed_before(v, position, position[sums]) for v in late)
    few = len(late) <= MAX_LATE and len(node.outputs) + len(sums.outputs) <= MAX_RESULTS
    return there and few and len(body_of(node)) <= MAX_STEPS and all(v.type.shape in (shape, ()) for v in late)


def _is_computed_before(value: Value, position: dict[Node, int], before: int) -> bool:
    """Whether the value, or the one that it is a reshape of, is computed before the node at that position."""
    node = value.producer
    if not isinstance(node, Node) or position[node] < before:
        return True
    return node.op.name == "reshape" and _is_computed_before(node.inputs[0], position, before)


def _merged(sums: Node, node: Node, wanted: set[Value]) -> dict[Value, Value]:
    """The results of both as those of one node. ``wanted``: values that other nodes read."""
    own = _reduced(sums)
    body = Body((*own, *node.inputs))
    body.add(node)
    late = body.inputs[len(own) :]
    results = {v: body.number[v] for v in node.outputs}
    results |= {v: body.number[v] for v in own if v in wanted}
    kept = sums.outputs[len(own) :]
    attrs = {**sums.attrs, "late": len(late), "finish": tuple(body.steps), "results": tuple(results.values())}
    whole = sums.replaced(
        op=fused_sums if kept else finished_sums,
        inputs=(*sums.inputs, *late),
        types=tuple(v.type for v in (*results, *kept)),
        attrs=attrs,
        origins=origins_of((sums, node)),
    )
    return dict(zip((*results, *kept), whole.outputs))
