"""Computes after a loop what no later step needs, if each element of the carries then needs only itself.

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
Values that depend on no carry leave the loop, too, if it yields them. Sums are of the same terms; a kernel for all
steps may add them in another order. Linear in nodes and reads.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from dslc.compiler.ir.graph import Graph, Input, Node, Value, order
from dslc.compiler.ir.op import OPS, Builder, Pointwise
from dslc.compiler.ir.scan import Loop, loop_node, scan
from dslc.compiler.ir.sizes import Size
from dslc.compiler.ir.types import DType, alike
from dslc.compiler.ops.attrs import int_tuple

_FLOATS: Final = (DType.F32, DType.BF16, DType.F16)
#: That a loop may yield more: the states of all steps, which a step used and forgot.
_MOST_BYTES: Final = 2 << 30


def loop_tails(graph: Graph) -> Graph:
    """The graph with such loops; the same object if nothing changes. Idempotent."""
    return graph.rewrite(lambda node: _without_tail(node) if node.op is scan else None)


def is_of_elements(loop: Loop) -> bool:
    """Whether each element of the carries depends on the same element before, and on constants and sequences."""
    shapes = {v.type.shape for v in loop.carries}
    nodes = order([value for _, value in loop.graph.updates])
    kept = all(v.type.dtype in _FLOATS for v in loop.carries)
    return len(shapes) == 1 and kept and bool(nodes) and all(map(_is_of_elements, nodes))


def _is_of_elements(node: Node) -> bool:
    if node.op.name == "reshape":
        return alike(node.input_types[0], node.types[0])
    return node.op.name in ("full", "expand") or (isinstance(node.op, Pointwise) and not node.op.random)


def _without_tail(node: Node) -> Sequence[Value] | None:
    loop = Loop.of(node)
    if not loop.carries or not isinstance(loop.count, int) or not is_of_elements(loop):
        return None
    tail = _Tail(loop)
    if not tail.nodes or not all(map(_may_leave, tail.nodes)) or tail.bytes_more > _MOST_BYTES:
        return None
    return tail.leaving(Builder().at(node, node.phase))


def _may_leave(node: Node) -> bool:
    """Whether all steps of a node can be computed at once."""
    if len(node.outputs) != 1 or node.op.random:
        return False
    return isinstance(node.op, Pointwise) or node.op.name in ("full", "reshape", "expand", "sum", "sum_to", "transpose")


class _Tail:
    """What a loop computes besides its carries. ``nodes``: in order. ``stacks``: the values that the loop yields
    instead, carries and what makes them from the old ones."""

    def __init__(self, loop: Loop) -> None:
        self.loop = loop
        self.yields = list(loop.graph.outputs.values())
        shape = loop.carries[0].type.shape
        core = set(order([value for _, value in loop.graph.updates]))
        carried = {source.value for source in loop.carry_inputs}
        for each in loop.graph.nodes:
            if any(v in carried for v in each.inputs):
                carried.update(each.outputs)

        def stays(value: Value) -> bool:
            inside = isinstance(value.producer, Input) or value.producer in core
            return inside and value in carried and value.type.shape == shape

        read = dict.fromkeys(self.yields)
        nodes: list[Node] = []
        for each in reversed(loop.graph.nodes):
            if any(v in read and not stays(v) for v in each.outputs):
                nodes.append(each)
                read.update(dict.fromkeys(each.inputs))
        self.nodes = nodes[::-1]
        self.stacks = [v for v in read if stays(v)]

    @property
    def bytes_more(self) -> int:
        """What the loop yields more than before."""
        assert isinstance(self.loop.count, int)
        return self.loop.count * sum(v.type.bytes for v in self.stacks if v not in self.yields)

    def leaving(self, b: Builder) -> list[Value]:
        """The results of the loop without these nodes, and of the nodes after it."""
        loop, after = self.loop, dict(self.loop.graph.updates)
        made = loop_node(
            b,
            dict(zip(loop.const_inputs, loop.consts)),
            {source: (first, after[source]) for source, first in zip(loop.carry_inputs, loop.carries)},
            dict(zip(loop.sequence_inputs, loop.sequences)),
            self.stacks,
            order([*self.stacks, *after.values()]),
            loop.count,
            loop.reverse,
        )
        carries = len(loop.carries)
        all_steps = dict(zip((source.value for source in loop.sequence_inputs), loop.sequences))
        all_steps |= dict(zip(self.stacks, made.outputs[carries:]))
        same = dict(zip((source.value for source in loop.const_inputs), loop.consts))
        for each in self.nodes:
            at = Builder().at(each, each.phase)
            if all(v in same for v in each.inputs):
                same[each.out] = at(each.op, *(same[v] for v in each.inputs), **each.attrs)
            else:
                inputs = [(all_steps.get(v) or same[v], v in all_steps) for v in each.inputs]
                all_steps[each.out] = _of_all_steps(at, each, inputs)
        count = made.outputs[carries:][0].type.shape[0] if self.stacks else loop.count
        results = [all_steps[v] if v in all_steps else _repeated(b, same[v], count) for v in self.yields]
        return [*made.outputs[:carries], *results]


def _of_all_steps(b: Builder, node: Node, inputs: Sequence[tuple[Value, bool]]) -> Value:
    """A node with an axis of steps before its own. Of each input: the value, and whether it has this axis."""
    own, attrs = node.types[0].shape, dict(node.attrs)
    [count] = {v.type.shape[0] for v, stacked in inputs if stacked}
    values = [_aligned(b, v, len(own)) if stacked else v for v, stacked in inputs]
    if isinstance(node.op, Pointwise):
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


def _repeated(b: Builder, x: Value, count: Size) -> Value:
    """A value that is the same in all steps, as a stack."""
    return b(OPS["expand"], b(OPS["reshape"], x, shape=(1, *x.type.shape)), shape=(count, *x.type.shape))
