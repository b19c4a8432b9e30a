"""Computes before a loop what needs no carry, and after it what no later step needs, if elements of the carries then
need only themselves.

Before, in a selective scan, whose step sums over the numbers of a state::

    %4, %5 = scan %h, %a, %b, %c {consts=0, count=1024, ...} : f32[4, 768, 16], f32[1024, 4, 768]
      %4 = mul %1, %0 : f32[4, 768, 16]
      %5 = add %4, %2 : f32[4, 768, 16]
      %6 = mul %5, %3 : f32[4, 768, 16]
      %7 = sum %6 {over=(2,), ...} : f32[4, 768]
      output y.0 = %7
      update carry.0 = %5

After::

    %3, %4 = scan %h, %a, %b {consts=0, count=1024, ...} : f32[4, 768, 16], f32[1024, 4, 768, 16]
      %3 = mul %1, %0 : f32[4, 768, 16]
      %4 = add %3, %2 : f32[4, 768, 16]
      output y.0 = %4
      update carry.0 = %4
    %5 = mul %4, %c : f32[1024, 4, 768, 16]
    %6 = sum %5 {over=(3,), ...} : f32[1024, 4, 768]

A GPU computes such a loop in one kernel (``codegen/cuda/recurrent/each_element.py``), in which a thread has an element
of the carries in a register for all steps. Launches for each step take far longer than what this adds to memory.
What depends on no carry and is more than pointwise ops leaves the loop, too; a product over one term, as of keys and
values, is pointwise. Sums are of the same terms; a kernel for all steps may add them in another order. Linear in nodes
and reads.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Final

from dslc.compiler.ir.graph import Graph, Input, Node, Value, order
from dslc.compiler.ir.op import OPS, Builder, Pointwise
from dslc.compiler.ir.scan import Loop, loop_node, new_input, scan
from dslc.compiler.ir.types import DType, alike
from dslc.compiler.ops.attrs import int_tuple
from dslc.compiler.passes.rebuild import nodes_reading

_FLOATS: Final = (DType.F32, DType.BF16, DType.F16)
#: Ops besides pointwise ones of which all steps can be computed at once.
_LEAVING: Final = ("full", "reshape", "expand", "sum", "sum_to", "transpose", "matmul", "slice", "pad")
#: That a loop may read and yield more: the states of all steps, which a step used and forgot.
_MOST_BYTES: Final = 2 << 30


def loop_tails(graph: Graph) -> Graph:
    """The graph with such loops; the same object if nothing changes. Idempotent."""
    return graph.rewrite(lambda node: _moved(node) if node.op is scan else None)


def is_of_elements(loop: Loop) -> bool:
    """Whether each element of the carries depends on the same element before, and on elements of constants, sequences,
    and what can be computed from these for all steps."""
    if len({v.type.shape for v in loop.carries}) != 1 or any(v.type.dtype not in _FLOATS for v in loop.carries):
        return False
    carried, core = _carried(loop), order([value for _, value in loop.graph.updates])
    return bool(core) and all(
        _is_of_elements(each) or (each.outputs[0] not in carried and _may_leave(each)) for each in core
    )


def _carried(loop: Loop) -> set[Value]:
    """The values of the body that depend on a carry."""
    found = {source.value for source in loop.carry_inputs}
    for each in loop.graph.nodes:
        if any(v in found for v in each.inputs):
            found.update(each.outputs)
    return found


def _is_of_elements(node: Node) -> bool:
    if node.op.name == "reshape":
        return alike(node.input_types[0], node.types[0])
    return node.op.name in ("full", "expand") or (isinstance(node.op, Pointwise) and not node.op.random)


def _may_leave(node: Node) -> bool:
    """Whether all steps of a node can be computed at once."""
    if len(node.outputs) != 1 or node.op.random:
        return False
    return isinstance(node.op, Pointwise) or node.op.name in _LEAVING


def _moved(node: Node) -> Sequence[Value] | None:
    loop = Loop.of(node)
    assert isinstance(loop.count, int), "sizes are ints"
    graph = loop.graph.rewrite(_outer_product)
    loop, changes = dataclasses.replace(loop, graph=graph), graph is not loop.graph
    if loop.carries and not is_of_elements(loop):
        return None
    parts = _Parts(loop)
    if not (parts.heads or parts.tails or changes) or not all(map(_may_leave, (*parts.heads, *parts.tails))):
        return None
    return None if parts.bytes_more > _MOST_BYTES else _Apart(parts, Builder().at(node, node.phase)).results()


def _outer_product(node: Node) -> tuple[Value, ...] | None:
    """A product over one term as one of elements; the sign of a zero may be another."""
    if node.op.name != "matmul":
        return None
    b, turned = Builder().at(node, node.phase), (node.attrs["transpose_a"], node.attrs["transpose_b"])
    factors, dtype = list[Value](), node.types[0].dtype
    for x, is_turned in zip(node.inputs, turned):
        *batch, rows, columns = x.type.ints
        x = b(OPS["reshape"], x, shape=(*batch, columns, rows)) if is_turned and 1 in (rows, columns) else x
        factors.append(x if x.type.dtype is dtype else b(OPS["cast"], x, dtype=dtype))
    left, right = factors
    return (b(OPS["mul"], left, right),) if left.type.ints[-1] == right.type.ints[-2] == 1 else None


class _Parts:
    """What a loop computes. ``heads``: the nodes before it, in order, of which it reads ``given``; ``tails``: those
    after it; ``stacks``: what it yields for them, carries and what makes them from the old ones."""

    def __init__(self, loop: Loop) -> None:
        self.loop = loop
        self.yields = list(loop.graph.outputs.values())
        shapes, carried = {v.type.shape for v in loop.carries}, _carried(loop)
        updates = [value for _, value in loop.graph.updates]
        core = order(updates)
        hard = {each for each in core if not _is_of_elements(each)}
        read = {v for each in core if each not in hard for v in each.inputs} | set(updates)
        self.given = [each.out for each in core if each in hard and each.out in read]
        self.heads = order(self.given)

        def stays(value: Value) -> bool:
            inside = isinstance(value.producer, Input) or value.producer in core
            return inside and value in carried and value.type.shape in shapes

        wanted = dict.fromkeys(self.yields)
        tails: list[Node] = []
        for each in reversed(loop.graph.nodes):
            if each not in self.heads and any(v in wanted and not stays(v) for v in each.outputs):
                tails.append(each)
                wanted.update(dict.fromkeys(each.inputs))
        self.tails = tails[::-1]
        self.stacks = [v for v in wanted if stays(v)]

    @property
    def bytes_more(self) -> int:
        """What the loop reads and yields more than before."""
        assert isinstance(self.loop.count, int)
        more = [*self.given, *(v for v in self.stacks if v not in self.yields)]
        more += [] if self.loop.carries else [each.out for each in self.tails if each.out not in self.yields]
        return self.loop.count * sum(v.type.bytes for v in more)


class _Apart:
    """Computes the parts. ``known``: a value of the body -> what it is outside, and whether that has an axis of steps
    before its own."""

    def __init__(self, parts: _Parts, b: Builder) -> None:
        self.parts, self.b, loop = parts, b, parts.loop
        self.known: dict[Value, tuple[Value, bool]] = {}
        for sources, values, stacked in (
            (loop.const_inputs, loop.consts, False), (loop.sequence_inputs, loop.sequences, True)
        ):  # fmt: skip
            self.known.update((source.value, (value, stacked)) for source, value in zip(sources, values))

    def results(self) -> list[Value]:
        """Those of the loop that was; one that carries nothing is none any more."""
        parts, loop = self.parts, self.parts.loop
        for each in parts.heads:
            self._compute(each)
        if not loop.carries:
            for each in parts.tails:
                self._compute(each)
            return [*map(self._stacked, parts.yields)]
        made = self._loop()
        self.known.update((v, (stack, True)) for v, stack in zip(parts.stacks, made.outputs[len(loop.carries) :]))
        for each in parts.tails:
            self._compute(each)
        return [*made.outputs[: len(loop.carries)], *map(self._stacked, parts.yields)]

    def _loop(self) -> Node:
        """The loop that reads what the heads give and yields what the tails read."""
        parts, loop = self.parts, self.parts.loop
        consts = dict(zip(loop.const_inputs, loop.consts))
        sequences = dict(zip(loop.sequence_inputs, loop.sequences))
        new: dict[Value, Value] = {}
        for value in parts.given:
            outside, stacked = self.known[value]
            to, kind = (sequences, "x") if stacked else (consts, "const")
            source = new_input(kind, len(to), value.type)
            to[source] = outside
            new[value] = source.value
        nodes_reading([each for each in loop.graph.nodes if each not in parts.heads], new)
        after = {source: new.get(value, value) for source, value in loop.graph.updates}
        stacks = [new.get(v, v) for v in parts.stacks]
        carries = {source: (first, after[source]) for source, first in zip(loop.carry_inputs, loop.carries)}
        nodes = order([*stacks, *after.values()])
        return loop_node(self.b, consts, carries, sequences, stacks, nodes, loop.count, loop.reverse)

    def _compute(self, node: Node) -> None:
        b, inputs = Builder().at(node, node.phase), [self.known[v] for v in node.inputs]
        if any(stacked for _, stacked in inputs):
            self.known[node.out] = (_of_all_steps(b, node, inputs), True)
        else:
            self.known[node.out] = (b(node.op, *(v for v, _ in inputs), **node.attrs), False)

    def _stacked(self, value: Value) -> Value:
        """A result of each step, as a stack."""
        outside, stacked = self.known[value]
        if stacked:
            return outside
        whole = self.b(OPS["reshape"], outside, shape=(1, *outside.type.shape))
        return self.b(OPS["expand"], whole, shape=(self.parts.loop.count, *outside.type.shape))


def _of_all_steps(b: Builder, node: Node, inputs: Sequence[tuple[Value, bool]]) -> Value:
    """A node with an axis of steps before its own. Of each input: the value, and whether it has this axis."""
    own, attrs = node.types[0].shape, dict(node.attrs)
    [count] = {v.type.shape[0] for v, stacked in inputs if stacked}
    values = [_aligned(b, v, len(own)) if stacked else v for v, stacked in inputs]
    if isinstance(node.op, Pointwise) or node.op.name == "matmul":
        return b(node.op, *values, **attrs)
    [(x, _)] = inputs
    match node.op.name:
        case "reshape":
            return b(node.op, x, shape=(count, *own))
        case "expand":
            return b(node.op, values[0], shape=(count, *own))
        case "sum":
            over = tuple(axis + 1 for axis in int_tuple(attrs, "over"))
            return b(node.op, x, **{**attrs, "over": over})
        case "slice":
            whole = {"starts": 0, "stops": count, "steps": 1}
            return b(node.op, x, **{name: (first, *int_tuple(attrs, name)) for name, first in whole.items()})
        case "pad":
            sides = {name: (0, *int_tuple(attrs, name)) for name in ("low", "high", "interior")}
            return b(node.op, x, **{**attrs, **sides})
        case "transpose":
            return b(node.op, x, perm=(0, *(axis + 1 for axis in int_tuple(attrs, "perm"))))
    ones = (1,) * (x.type.rank - 1 - len(own))  # sum_to
    summed = b(node.op, x, shape=(count, *ones, *own))
    return b(OPS["reshape"], summed, shape=(count, *own)) if ones else summed


def _aligned(b: Builder, x: Value, rank: int) -> Value:
    """A stack of tensors of at most ``rank`` axes as one of so many."""
    count, *own = x.type.shape
    missing = (1,) * (rank - len(own))
    return b(OPS["reshape"], x, shape=(count, *missing, *own)) if missing else x
