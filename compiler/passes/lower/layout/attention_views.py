"""Lets attention in tiles read and write parts of tensors in place, instead of slices and transposes of them.

Before::

    %1 = reshape %0 {shape=(8, 64, 3, 4, 32)} : bf16[8, 64, 3, 4, 32]  # qkv forward
    %2 = transpose %1 {perm=(2, 0, 3, 1, 4)} : bf16[3, 8, 4, 64, 32]  # qkv forward
    %3, %4, %5 = three slices of %2, reshaped : bf16[8, 4, 64, 32]
    %6, %7 = sdpa %3, %4, %5 {...} : bf16[8, 4, 64, 32], f32[8, 4, 64]  # sdpa forward
    %8 = transpose %6 {perm=(0, 2, 1, 3)} : bf16[8, 64, 4, 32]  # sdpa forward

After::

    %1, %2 = strided_sdpa %0, %0, %0 {reads=..., writes=..., ...} : bf16[8, 64, 4, 32], f32[8, 4, 64]  # sdpa forward

An operand is followed back through reshapes, transposes and slices, as long as it is a view that the kernels can read.
It stays a copy of a slice if the node reads less than the whole tensor, which else had to be kept for the gradient. A
result is followed to its only reader, and the three gradients through a concat of them, whose parts they may be without
any other move. Results keep their bits. For targets whose attention has such kernels. Linear in nodes and reads.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Final

from dslc.compiler.ir.graph import Graph, Node, Value
from dslc.compiler.ops.attrs import int_attr, int_tuple
from dslc.compiler.ops.compound.strided_attention import View, fits_tiles, pairs, places, strided, whole
from dslc.compiler.ops.products.attention import sdpa, sdpa_grad
from dslc.compiler.passes.rebuild import reading

_OPERANDS: Final = 3  # q, k and v
_Readers = Mapping[Value, list[Node]]


def attention_views(graph: Graph) -> Graph:
    """The graph with such nodes; the same object if there are none."""
    instead: dict[Value, Value] = {}
    for node, plan in _plans(graph).items():
        sources, views = zip(*plan.reads)
        made = strided(node, sources, views, plan.writes, [value.type.ints for value in plan.ends])
        instead.update(zip(plan.ends, made.outputs))
    return reading(graph, instead)


@dataclass(frozen=True)
class _Plan:
    """The sources of the operands with their views; for each result the number of one of ``ends`` and the view of it;
    and the values that the outputs replace."""

    reads: Sequence[tuple[Value, View]]
    writes: Sequence[tuple[int, View]]
    ends: Sequence[Value]

    @property
    def moves(self) -> bool:
        """Whether the rows of any tensor lie in another order than in one of its own, or results in one tensor."""
        moved = any(v.strides != whole(v.shape).strides for _, v in (*self.reads, *self.writes))
        return moved or len(self.ends) < len(self.writes)


def _plans(graph: Graph) -> dict[Node, _Plan]:
    """The nodes to replace: an ``sdpa`` together with its gradients."""
    found: dict[Node, _Plan] = {}
    attention = [node for node in graph.nodes if node.op is sdpa and fits_tiles(node)]
    if not attention:
        return found
    readers, roots = graph.readers(), set(graph.roots)
    for node in attention:
        grads = [n for n in readers.get(node.outputs[0], ()) if n.op is sdpa_grad and n.inputs[3] is node.outputs[0]]
        plans = _planned(node, grads, readers, roots)
        if plans is not None:
            found.update(zip((node, *grads), plans))
    return found


def _planned(node: Node, grads: Sequence[Node], readers: _Readers, roots: Collection[Value]) -> list[_Plan] | None:
    """The plans of an ``sdpa`` and its gradients; None if nothing is moved, or if the kernels cannot do it."""
    y, lse = node.outputs
    operands, terms = _operands(node), [(x, whole_of(x)) for x in node.inputs[_OPERANDS:]]
    end, view = result(y, grads, readers, roots)
    plans = [_Plan([*operands, *terms], [(0, view), (1, whole_of(lse))], [end, lse])]
    rows = [[*(each for _, each in operands), view]]
    for grad in grads:
        if grad.inputs != (*node.inputs[:_OPERANDS], y, lse, grad.inputs[5], *node.inputs[_OPERANDS:]):
            return None
        dy = furthest(grad.inputs[5], slices=False)
        plan = _Plan([*operands, (end, view), (lse, whole_of(lse)), dy, *terms], *_gradients(grad, readers, roots))
        plans.append(plan)
        rows.append([*rows[0], dy[1], *(each for _, each in plan.writes[:_OPERANDS])])
    over = [pairs(node, x) for x in node.inputs[_OPERANDS:]]
    if any(places(each, over) is None for each in rows):
        return None
    return plans if any(plan.moves for plan in plans) else None


def whole_of(value: Value) -> View:
    return whole(value.type.ints)


def _operands(node: Node) -> list[tuple[Value, View]]:
    """The sources of q, k and v."""
    found = [furthest(value, slices=True) for value in node.inputs[:_OPERANDS]]
    read: dict[Value, int] = {}
    for source, view in found:
        read[source] = read.get(source, 0) + prod(view.shape)
    return [
        (source, view) if read[source] >= prod(source.type.ints) else furthest(value, slices=False)
        for value, (source, view) in zip(node.inputs, found)
    ]


def furthest(value: Value, slices: bool) -> tuple[Value, View]:
    """The value as a view of the furthest tensor that it is moved from."""
    best, way, source = (value, whole_of(value)), list[Node](), value
    while isinstance(made := source.producer, Node) and made.op.name in ("reshape", "transpose", "slice"):
        if made.op.name == "slice" and not (slices and set(int_tuple(made.attrs, "steps")) == {1}):
            break
        way.append(made)
        source = made.inputs[0]
        view: View | None = whole_of(source)
        for node in reversed(way):
            view = view and moved(view, node)
        if view is not None and _loadable(view):
            best = (source, view)
    return best


def moved(view: View, node: Node) -> View | None:
    """The view of a node's result for that of its input; None if there is none."""
    match node.op.name:
        case "reshape":
            return _reshaped(view, node.types[0].ints)
        case "transpose":
            return _turned(view, int_tuple(node.attrs, "perm"))
        case _:
            starts = int_tuple(node.attrs, "starts")
            start = view.start + sum(n * stride for n, stride in zip(starts, view.strides))
            return View(node.types[0].ints, view.strides, start)


