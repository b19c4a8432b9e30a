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

A launch in each step takes longer than all of this. So does a product of each step for the gradient of a weight, which
the gradient of a loop has if there are many rows: one product of all steps follows the loop. A product that sums over
all steps takes them in the order in which they lie in memory, not the last one first, which takes a copy of both
factors. So sums of steps are added in another order than in the loop, and of 16-bit values if the loop yields these;
old values keep their bits. What the loop yields more takes memory for all steps. Linear in nodes and reads.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import copysign
from typing import Final

from dslc.compiler.codegen.device_model import H200
from dslc.compiler.ir.graph import Graph, Input, Node, Value, order
from dslc.compiler.ir.op import OPS, Builder
from dslc.compiler.ir.scan import Loop, loop_node, scan
from dslc.compiler.passes.lower.loops.loop_tails import is_of_elements

#: Bytes of a step's rows that a loop may yield more for a sum after it: to write and to read them takes no longer than
#: a launch.
_MOST_BYTES: Final = H200.bandwidth * H200.launch / 2


def after_loops(graph: Graph) -> Graph:
    """The graph with less in its loops; the same object if nothing changes. Idempotent."""
    rules = {"scan": _summed, "matmul": _in_place}
    graph = graph.rewrite(lambda node: rules[node.op.name](node) if node.op.name in rules else None)
    return graph.rewrite(lambda node: _shifted(node) if node.op is scan else None)


def _summed(node: Node) -> Sequence[Value] | None:
    loop, b = Loop.of(node), Builder().at(node, node.phase)
    yields = list(loop.graph.outputs.values())
    read = dict(zip((source.value for source in loop.sequence_inputs), loop.sequences))
    terms: dict[Input, list[Node]] = {}
    for source, value in loop.graph.updates:
        found = _terms(loop, source, value)
        new = [v for v in dict.fromkeys(_rows(loop, found)) if v not in yields and v not in read]
        if found and sum(v.type.bytes for v in new) <= _MOST_BYTES:
            terms[source] = found
            yields += new
    if not terms:
        return None
    kept = [source for source in loop.carry_inputs if source not in terms]
    made = _with(loop, b, kept, yields)
    results = dict(zip(kept, made.outputs))
    stacks = read | dict(zip(yields, made.outputs[len(kept) :]))
    outputs: list[Value] = []
    for source, first in zip(loop.carry_inputs, loop.carries):
        if source not in terms:
            outputs.append(results[source])
            continue
        totals = [_total(term, [stacks[v] for v in _rows(loop, [term])], b) for term in terms[source]]
        totals = [x if x.type == first.type else b(OPS["reshape"], x, shape=first.type.shape) for x in totals]
        result, *more = totals if _is_nothing(first) else [first, *totals]
        for total in more:
            result = b(OPS["add"], result, total)
        outputs.append(result)
    return [*outputs, *made.outputs[len(kept) : len(kept) + len(loop.graph.outputs)]]


def _terms(loop: Loop, source: Input, value: Value) -> list[Node]:
    """The sums of a step's rows that a step adds to this carry one after another, if it does nothing else with it."""
    found: list[Node] = []
    read = [v for node in loop.graph.nodes for v in node.inputs] + [*loop.graph.outputs.values()]
    read += [v for other, v in loop.graph.updates if other is not source]
    if value in read:
        return []
    while value is not source.value:
        made = value.producer
        if not isinstance(made, Node) or made.op.name != "add":
            return []
        sums = [v for v in made.inputs if _is_sum(loop, v)]
        rest = [v for v in made.inputs if v not in sums]
        if len(sums) != 1 or len(rest) != 1 or read.count(rest[0]) != 1:
            return []
        found += map(_sum_in, sums)
        value = rest[0]
    return found[::-1]


def _is_sum(loop: Loop, value: Value) -> bool:
    """Whether it is the sum of rows that the steps make: ``sum_to``, or the product of two matrices with such rows."""
    constants = {source.value for source in loop.const_inputs}
    if not isinstance(value.producer, Node):
        return False
    made = _sum_in(value)
    if any(v in constants for v in made.inputs):
        return False
    if made.op.name == "matmul":
        turned = made.attrs["transpose_a"] and not made.attrs["transpose_b"]
        return bool(turned) and all(v.type.rank == 2 for v in made.inputs)
    shape, rows = made.types[0].shape, made.inputs[0].type.shape if made.inputs else ()
    last = rows[len(rows) - len(shape) :]
    return made.op.name == "sum_to" and bool(shape) and all(size in (row, 1) for size, row in zip(shape, last))


def _sum_in(value: Value) -> Node:
    """The node that makes a value, or what this reshapes."""
    made = value.producer
    assert isinstance(made, Node)
    before = made.inputs[0].producer if made.op.name == "reshape" else None
    return before if isinstance(before, Node) else made


def _rows(loop: Loop, terms: Sequence[Node]) -> list[Value]:
    """What the terms sum, as the loop yields or could yield it, or as it reads it from a sequence."""
    given = {source.value for source in loop.sequence_inputs}
    return [v if v in given or term.op.name == "matmul" else _rounded(loop, v) for term in terms for v in term.inputs]


def _total(term: Node, rows: Sequence[Value], b: Builder) -> Value:
    """A term of all steps, from its rows of all steps."""
    if term.op.name == "matmul":
        flat = (b(OPS["reshape"], x, shape=(x.type.ints[0] * x.type.ints[1], x.type.ints[2])) for x in rows)
        return b(term.op, *flat, **term.attrs)
    [whole] = rows
    if whole.type.dtype is not term.types[0].dtype:
        whole = b(OPS["cast"], whole, dtype=term.types[0].dtype)
    return b(OPS["sum_to"], whole, shape=term.types[0].shape)


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
    if is_of_elements(loop):
        return None  # one kernel has the old values in registers
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
