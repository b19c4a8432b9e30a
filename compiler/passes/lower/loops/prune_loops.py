"""Removes unused results, carries and inputs from loops. A part of ``simplify``.

Before, with ``%2`` and ``%4`` unused::

    %2, %3, %4 = scan %w, %h, %g, %x ... : f32[4], f32[8, 4], f32[8, 4]
      ...
      output y.0 = %7
      output y.1 = %3
      update carry.0 = %7
      update carry.1 = %5

After::

    %2, %3 = scan %w, %h, %x ... : f32[4], f32[8, 4]
      ...
      output y.0 = %7
      update carry.0 = %7

A carry stays if a result depends on it, or its last value is read. A carry that never changes becomes a constant, a
result that only hands on a sequence becomes that sequence, equal results become one, and a loop without steps hands on
its first values.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from dslc.compiler.ir.graph import Attr, Graph, Input, Node, Value, order
from dslc.compiler.ir.op import OPS, Builder
from dslc.compiler.ir.scan import Loop, loop_node, new_input, scan
from dslc.compiler.ir.types import DType, TensorType


def prune_loops(graph: Graph) -> Graph:
    """The graph with smaller loops; the same object if nothing changes."""
    while True:
        changed = _once(graph)
        if changed is graph:
            return graph
        graph = changed


def _once(graph: Graph) -> Graph:
    """Prunes each loop with respect to the present readers of its results."""
    if not any(node.op is scan for node in graph.nodes):
        return graph
    used = {v for node in graph.nodes for v in node.inputs} | set(graph.roots)
    wanted = {node: frozenset(i for i, v in enumerate(node.outputs) if v in used) for node in graph.nodes}
    new: dict[Value, Value] = {}
    for node in graph.nodes:
        current = node.reading(new)
        found = _pruned(current, wanted[node]) if node.op is scan else None
        if found is not None:
            new.update((node.outputs[i], value) for i, value in found.items())
        elif current is not node:
            new.update(zip(node.outputs, current.outputs))
    return graph.replace_values(new) if new else graph


def _pruned(node: Node, used: frozenset[int]) -> Mapping[int, Value] | None:
    """The values of the used outputs by a smaller loop; None if it is small already."""
    loop = Loop.of(node)
    carries, yields = len(loop.carries), list(loop.graph.outputs.values())
    b = Builder().at(node, node.phase)
    if loop.count == 0:
        return {i: loop.carries[i] if i < carries else _empty(b, node.types[i]) for i in used}
    fixed = {source.value for source, v in loop.graph.updates if source.value is v}
    result: dict[int, Value] = {i: loop.carries[i] for i in used if i < carries and loop.carry_inputs[i].value in fixed}
    whole = dict(zip((source.value for source in loop.sequence_inputs), loop.sequences))
    result |= {i: whole[yields[i - carries]] for i in used if i >= carries and yields[i - carries] in whole}
    kept = list(dict.fromkeys(yields[i - carries] for i in sorted(used) if i >= carries and i not in result))
    live = {i for i in used if i < carries and i not in result}
    nodes, read, live = _needed(loop, kept, live, fixed)
    consts = dict(zip(loop.const_inputs, loop.consts)) | {
        source: first for source, first in zip(loop.carry_inputs, loop.carries) if source.value in fixed
    }
    const_of: dict[Value, list[Input]] = {}
    for source, value in consts.items():
        if source.value in read:
            const_of.setdefault(value, []).append(source)
    sequences = {s: v for s, v in zip(loop.sequence_inputs, loop.sequences) if s.value in read}
    small = len(kept) == len(yields) and len(live) == carries and not fixed and not result
    small = small and len(const_of) == len(loop.consts) and len(sequences) == len(loop.sequences)
    if small:
        return None
    if not kept and not live:
        return result
    new: dict[Value, Value] = {}
    new_consts: dict[Input, Value] = {}
    for value, sources in const_of.items():
        inner = new_input("const", len(new_consts), value.type)
        new_consts[inner] = value
        new.update((source.value, inner.value) for source in sources)
    numbered = sorted(live)
    new_carries = {i: new_input("carry", n, loop.carries[i].type) for n, i in enumerate(numbered)}
    new_sequences = {s: new_input("x", n, s.value.type) for n, s in enumerate(sequences)}
    new.update((loop.carry_inputs[i].value, source.value) for i, source in new_carries.items())
    new.update((old.value, source.value) for old, source in new_sequences.items())
    inside: list[Node] = []
    for each in nodes:
        inside.append(each.reading(new))
        new.update((old, v) for old, v in zip(each.outputs, inside[-1].outputs) if old is not v)
    made = loop_node(
        b,
        new_consts,
        {s: (loop.carries[i], new.get(v := loop.graph.updates[i][1], v)) for i, s in new_carries.items()},
        {s: sequences[old] for old, s in new_sequences.items()},
        [new.get(v, v) for v in kept],
        tuple(inside),
        loop.count,
        loop.reverse,
    )
    result |= {i: made.outputs[n] for n, i in enumerate(numbered)}
    for i in used:
        if i >= carries and i not in result:
            result[i] = made.outputs[len(numbered) + kept.index(yields[i - carries])]
    return result


def _needed(
    loop: Loop, kept: Sequence[Value], live: set[int], fixed: set[Value]
) -> tuple[tuple[Node, ...], set[Value], set[int]]:
    """The nodes that these results and carries need, the values that are read, and all carries that are needed.
    ``fixed``: the carries that no step changes."""
    while True:
        roots = [*kept, *(loop.graph.updates[i][1] for i in sorted(live))]
        nodes = order(roots)
        read = {v for each in nodes for v in each.inputs} | set(roots)
        more = {i for i, source in enumerate(loop.carry_inputs) if source.value in read and source.value not in fixed}
        if more <= live:
            return nodes, read, live
        live = live | more


def _empty(b: Builder, type: TensorType) -> Value:
    """A tensor without elements."""
    nothing: Attr = False if type.dtype is DType.B1 else 0
    return b(OPS["full"], value=nothing, dtype=type.dtype, shape=type.shape)
