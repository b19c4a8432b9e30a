"""Drops pairs of transposes around ops that can compute with their axes in another order.

Before::

    %1 = transpose %0 {perm=(0, 3, 1, 2)} : f32[8, 64, 14, 14]
    %2, %3 = maxpool %1 {...} : f32[8, 64, 7, 7], u8[8, 64, 7, 7]
    %4 = relu %2 : f32[8, 64, 7, 7]
    %5 = transpose %4 {perm=(0, 2, 3, 1)} : f32[8, 7, 7, 64]

After::

    %1, %2 = maxpool_last %0 {...} : f32[8, 7, 7, 64], u8[8, 7, 7, 64]
    %3 = relu %1 : f32[8, 7, 7, 64]

A value is *turned* by a permutation p if it is ``transpose(u, p)`` of a known value u. A pointwise op, or one that only
moves elements along axes, takes any p; ops on images take the one that moves channels last. Such an op computes u-like
values if its inputs are turned by p and some reader of a result undoes p, so no program gets more transposes. A
reduction, a sum of pointwise results or one to a shape, that leaves the other axes in order reads u, as does a product
that transposes u again. Small inputs that broadcast are turned, too. A convolution turns its weight, or the gradient of
it, if that is smaller than the image. For targets whose kernels read any layout. Results keep their bits up to the
order of sums in convolutions, reductions, interpolation and pools. Linear in nodes and reads.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from math import prod
from typing import Final

from dslc.compiler.ir.graph import Graph, Node, Value, order
from dslc.compiler.ir.op import Builder, Op, Pointwise
from dslc.compiler.ops.attrs import int_attr, int_tuple
from dslc.compiler.ops.compound.fused_sums import FusedSums, full_shape
from dslc.compiler.ops.spatial.channels_last import LAST, RESAMPLED_LAST, to_first
from dslc.compiler.ops.spatial.conv import Conv, ConvDgrad, Convolution, ConvWgrad
from dslc.compiler.passes.lower.layout.axis_order import (
    Perm,
    at_producer,
    attrs_along,
    inverse,
    reshaped,
    through,
    transposed,
)
from dslc.compiler.passes.lower.layout.turned_norms import is_norm, turned_norm
from dslc.compiler.passes.lower.layout.turned_readers import read_alike, untransposed
from dslc.compiler.passes.lower.simplify.simplify import simplify_graph

_BROADCAST: Final = 8  # an input of less than a part like this of the result's elements is turned by a transpose
_FEWEST: Final = 16  # channels of a group, and results, that fill a vector


def transposes(graph: Graph) -> Graph:
    """The graph without such transposes; the same object if there are none."""
    return without(graph, lambda perm: True, lambda node: True)


def without(
    graph: Graph, takes: Callable[[Perm], bool], turns: Callable[[Node], bool], ends: Mapping[Node, Perm] | None = None
) -> Graph:
    """The graph without such transposes of the permutations that ``takes`` allows, around the nodes that ``turns``
    does. ``ends``: nodes whose kernels read and write tensors of a permutation's rank as they are or turned by it: next
    to them a transpose costs nothing. Around these, norms along an axis are turned, too."""
    if not any(node.op.name == "transpose" for node in graph.nodes):
        return graph
    turner = _Turner(_demands(graph, turns, ends or {}), takes, turns, ends or {})
    for node in graph.nodes:
        turner.node(node)
    if not turner.has_turned:
        return graph
    outputs = {name: turner.plain(value) for name, value in graph.outputs.items()}
    updates = tuple((source, turner.plain(value)) for source, value in graph.updates)
    roots = [*outputs.values(), *(v for _, v in updates)]
    return simplify_graph(Graph(graph.inputs, order(roots), outputs, updates))


def _image_op(node: Node) -> Op | None:
    """The op on channels-last images that computes the node turned."""
    if node.inputs[0].type.rank < 3:
        return None
    if isinstance(node.op, Convolution):
        return LAST[node.op] if _turns(node) else None
    return LAST.get(node.op) or RESAMPLED_LAST.get(node.op)


def _turns(node: Node) -> bool:
    """Whether the node is a convolution that is as fast with channels last: its groups are of one channel and one
    result, or what it writes of a group, and with several groups what it reads, fills a vector; its weight is smaller
    than the images."""
    if not isinstance(node.op, Convolution):
        return False
    image, weight, result = (type.ints for type in node.op.tensors(node))
    groups = int_attr(node.attrs, "groups")
    results, channels = weight[0] // groups, weight[1]
    written = {"conv": results, "conv_dgrad": channels}.get(node.op.name, max(results, channels))
    fills = results == channels == 1 or (written if groups == 1 else min(results, channels)) >= _FEWEST
    return fills and prod(weight) <= prod(image) + prod(result)


def _demands(graph: Graph, turns: Callable[[Node], bool], ends: Mapping[Node, Perm]) -> dict[Value, set[Perm]]:
    """For each value, the axis permutations under which a reader needs no transpose."""
    found: dict[Value, set[Perm]] = {}
    for root in graph.roots:
        found.setdefault(root, set()).add(tuple(range(root.type.rank)))
    for node in reversed(graph.nodes):
        wanted = set[Perm]().union(*(found.get(v, set()) for v in node.outputs))
        for value in node.inputs:
            plain = tuple(range(value.type.rank))
            asked = found.setdefault(value, set())
            asked.update(_wanted_of_input(node, value, wanted) if turns(node) else {plain})
            if node in ends and len(ends[node]) == value.type.rank:
                asked.add(ends[node])
            elif ends and is_norm(node) and value.type.rank == node.types[0].rank:
                asked.update(perm for perm in wanted if len(perm) == len(plain))
    return found


def _wanted_of_input(node: Node, value: Value, wanted: set[Perm]) -> set[Perm]:
    """The permutations that a node wants of an input, from those that are wanted of its outputs."""
    plain = tuple(range(value.type.rank))
    if node.op.name == "transpose":
        back = inverse(int_tuple(node.attrs, "perm"))
        return {through(perm, back) for perm in wanted}
    if _takes_any(node) and value.type.rank == node.types[0].rank:
        return {perm for perm in wanted if len(perm) == len(plain)}
    if (read := read_alike(node, value)) is not None:
        return {plain, read}
    if value in _weight(node):
        return {plain}
    if len(plain) > 2 and _image_op(node) is not None and (to_first(len(plain)) in wanted or _makes_weight(node)):
        return {plain, to_first(len(plain))} if plain in wanted else {to_first(len(plain))}
    return {plain}


def _weight(node: Node) -> Sequence[Value]:
    """The weight, if the node is a convolution that reads one."""
    return node.inputs[1:] if isinstance(node.op, Conv | ConvDgrad) else ()


def _makes_weight(node: Node) -> bool:
    """Whether a node's result is the gradient of a weight, which it can turn at any time."""
    return isinstance(node.op, ConvWgrad) and _turns(node)


