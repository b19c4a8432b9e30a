"""Computes after a loop what its steps need not compute: sums over all steps, and the old values of carries.

Before, in the gradient of a bias, and where a result is a carry as a step finds it::

    %4, %5, %6, %7 = scan %s, %h, ... : f32[64], f32[20, 64], f32[35, 20, 64], f32[35, 20, 64]
      %3 = sum_to %2 {shape=(64,)} : f32[64]
      %4 = add %0, %3 : f32[64]
      output y.0 = %2
      output y.1 = %1
      update carry.0 = %4
      update carry.1 = %9

After::

    %3, %4, %5 = scan %h, ... : f32[20, 64], f32[35, 20, 64], f32[35, 20, 64]
      output y.0 = %2
      output y.1 = %9
      update carry.0 = %9
    %6 = sum_to %4 {shape=(64,)} : f32[64]
    %7 = add %s, %6 : f32[64]
    %8 = slice %5 {stops=(34, 20, 64), ...} : f32[34, 20, 64]
    %9 = concat (%h as f32[1, 20, 64]), %8 {axis=0} : f32[35, 20, 64]

A launch in each step takes longer than all of this. A product that sums over all steps takes them in the order in which
they lie in memory, not the last one first, which takes a copy of both factors. So sums of steps are added in another
order than in the loop, and of 16-bit values if the loop yields these; old values keep their bits. Linear in nodes and
reads.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import copysign

from dslc.compiler.ir.graph import Graph, Input, Node, Value, order
from dslc.compiler.ir.op import OPS, Builder
from dslc.compiler.ir.scan import Loop, loop_node, scan


def after_loops(graph: Graph) -> Graph:
    """The graph with less in its loops; the same object if nothing changes. Idempotent."""
    rules = {"scan": _summed, "matmul": _in_place}
    graph = graph.rewrite(lambda node: rules[node.op.name](node) if node.op.name in rules else None)
    return graph.rewrite(lambda node: _shifted(node) if node.op is scan else None)


def _summed(node: Node) -> Sequence[Value] | None:
    loop, b = Loop.of(node), Builder().at(node, node.phase)
    yields = list(loop.graph.outputs.values())
    terms: dict[Input, Node] = {}
    for source, value in loop.graph.updates:
        term = _term(loop, source, value)
        if term is not None and (rows := _rounded(loop, term.inputs[0])) in yields:
            terms[source] = b.node(OPS["sum_to"], rows, shape=term.out.type.shape)
    if not terms:
        return None
    kept = [source for source in loop.carry_inputs if source not in terms]
    made = _with(loop, b, kept, yields)
    results = dict(zip(kept, made.outputs))
    stacks = made.outputs[len(kept) :]
    outputs: list[Value] = []
    for source, first in zip(loop.carry_inputs, loop.carries):
        if source not in terms:
            outputs.append(results[source])
            continue
        rows = stacks[yields.index(terms[source].inputs[0])]
        if rows.type.dtype is not source.value.type.dtype:
            rows = b(OPS["cast"], rows, dtype=source.value.type.dtype)
        total = b(OPS["sum_to"], rows, shape=source.value.type.shape)
        outputs.append(total if _is_nothing(first) else b(OPS["add"], first, total))
    return [*outputs, *stacks]


def _term(loop: Loop, source: Input, value: Value) -> Node | None:
    """The sum that a step adds to this carry, if it does nothing else with it."""
    made = value.producer
    readers = [node for node in loop.graph.nodes if source.value in node.inputs]
    if not isinstance(made, Node) or made.op.name != "add" or readers != [made]:
        return None
    if any(value in node.inputs for node in loop.graph.nodes) or value in loop.graph.outputs.values():
        return None
    if source.value in loop.graph.outputs.values():
        return None
    others = [v.producer for v in made.inputs if v is not source.value]
    if len(others) != 1 or not isinstance(others[0], Node) or others[0].op.name != "sum_to":
        return None
    shape, rows = others[0].types[0].shape, others[0].input_types[0].shape
    return others[0] if shape and rows[len(rows) - len(shape) :] == shape else None


def _rounded(loop: Loop, value: Value) -> Value:
    """The value as the loop yields it: itself, or rounded to 16 bits."""
    yields = loop.graph.outputs.values()
    return value if value in yields else next((each for each in yields if _is_half_of(each, value)), value)


def _is_half_of(half: Value, value: Value) -> bool:
    """Whether it is the cast of the value to 16 bits, or joins the casts of its parts."""
    made, whole = half.producer, value.producer
    if not isinstance(made, Node) or not half.type.dtype.is_half:
        return False
    if made.op.name == "cast":
        return made.inputs[0] is value
    if made.op.name != "concat" or not isinstance(whole, Node) or whole.op is not made.op or whole.attrs != made.attrs:
        return False
    return len(made.inputs) == len(whole.inputs) and all(map(_is_half_of, made.inputs, whole.inputs))


def _is_nothing(value: Value) -> bool:
    """Whether adding it changes no bit."""
    made = value.producer
    if not isinstance(made, Node) or made.op.name != "full":
        return False
    number = made.attrs["value"]
    return isinstance(number, float) and number == 0 and copysign(1.0, number) < 0


def _in_place(node: Node) -> Sequence[Value] | None:
    """A product over the steps of two sequences, without turning both around."""
    if not node.attrs["transpose_a"] or node.attrs["transpose_b"]:
        return None
    left, right = map(_turned, node.inputs)
    if left is None or right is None or left.type.shape[:2] != right.type.shape[:2]:
        return None
    b = Builder().at(node, node.phase)
    inputs = [b(OPS["reshape"], x, shape=v.type.shape) for x, v in zip((left, right), node.inputs)]
    return b.node(node.op, *inputs, **node.attrs).outputs


def _turned(value: Value) -> Value | None:
    """The sequence [steps, rows, columns] of which this is [steps * rows, columns] with the last step first."""
    made = value.producer
    slice_ = made.inputs[0].producer if isinstance(made, Node) and made.op.name == "reshape" else None
    if not isinstance(slice_, Node) or slice_.op.name != "slice" or slice_.attrs["steps"] != (-1, 1, 1):
        return None
    whole = slice_.inputs[0]
    count, rows, columns = slice_.types[0].ints
    return whole if whole.type == slice_.types[0] and value.type.ints == (count * rows, columns) else None


def _shifted(node: Node) -> Sequence[Value] | None:
    loop, b = Loop.of(node), Builder().at(node, node.phase)
    count = loop.count
    assert isinstance(count, int), "sizes are ints"
    after = {source.value: value for source, value in loop.graph.updates}
    first = {source.value: value for source, value in zip(loop.carry_inputs, loop.carries)}
    inputs = {source.value for source in loop.graph.inputs}
    yields = list(loop.graph.outputs.values())
    old = {v for v in yields if v in after and after[v] not in inputs} if count > 1 else set()
    if not old:
        return None
    inside = list(dict.fromkeys(after[v] if v in old else v for v in yields))
    made = _with(loop, b, loop.carry_inputs, inside)
    stacks = dict(zip(inside, made.outputs[len(loop.carries) :]))
    before = {v: _before(b, first[v], stacks[after[v]], count, loop.reverse) for v in sorted(old, key=yields.index)}
    return [*made.outputs[: len(loop.carries)], *(before[v] if v in before else stacks[v] for v in yields)]


def _before(b: Builder, first: Value, after: Value, count: int, reverse: bool) -> Value:
    """The values of a carry before each step, from those after it."""
    shape = after.type.ints[1:]
    start = b(OPS["reshape"], first, shape=(1, *shape))
    none, low = (0,) * len(shape), int(reverse)
    rest = b(OPS["slice"], after, starts=(low, *none), stops=(count - 1 + low, *shape), steps=(1,) * (1 + len(shape)))
    return b(OPS["concat"], *((rest, start) if reverse else (start, rest)), axis=0)


def _with(loop: Loop, b: Builder, carries: Sequence[Input], yields: Sequence[Value]) -> Node:
    """The loop with these carries and results."""
    first = dict(zip(loop.carry_inputs, loop.carries))
    after = dict(loop.graph.updates)
    return loop_node(
        b,
        dict(zip(loop.const_inputs, loop.consts)),
        {source: (first[source], after[source]) for source in carries},
        dict(zip(loop.sequence_inputs, loop.sequences)),
        yields,
        order([*yields, *(after[source] for source in carries)]),
        loop.count,
        loop.reverse,
    )
