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
reduction that leaves the other axes in order reads u. Small inputs that broadcast are turned, too. A convolution turns
its weight, or the gradient of it, if that is smaller than the image. For targets whose kernels read any layout. Results
keep their bits up to the order of sums in convolutions, reductions, interpolation and pools. Linear in nodes and reads.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Final, TypeAlias

from dslc.compiler.ir.graph import Attr, Graph, Node, Value, order
from dslc.compiler.ir.op import OPS, Builder, Op, Pointwise
from dslc.compiler.ops.attrs import bool_attr, int_attr, int_tuple
from dslc.compiler.ops.spatial.channels_last import LAST, RESAMPLED_LAST, to_first
from dslc.compiler.passes.lower.simplify.simplify import simplify_graph

Perm: TypeAlias = tuple[int, ...]
_BROADCAST: Final = 8  # an input of less than a part like this of the result's elements is turned by a transpose
_IMAGES: Final = ("maxpool", "maxpool_grad", "avgpool", "avgpool_grad", "batchnorm", "batchnorm_grad")
#: Convolutions -> which of inputs and result are not images: a weight, or its gradient.
WEIGHTS: Final = {"conv": 1, "conv_dgrad": 1, "conv_wgrad": 2}
_FEWEST: Final = 16  # channels of a group, and results, that fill a vector
_REDUCTIONS: Final = ("sum", "mean", "max", "min")


def transposes(graph: Graph) -> Graph:
    """The graph without such transposes; the same object if there are none."""
    return without(graph, lambda perm: True, lambda node: True)


def without(graph: Graph, takes: Callable[[Perm], bool], turns: Callable[[Node], bool]) -> Graph:
    """The graph without such transposes of the permutations that ``takes`` allows, around the nodes that ``turns``
    does."""
    if not any(node.op.name == "transpose" for node in graph.nodes):
        return graph
    turner = _Turner(_demands(graph, turns), takes, turns)
    for node in graph.nodes:
        turner.node(node)
    if not turner.has_turned:
        return graph
    outputs = {name: turner.plain(value) for name, value in graph.outputs.items()}
    updates = tuple((source, turner.plain(value)) for source, value in graph.updates)
    roots = [*outputs.values(), *(v for _, v in updates)]
    return simplify_graph(Graph(graph.inputs, order(roots), outputs, updates))


def _inverse(perm: Perm) -> Perm:
    return tuple(sorted(range(len(perm)), key=perm.__getitem__))


def _through(first: Perm, then: Perm) -> Perm:
    """The permutation of a transpose by ``then`` of a transpose by ``first``."""
    return tuple(first[axis] for axis in then)


def _image_op(node: Node) -> Op | None:
    """The op on channels-last images that computes the node turned."""
    if node.inputs[0].type.rank < 3:
        return None
    return LAST[node.op] if node.op.name in _IMAGES or _turns(node) else RESAMPLED_LAST.get(node.op)


def _turns(node: Node) -> bool:
    """Whether the node is a convolution that is as fast with channels last: its groups are of one channel and one
    result, or what it writes of a group, and with several groups what it reads, fills a vector; its weight is smaller
    than the images."""
    if node.op.name not in WEIGHTS:
        return False
    both = [*node.input_types, *node.types]
    weight, groups = both.pop(WEIGHTS[node.op.name]).ints, int_attr(node.attrs, "groups")
    results, channels = weight[0] // groups, weight[1]
    written = {"conv": results, "conv_dgrad": channels}.get(node.op.name, max(results, channels))
    fills = results == channels == 1 or (written if groups == 1 else min(results, channels)) >= _FEWEST
    return fills and prod(weight) <= sum(prod(image.ints) for image in both)


def _demands(graph: Graph, turns: Callable[[Node], bool]) -> dict[Value, set[Perm]]:
    """For each value, the axis permutations under which a reader needs no transpose."""
    found: dict[Value, set[Perm]] = {}
    for root in graph.roots:
        found.setdefault(root, set()).add(tuple(range(root.type.rank)))
    for node in reversed(graph.nodes):
        wanted = set[Perm]().union(*(found.get(v, set()) for v in node.outputs))
        for value in node.inputs:
            plain = tuple(range(value.type.rank))
            found.setdefault(value, set()).update(_wanted_of_input(node, value, wanted) if turns(node) else {plain})
    return found


def _wanted_of_input(node: Node, value: Value, wanted: set[Perm]) -> set[Perm]:
    """The permutations that a node wants of an input, from those that are wanted of its outputs."""
    plain = tuple(range(value.type.rank))
    if node.op.name == "transpose":
        back = _inverse(int_tuple(node.attrs, "perm"))
        return {_through(perm, back) for perm in wanted}
    if _takes_any(node) and value.type.rank == node.types[0].rank:
        return {perm for perm in wanted if len(perm) == len(plain)}
    if _over(node, to_first(len(plain))) is not None:
        return {plain, to_first(len(plain))}
    if value in _weight(node):
        return {plain}
    if len(plain) > 2 and _image_op(node) is not None and (to_first(len(plain)) in wanted or _makes_weight(node)):
        return {plain, to_first(len(plain))} if plain in wanted else {to_first(len(plain))}
    return {plain}


def _weight(node: Node) -> Sequence[Value]:
    """The weight that a convolution reads."""
    return node.inputs[1:] if WEIGHTS.get(node.op.name) == 1 else ()


def _makes_weight(node: Node) -> bool:
    """Whether a node's result is the gradient of a weight, which it can turn at any time."""
    return WEIGHTS.get(node.op.name) == 2 and _turns(node)


