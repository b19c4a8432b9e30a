"""Merges optimizer updates of small parameters into one node: horizontal fusion, a multi-tensor optimizer.

Before::

    %20, %21, %22 = sgd_momentum_update %1, %15, %2, %3, %4 {...} : f32[6], f32[6], b1[]  # c1.bias update
    %23, %24, %25 = sgd_momentum_update %5, %16, %6, %3, %4 {...} : f32[16], f32[16], b1[]  # c2.bias update
    %26 = reshape %22 {shape=(1,)} : b1[1]  # nonfinite update
    %27 = reshape %25 {shape=(1,)} : b1[1]  # nonfinite update
    %28 = concat %26, %27 {axis=0} : b1[2]  # nonfinite update

After::

    %17, %18, %19, %20, %21 = multi_update %1, %2, %5, %6, %15, %16, %3, %4
        {each=..., step="sgd_momentum_update"} : ..., b1[2]  # "c1.bias and 1 more" update

Updates are merged if they have the same op, attributes, learning rate and step, and none needs another one's result. A
large parameter keeps its own node: it is worth a launch, and its gradient's memory is freed at once. On a GPU, large
parameters are merged, too, if all parameters together have few bytes, or if one node makes their gradients. There, a
gradient that was cast from 16 bits is read before the cast. An update that alone reads the mean of a sum over shards
reads the sum instead, and divides. Results keep their bits. Linear in nodes.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from types import MappingProxyType
from typing import Final

from dslc.compiler.ir.graph import Graph, Input, Node, Value
from dslc.compiler.ir.op import OPS, Builder
from dslc.compiler.ir.types import DType
from dslc.compiler.ops.attrs import int_tuple, number_attr
from dslc.compiler.ops.optimizer.multi_update import MAX_PARAMS, member, merged_updates, parted
from dslc.compiler.ops.optimizer.optim import Update
from dslc.compiler.passes.queries import has_one_reader, producer_before
from dslc.compiler.passes.rebuild import chunks, reading

_HALF: Final = (DType.BF16, DType.F16)
_MOVES: Final = ("reshape", "transpose")  # ops whose results have the elements of their input
MAX_BYTES: Final = 1 << 20  # of a parameter that is merged
#: Most bytes of all parameters for merging them if launches are costly, however large one of them is.
MAX_BYTES_OF_ALL: Final = 1 << 24


def group_updates(graph: Graph, on_gpu: bool = False, slices: Mapping[str, int] = MappingProxyType({})) -> Graph:
    """The graph with such nodes. Deterministic and idempotent. ``slices``: those of tensors
    of the state by name; only updates of one slice are merged."""
    while groups := _groups(graph, on_gpu, slices):
        graph = _merged(graph, groups)
    return graph


def read_sums(graph: Graph) -> Graph:
    """The graph with updates that divide the sum of which they alone read the mean."""
    is_read_once = has_one_reader(graph)
    instead: dict[Value, Value] = {}
    for node in graph.nodes:
        found = _sum_of(node.inputs[1]) if isinstance(node.op, Update) and "parts" not in node.attrs else None
        if found is not None and is_read_once(node.inputs[1]):
            total, parts = found
            inputs = (node.inputs[0], total, *node.inputs[2:])
            divides = node.replaced(inputs=inputs, attrs={**node.attrs, "parts": parts})
            instead.update(zip(node.outputs, divides.outputs))
    return reading(graph, instead)


def _sum_of(mean: Value) -> tuple[Value, float] | None:
    """The sum and the number that a mean divides it by; None for another value."""
    made = mean.producer
    if not isinstance(made, Node) or made.op.name != "div" or made.inputs[0].type != mean.type:
        return None
    count = made.inputs[1].producer
    if not isinstance(count, Node) or count.op.name != "full" or made.inputs[1].type.rank:
        return None
    return made.inputs[0], number_attr(count.attrs, "value")


def _merged(graph: Graph, groups: Sequence[Sequence[tuple[Node, Value]]]) -> Graph:
    new: dict[Value, Value] = {}
    for members in groups:
        nodes, more = [n for n, _ in members], len(members) - 1
        name = f"{nodes[0].name} and {more} more" if more else nodes[0].name
        whole = merged_updates(nodes, name, [grad for _, grad in members])
        states = iter(whole.outputs)
        for number, node in enumerate(nodes):
            new.update(zip(node.outputs[:-1], states))
            b = Builder().at(node, node.phase)
            flag = b(OPS["slice"], whole.outputs[-1], starts=(number,), stops=(number + 1,), steps=(1,))
            new[node.outputs[-1]] = b(OPS["reshape"], flag, shape=())
    return _renamed(graph, new)


def _groups(graph: Graph, on_gpu: bool, slices: Mapping[str, int]) -> list[Sequence[tuple[Node, Value]]]:
    """Groups of nodes to merge with the gradients they read: two or more each, or one with a 16-bit gradient. Updates
    that need other updates are in groups only after all of these are merged."""
    levels: dict[int, dict[Hashable, list[tuple[Node, Value]]]] = {}
    after: dict[Value, int] = {}  # the number of updates one after another on which a value depends, if any
    most = MAX_BYTES_OF_ALL if on_gpu and _bytes_of_all(graph) <= MAX_BYTES_OF_ALL else MAX_BYTES
    for node in graph.nodes:
        before = max((after.get(v, 0) for v in node.inputs), default=0)
        changes = isinstance(node.op, Update) or node.op.name == "multi_update"
        if before or changes:
            after |= dict.fromkeys(node.outputs, before + changes)
        if isinstance(node.op, Update):
            grad = _before_cast(node.inputs[1]) if on_gpu else None
            alone = node if node.types[0].bytes > most and not _made_together(grad or node.inputs[1]) else None
            if not node.op.layerwise and (grad or not alone):
                grad = grad or node.inputs[1]
                kind = (node.types[0].dtype, grad.type.dtype)
                source = node.inputs[0].producer
                slice = slices.get(source.name) if isinstance(source, Input) else None
                key = (node.op.name, tuple(sorted(node.attrs.items())), kind, node.inputs[-2:], alone, slice)
                levels.setdefault(before, {}).setdefault(key, []).append((node, grad))
    for _, groups in sorted(levels.items()):
        cut = chunks(groups.values(), MAX_PARAMS)
        found = [members for members in cut if len(members) > 1 or members[0][1].type.dtype in _HALF]
        if found:
            return found
    return []


def _bytes_of_all(graph: Graph) -> int:
    """Bytes of all updated parameters, including those of merged nodes."""
    found = 0
    for node in graph.nodes:
        if isinstance(node.op, Update):
            found += node.types[0].bytes
        elif node.op.name == "multi_update":
            states, _, _ = parted(node.input_types, member(node.attrs)[0])
            found += sum(own[0].bytes for own in states)
    return found


def _made_together(grad: Value) -> bool:
    """Whether a node makes the gradients of several tables, so that they are in memory together in any case."""
    made = producer_before(grad, _MOVES)
    return isinstance(made, Node) and made.op.name == "together"


def _before_cast(grad: Value) -> Value | None:
    """A gradient before its cast from 16 bits, in the gradient's shape; None if it was not cast."""
    made = grad.producer
    if not isinstance(made, Node):
        return None
    if made.op.name == "cast":
        return made.inputs[0] if made.inputs[0].type.dtype in _HALF else None
    if made.op.name not in _MOVES:
        return None
    before = _before_cast(made.inputs[0])
    return None if before is None else Builder().at(made, made.phase)(made.op, before, **made.attrs)