def _takes_any(node: Node) -> bool:
    """Whether a node can compute its result turned by any permutation."""
    if isinstance(node.op, Pointwise):
        return not node.op.random
    return attrs_along(node, tuple(range(node.types[0].rank))) is not None


class _Turner:
    """Rewrites nodes. ``same``: an old value -> its new one. ``turned``: an old value -> p and the new value u.
    ``takes``: which p; ``turns``: which nodes."""

    def __init__(
        self,
        demands: dict[Value, set[Perm]],
        takes: Callable[[Perm], bool],
        turns: Callable[[Node], bool],
        ends: Mapping[Node, Perm],
    ) -> None:
        self.demands, self.takes, self.turns, self.ends = demands, takes, turns, ends
        self.same: dict[Value, Value] = {}
        self.turned: dict[Value, tuple[Perm, Value]] = {}
        self.has_turned = False

    def plain(self, old: Value) -> Value:
        """The new value of an old one."""
        if old not in self.same and old in self.turned:
            perm, value = self.turned[old]
            self.same[old] = transposed(value, perm, at_producer(old))
        return self.same.get(old, old)

    def node(self, node: Node) -> None:
        """Rewrites a node."""
        if node.op.name == "transpose":
            self._transpose(node)
            return
        if node in self.ends:
            self._end(node, self.ends[node])
            return
        if self._read(node):
            return
        for perm in dict.fromkeys(self.turned[v][0] for v in node.inputs if v in self.turned):
            wanted = set[Perm]().union(*(self.demands.get(v, set()) for v in node.outputs))
            if (perm in wanted or _makes_weight(node)) and self._turn(node, perm):
                self.has_turned = True
                return
        fresh = node.with_inputs(tuple(self.plain(v) for v in node.inputs))
        if fresh is not node:
            self.same.update(zip(node.outputs, fresh.outputs))

    def _transpose(self, node: Node) -> None:
        perm, source = int_tuple(node.attrs, "perm"), node.inputs[0]
        if source in self.turned:
            first, value = self.turned[source]
            perm = through(first, perm)
        else:
            value = self.plain(source)
        if perm == tuple(range(len(perm))):
            self.same[node.out] = value
        elif self.takes(perm):
            self.turned[node.out] = (perm, value)
        else:
            self.same[node.out] = transposed(value, perm, Builder().at(node, node.phase))

    def _end(self, node: Node, perm: Perm) -> None:
        """Computes a node whose results are turned at no cost."""
        fresh = node.with_inputs(tuple(map(self.plain, node.inputs)))
        for old, new in zip(node.outputs, fresh.outputs):
            self.same[old] = new
            if old.type.rank == len(perm):
                self.turned[old] = (perm, transposed(new, inverse(perm)))

    def _read(self, node: Node) -> bool:
        """Computes a node that reads turned values as they are; False if it cannot."""
        for perm in dict.fromkeys(self.turned[v][0] for v in node.inputs if v in self.turned):
            found = untransposed(node, perm, self.turned, self.plain, partial(self._input, node, perm=perm))
            if found is not None:
                self.same.update(zip(node.outputs, found))
                self.has_turned = True
                return True
        return False

    def _turn(self, node: Node, perm: Perm) -> bool:
        """Computes a node turned by ``perm``; False if that is impossible."""
        if not self.turns(node):
            return False
        if self.ends and is_norm(node):
            return self._norm(node, perm)
        image = _image_op(node)
        if image is None and not (_takes_any(node) and node.types[0].rank == len(perm)):
            return False
        if image is not None and perm != to_first(len(perm)):
            return False
        inputs = [self._input(node, v, perm) for v in node.inputs]
        known = [v for v in inputs if v is not None]
        if len(known) < len(inputs):
            return False
        attrs = {**node.attrs, **(attrs_along(node, inverse(perm)) or {})}
        fresh = Builder().at(node, node.phase).node(image or node.op, *known, **attrs)
        for old, new in zip(node.outputs, fresh.outputs):
            if old.type.rank == len(perm):
                self.turned[old] = (perm, new)
            else:  # statistics of channels
                self.same[old] = new
        return True

    def _norm(self, node: Node, perm: Perm) -> bool:
        """Computes a norm, or its gradient, along another axis."""
        found = turned_norm(node, perm, self.turned, self.plain) or {}
        self.same.update((old, new) for old, (back, new) in found.items() if back is None)
        self.turned.update((old, (back, new)) for old, (back, new) in found.items() if back is not None)
        return bool(found)

    def _input(self, node: Node, old: Value, perm: Perm) -> Value | None:
        """An input of a node that is turned by ``perm``; None if that would move a large tensor."""
        if old in self.turned and self.turned[old][0] == perm:
            return self.turned[old][1]
        if old in _weight(node):
            return transposed(self.plain(old), inverse(perm), at_producer(old))
        if not isinstance(node.op, Pointwise | FusedSums):
            return self.plain(old) if old.type.rank == 1 else None
        whole = full_shape(node) if isinstance(node.op, FusedSums) else node.types[0].ints
        shape, rank = old.type.ints, len(perm)
        if prod(shape) == 1:
            return self.plain(old)
        back = inverse(perm)
        wide = (*(1,) * (rank - len(shape)), *shape)
        made = old.producer
        if isinstance(made, Node) and (made.op.name == "full" or (made.op.name == "expand" and _is_number(made))):
            return at_producer(old)(
                made.op, *map(self.plain, made.inputs), **{**made.attrs, "shape": _turned(wide, back)}
            )
        order = [axis for axis in back if wide[axis] != 1]
        if order != sorted(order) and prod(shape) * _BROADCAST > prod(whole):
            return None
        return transposed(reshaped(self.plain(old), wide), back)


def _is_number(node: Node) -> bool:
    return prod(node.input_types[0].ints) == 1


def _turned(sizes: Sequence[int], back: Perm) -> tuple[int, ...]:
    return tuple(sizes[axis] for axis in back)