def _over(node: Node, perm: Perm) -> tuple[int, ...] | None:
    """The axes that a reduction of a value turned by ``perm`` reduces; None if its result would be turned, too."""
    if node.op.name not in _REDUCTIONS or bool_attr(node.attrs, "keep") or len(perm) != node.inputs[0].type.rank:
        return None
    over = int_tuple(node.attrs, "over")
    left = [axis for n, axis in enumerate(perm) if n not in over]
    return tuple(sorted(perm[axis] for axis in over)) if left == sorted(left) else None


def _takes_any(node: Node) -> bool:
    """Whether a node can compute its result turned by any permutation."""
    return (isinstance(node.op, Pointwise) and not node.op.random) or node.op.name in _MOVED


class _Turner:
    """Rewrites nodes. ``same``: an old value -> its new one. ``turned``: an old value -> p and the new value u.
    ``takes``: which p; ``turns``: which nodes."""

    def __init__(
        self, demands: dict[Value, set[Perm]], takes: Callable[[Perm], bool], turns: Callable[[Node], bool]
    ) -> None:
        self.demands, self.takes, self.turns = demands, takes, turns
        self.same: dict[Value, Value] = {}
        self.turned: dict[Value, tuple[Perm, Value]] = {}
        self.has_turned = False

    def plain(self, old: Value) -> Value:
        """The new value of an old one."""
        if old not in self.same and old in self.turned:
            perm, value = self.turned[old]
            self.same[old] = _at(old)(OPS["transpose"], value, perm=perm)
        return self.same.get(old, old)

    def node(self, node: Node) -> None:
        """Rewrites a node."""
        if node.op.name == "transpose":
            self._transpose(node)
            return
        if node.op.name in _REDUCTIONS and self._reduce(node):
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
            perm = _through(first, perm)
        else:
            value = self.plain(source)
        if perm == tuple(range(len(perm))):
            self.same[node.out] = value
        elif self.takes(perm):
            self.turned[node.out] = (perm, value)
        else:
            self.same[node.out] = Builder().at(node, node.phase)(node.op, value, perm=perm)

    def _reduce(self, node: Node) -> bool:
        """Reduces a turned value as it is; False if that is impossible."""
        if node.inputs[0] not in self.turned:
            return False
        perm, value = self.turned[node.inputs[0]]
        over = _over(node, perm)
        if over is None:
            return False
        self.same[node.out] = Builder().at(node, node.phase)(node.op, value, **{**node.attrs, "over": over})
        self.has_turned = True
        return True

    def _turn(self, node: Node, perm: Perm) -> bool:
        """Computes a node turned by ``perm``; False if that is impossible."""
        if not self.turns(node):
            return False
        image = _image_op(node)
        if image is None and not (_takes_any(node) and node.types[0].rank == len(perm)):
            return False
        if image is not None and perm != to_first(len(perm)):
            return False
        inputs = [self._input(node, v, perm) for v in node.inputs]
        known = [v for v in inputs if v is not None]
        if len(known) < len(inputs):
            return False
        op, moved = image or node.op, _MOVED.get(node.op.name)
        attrs = {} if moved is None else moved(node, _inverse(perm))
        fresh = Builder().at(node, node.phase).node(op, *known, **{**node.attrs, **attrs})
        for old, new in zip(node.outputs, fresh.outputs):
            if old.type.rank == len(perm):
                self.turned[old] = (perm, new)
            else:  # statistics of channels
                self.same[old] = new
        return True

    def _input(self, node: Node, old: Value, perm: Perm) -> Value | None:
        """An input of a node that is turned by ``perm``; None if that would move a large tensor."""
        if old in self.turned and self.turned[old][0] == perm:
            return self.turned[old][1]
        if old in _weight(node):
            return _at(old)(OPS["transpose"], self.plain(old), perm=_inverse(perm))
        if not isinstance(node.op, Pointwise):
            return self.plain(old) if old.type.rank == 1 else None
        shape, rank = old.type.ints, len(perm)
        if prod(shape) == 1:
            return self.plain(old)
        back = _inverse(perm)
        wide = (*(1,) * (rank - len(shape)), *shape)
        made = old.producer
        if isinstance(made, Node) and (made.op.name == "full" or (made.op.name == "expand" and _is_number(made))):
            return _at(old)(made.op, *map(self.plain, made.inputs), **{**made.attrs, "shape": _turned(wide, back)})
        if prod(shape) * _BROADCAST > prod(node.types[0].ints):
            return None
        value = self.plain(old)
        if shape != wide:
            value = _at(old)(OPS["reshape"], value, shape=wide)
        moving = [axis for axis in back if wide[axis] != 1]
        if moving == sorted(moving):
            return _at(old)(OPS["reshape"], value, shape=_turned(wide, back))
        return _at(old)(OPS["transpose"], value, perm=back)


def _is_number(node: Node) -> bool:
    return prod(node.input_types[0].ints) == 1


def _turned(sizes: Sequence[int], back: Perm) -> tuple[int, ...]:
    return tuple(sizes[axis] for axis in back)


def _at(old: Value) -> Builder:
    made = old.producer
    return Builder().at(made, made.phase) if isinstance(made, Node) else Builder(name=made.name, span=made.span)


def _lists(*names: str) -> Callable[[Node, Perm], dict[str, Attr]]:
    """Attributes with a number for each axis."""
    return lambda node, back: {name: _turned(int_tuple(node.attrs, name), back) for name in names}


#: Ops that move elements along axes -> their attributes for turned inputs.
_MOVED: Final[dict[str, Callable[[Node, Perm], dict[str, Attr]]]] = {
    "concat": lambda node, back: {"axis": back.index(int_attr(node.attrs, "axis"))},
    "pad": _lists("low", "high", "interior"),
    "slice": _lists("starts", "stops", "steps"),
    "border": _lists("low", "high"),
    "border_grad": _lists("low", "high"),
    "roll": _lists("shifts"),
}