def _turned(view: View, perm: Sequence[int]) -> View:
    return View(tuple(view.shape[a] for a in perm), tuple(view.strides[a] for a in perm), view.start)


def _reshaped(view: View, shape: Sequence[int]) -> View | None:
    """The view with its elements in another shape; None if it is no view."""
    old = [(n, stride) for n, stride in zip(view.shape, view.strides) if n != 1]
    strides, at = [0] * len(shape), len(shape) - 1
    while old:
        count, stride = old.pop()
        while at >= 0 and shape[at] <= count and count % shape[at] == 0:
            strides[at], stride, count = stride, stride * shape[at], count // shape[at]
            at -= 1
        if count == 1:
            continue
        if not old or old[-1][1] != stride * count:
            return None
        old[-1] = (old[-1][0] * count, stride)  # both axes are one
    return View(tuple(shape), tuple(strides), view.start)


def _loadable(view: View) -> bool:
    return len(view.shape) >= 2 and places([view]) is not None


def _ends(
    value: Value, but: Collection[Node], readers: _Readers, roots: Collection[Value]
) -> Iterator[tuple[Value, View]]:
    """The values that this one becomes by moves alone, if nothing but ``but`` reads it before, and the view of it in
    each, the furthest first."""
    way: list[Node] = []
    start = value
    while (reader := _only(value, but if value is start else (), readers, roots)) is not None:
        if reader.op.name not in ("reshape", "transpose"):
            break
        way.append(reader)
        value = reader.out
    while way:
        view = _undone(whole_of(way[-1].out), way)
        if view is not None:
            yield way[-1].out, view
        way.pop()
    yield start, whole_of(start)


def result(value: Value, but: Collection[Node], readers: _Readers, roots: Collection[Value]) -> tuple[Value, View]:
    """The furthest of them in which the kernels can write."""
    found = ((end, view) for end, view in _ends(value, but, readers, roots) if _loadable(view))
    return next(found, (value, whole_of(value)))


def _only(value: Value, but: Collection[Node], readers: _Readers, roots: Collection[Value]) -> Node | None:
    """The only reader of a value besides some."""
    found = [node for node in readers.get(value, ()) if node not in but]
    return found[0] if len(found) == 1 and value not in roots else None


def _undone(view: View | None, way: Sequence[Node]) -> View | None:
    """The view of the first input of moves in that of their result."""
    for node in reversed(way):
        if view is None:
            return None
        if node.op.name == "reshape":
            view = _reshaped(view, node.input_types[0].ints)
        else:
            perm = int_tuple(node.attrs, "perm")
            view = _turned(view, sorted(range(len(perm)), key=perm.__getitem__))
    return view


def _gradients(grad: Node, readers: _Readers, roots: Collection[Value]) -> tuple[list[tuple[int, View]], list[Value]]:
    """Of dq, dk, dv and the gradient of a bias the number of a value and the view of it, and these values."""
    slopes, whole_ones = grad.outputs[:_OPERANDS], grad.outputs[_OPERANDS:]
    joined = _written_by_concat(slopes, readers, roots)
    if joined is None:
        found = [result(value, (), readers, roots) for value in slopes]
        joined = [(number, view) for number, (_, view) in enumerate(found)], [value for value, _ in found]
    writes, values = joined
    more = [(len(values) + number, whole_of(value)) for number, value in enumerate(whole_ones)]
    return [*writes, *more], [*values, *whole_ones]


def _written_by_concat(
    slopes: Sequence[Value], readers: _Readers, roots: Collection[Value]
) -> tuple[list[tuple[int, View]], list[Value]] | None:
    """The same if all three become one tensor by a concat."""
    ways: list[list[Node]] = []
    concats: list[Node] = []
    for value in slopes:
        way: list[Node] = []
        while (reader := _only(value, (), readers, roots)) is not None and reader.op.name in ("reshape", "transpose"):
            way.append(reader)
            value = reader.out
        if reader is None or reader.op.name != "concat":
            return None
        ways.append(way)
        concats.append(reader)
    concat, ends = concats[0], [way[-1].out if way else value for way, value in zip(ways, slopes)]
    if any(each is not concat for each in concats) or sorted(map(id, concat.inputs)) != sorted(map(id, ends)):
        return None
    for end, inside in _ends(concat.out, (), readers, roots):
        views = [_undone(part, way) for part, way in zip(_parts(concat, ends, inside), ways)]
        writes = [(0, view) for view in views if view is not None and _loadable(view)]
        if len(writes) == len(views):
            return writes, [end]
    return None


def _parts(concat: Node, values: Sequence[Value], inside: View) -> Iterator[View]:
    """The views of some inputs of a concat, for that of its result."""
    axis, step = int_attr(concat.attrs, "axis"), inside.strides[int_attr(concat.attrs, "axis")]
    for value in values:
        before = sum(x.type.ints[axis] for x in concat.inputs[: concat.inputs.index(value)])
        yield View(value.type.ints, inside.strides, inside.start + before * step)
