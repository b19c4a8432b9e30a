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
from dataclasses import dataclass

from dslc.compiler.ir.graph import Attr, Graph, Input, Node, Value, order
from dslc.compiler.ir.op import OPS, Builder
from dslc.compiler.ir.scan import Loop, loop_node, new_input, scan
from dslc.compiler.ir.types import DType, TensorType
from dslc.compiler.passes.rebuild import nodes_reading


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


@dataclass(frozen=True, slots=True)
class _Needed:
    """What a smaller loop has. ``carries``: their numbers in the loop; ``yields``: the values, inside, of its other
    results; ``consts``: a value outside -> the inputs of the body that stand for it; ``sequences``: an input -> the
    sequence."""

    carries: Sequence[int]
    yields: Sequence[Value]
    nodes: tuple[Node, ...]
    consts: Mapping[Value, Sequence[Input]]
    sequences: Mapping[Input, Value]

    def is_all_of(self, loop: Loop) -> bool:
        """Whether the loop has nothing else."""
        mine = len(self.carries), len(self.yields), len(self.consts), len(self.sequences)
        return mine == (len(loop.carries), len(loop.graph.outputs), len(loop.consts), len(loop.sequences))


def _pruned(node: Node, used: frozenset[int]) -> Mapping[int, Value] | None:
    """The values of the used outputs by a smaller loop; None if it is small already."""
    loop, b = Loop.of(node), Builder().at(node, node.phase)
    count, yields = len(loop.carries), list(loop.graph.outputs.values())
    if loop.count == 0:
        return {i: loop.carries[i] if i < count else _empty(b, node.types[i]) for i in used}
    fixed = {source.value for source, v in loop.graph.updates if source.value is v}
    known = _known(loop, used, fixed)
    rest = sorted(used - known.keys())
    needed = _needed(loop, rest, fixed)
    if not known and not fixed and needed.is_all_of(loop):
        return None
    if not rest:
        return known
    outputs = _smaller(loop, needed, b).outputs
    places = {i: n for n, i in enumerate(needed.carries)}
    places |= {i: len(needed.carries) + needed.yields.index(yields[i - count]) for i in rest if i >= count}
    return known | {i: outputs[n] for i, n in places.items()}


def _known(loop: Loop, used: frozenset[int], fixed: set[Value]) -> dict[int, Value]:
    """The outputs that need no loop: last values of carries that no step changes (``fixed``), and sequences that are
    only handed on."""
    count, yields = len(loop.carries), list(loop.graph.outputs.values())
    sequences = dict(zip((source.value for source in loop.sequence_inputs), loop.sequences))
    known = {i: loop.carries[i] for i in used if i < count and loop.carry_inputs[i].value in fixed}
    return known | {i: sequences[yields[i - count]] for i in used if i >= count and yields[i - count] in sequences}


def _needed(loop: Loop, outputs: Sequence[int], fixed: set[Value]) -> _Needed:
    """What these outputs depend on: a carry needs what its next value depends on. Carries that no step changes become
    constants."""
    count, results = len(loop.carries), list(loop.graph.outputs.values())
    yields = list(dict.fromkeys(results[i - count] for i in outputs if i >= count))
    live = {i for i in outputs if i < count}
    while True:
        roots = [*yields, *(loop.graph.updates[i][1] for i in sorted(live))]
        nodes = order(roots)
        read = {v for each in nodes for v in each.inputs} | set(roots)
        more = {i for i, source in enumerate(loop.carry_inputs) if source.value in read and source.value not in fixed}
        if more <= live:
            break
        live |= more
    outside = dict(zip(loop.const_inputs, loop.consts)) | {
        source: first for source, first in zip(loop.carry_inputs, loop.carries) if source.value in fixed
    }
    consts: dict[Value, list[Input]] = {}
    for source, value in outside.items():
        if source.value in read:
            consts.setdefault(value, []).append(source)
    sequences = {source: v for source, v in zip(loop.sequence_inputs, loop.sequences) if source.value in read}
    return _Needed(sorted(live), yields, nodes, consts, sequences)


def _smaller(loop: Loop, needed: _Needed, b: Builder) -> Node:
    """The loop of what is needed, whose inputs have new numbers."""
    consts = {new_input("const", n, value.type): value for n, value in enumerate(needed.consts)}
    carries = {i: new_input("carry", n, loop.carries[i].type) for n, i in enumerate(needed.carries)}
    sequences = {source: new_input("x", n, source.value.type) for n, source in enumerate(needed.sequences)}
    new = {old.value: each.value for each, value in consts.items() for old in needed.consts[value]}
    new |= {loop.carry_inputs[i].value: each.value for i, each in carries.items()}
    new |= {old.value: each.value for old, each in sequences.items()}
    nodes = nodes_reading(needed.nodes, new)
    return loop_node(
        b,
        consts,
        {each: (loop.carries[i], new.get(v := loop.graph.updates[i][1], v)) for i, each in carries.items()},
        {each: needed.sequences[old] for old, each in sequences.items()},
        [new.get(v, v) for v in needed.yields],
        tuple(nodes),
        loop.count,
        loop.reverse,
    )


def _empty(b: Builder, type: TensorType) -> Value:
    """A tensor without elements."""
    nothing: Attr = False if type.dtype is DType.B1 else 0
    return b(OPS["full"], value=nothing, dtype=type.dtype, shape=type.shape)