def _renamed(graph: Graph, new: dict[Value, Value]) -> Graph:
    """The graph with the old values replaced by the new ones."""
    for node in graph.nodes:
        if (fresh := node.reading(new)) is not node:
            new.update(zip(node.outputs, (_joined_slices(fresh),) if node.op.name == "concat" else fresh.outputs))
    return graph.replace_values(new)


def _joined_slices(concat: Node) -> Value:
    """The result of a concat; adjacent slices of one vector become one slice."""
    if concat.types[0].rank != 1:
        return concat.out
    pieces: list[tuple[Value, int, int]] = []
    for value in concat.inputs:
        source, start, stop = _slice_of(value)
        if pieces and pieces[-1][0] is source and pieces[-1][2] == start:
            start = pieces.pop()[1]
        pieces.append((source, start, stop))
    b = Builder().at(concat, concat.phase)
    whole = [_part(b, *piece) for piece in pieces]
    return whole[0] if len(whole) == 1 else b(OPS["concat"], *whole, axis=0)


def _slice_of(value: Value) -> tuple[Value, int, int]:
    """The vector that the value is a slice of (or the value itself), start and stop."""
    source = value
    while isinstance(source.producer, Node) and source.producer.op.name == "reshape":
        source = source.producer.inputs[0]
    node = source.producer
    if isinstance(node, Node) and node.op.name == "slice" and source.type.rank == 1 and node.attrs["steps"] == (1,):
        return node.inputs[0], int_tuple(node.attrs, "starts")[0], int_tuple(node.attrs, "stops")[0]
    return value, 0, value.type.ints[0]


def _part(b: Builder, source: Value, start: int, stop: int) -> Value:
    if (start, stop) == (0, source.type.ints[0]):
        return source
    return b(OPS["slice"], source, starts=(start,), stops=(stop,), steps=(1,))
