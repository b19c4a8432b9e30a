"""Scatters that replace elements, without the tensors of last places, and their gradients, without a sum.

Before::

    %1 = scatter_reduce %none, %places, %ids {how=max} : i32[64, 1000]  # the last place of each id, or -1
    %2 = gather %src, max(%1, 0) : f32[64, 1000]
    %3 = where %1 >= 0, %2, %x : f32[64, 1000]

After::

    %3 = scatter_last %src, %ids, %x : f32[64, 1000]

A gradient still reads the last places: ``last_places`` makes them without a tensor of all places, and ``take_last`` is
the result. As each place is the last of at most one id, the sum over it is what the gradient is at its id, if it is the
last there: ``give_last``. Part of ``order_rows``, whose kernels take lines along the last axis and limited sizes, and
of ``replacements``, for targets without kernels of the latter two ops.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import prod

from dslc.compiler.ir.graph import Graph, Node, Value, made_by
from dslc.compiler.ir.op import OPS, Builder
from dslc.compiler.ir.types import DType
from dslc.compiler.ops.attrs import int_attr
from dslc.compiler.ops.index.ordered import by_atomics, by_lines, scans

_PLACE_BYTES = 4


def last_indices(graph: Graph, any_axis: bool = False) -> Graph:
    """The graph with such nodes; the same object if it has no such scatter. ``any_axis``: kernels take any axis and
    size."""
    rule = _Rule(any_axis)
    placed = graph.rewrite(lambda node: _values(rule(node)))
    rule.read_once(placed)
    return placed.rewrite(lambda node: _values(rule(node))) if rule.found else placed


def _values(value: Value | None) -> tuple[Value] | None:
    return None if value is None else (value,)


@dataclass
class _Rule:
    """The rule of these scatters. ``found``: last places -> their index, axis and count; ``alone``: those that nothing
    but the replacement reads."""

    any_axis: bool
    found: dict[Value, tuple[Value, int, int]] = field(default_factory=dict)
    alone: set[Value] = field(default_factory=set)
    read: bool = False  # whether ``alone`` is known

    def __call__(self, node: Node) -> Value | None:
        """The node that replaces this one; None if it stays."""
        match node.op.name:
            case "scatter_reduce":
                return self._places(node)
            case "where":
                return self._replaced(node)
            case "scatter_add":
                return self._gradient(node)
        return None

    def _places(self, node: Node) -> Value | None:
        (x, src, index), axis = node.inputs, int_attr(node.attrs, "axis")
        none, count = made_by(x, "full"), x.type.ints[axis]
        if none is None or none.attrs["value"] != -1 or node.attrs["how"] != "max" or not _counts(src, axis):
            return None
        if index.type.rank != src.type.rank or not self._fits(index, axis, count):
            return None
        b = Builder().at(node, node.phase)
        attrs = {"lost": node.attrs["lost"]} if "lost" in node.attrs else {}
        [index], last, back = self._turned(b, [index], axis)
        made = b(OPS["last_places"], index, axis=last, count=count, **attrs)
        made = made if back is None else b(OPS["transpose"], made, perm=back)
        self.found[made] = (node.inputs[2], axis, count)
        return made

    def _replaced(self, node: Node) -> Value | None:
        known, found, x = node.inputs
        last = self._last(known)
        if last is None or not self.read:
            return None
        b = Builder().at(node, node.phase)
        made = known.producer
        if (taken := self._taken(b, node, last)) or self.any_axis or not isinstance(made, Node):
            return taken
        if made.phase is node.phase:
            return None
        # places are read again in any case, so the comparison need not be kept
        return b(OPS["where"], b(OPS["ge"], last, b(OPS["full"], value=0, dtype=DType.I32, shape=())), found, x)

    def _taken(self, b: Builder, node: Node, last: Value) -> Value | None:
        """The result of the scatter; None if the node is not that."""
        _, found, x = node.inputs
        gather = made_by(found, "gather")
        if gather is None or _least(gather.inputs[1]) is not last:
            return None
        index, axis, count = self.found[last]
        zero, src = _is_zero(x), gather.inputs[0]
        if gather.attrs["axis"] != axis or src.type.shape != index.type.shape or not (zero or x.type == node.types[0]):
            return None
        if last not in self.alone:
            return None if self.any_axis else b(OPS["take_last"], src, last, *([] if zero else [x]), axis=axis)
        given, last_axis, back = self._turned(b, [src, index, *([] if zero else [x])], axis)
        made = b(OPS["scatter_last"], *given, axis=last_axis, count=count)
        return made if back is None else b(OPS["transpose"], made, perm=back)

    def read_once(self, graph: Graph) -> None:
        """Finds those that nothing but the replacement reads."""
        readers, roots, self.read = graph.readers(), set(graph.roots), True
        for last in self.found:
            used = readers.get(last, [])
            names, ends = sorted(node.op.name for node in used), [readers.get(node.out, []) for node in used]
            if names == ["ge", "maximum"] and all(len(end) == 1 for end in ends) and last not in roots:
                self.alone.add(last)

    def _last(self, known: Value) -> Value | None:
        """The last places of a comparison with 0."""
        made = made_by(known, "ge")
        return made.inputs[0] if made and made.inputs[0] in self.found and _is_zero(made.inputs[1]) else None

    def _gradient(self, node: Node) -> Value | None:
        (given, place), axis = node.inputs, int_attr(node.attrs, "axis")
        last, chosen = _least(place), made_by(given, "where")
        if last not in self.found or chosen is None or self._last(chosen.inputs[0]) is not last:
            return None
        index, of, _ = self.found[last]
        dy, fits = chosen.inputs[1], of == axis and node.types[0].shape == index.type.shape
        if not fits or dy.type != given.type or not _is_zero(chosen.inputs[2]):
            return None
        b = Builder().at(node, node.phase)
        if not self.any_axis and dy.type.dtype.is_float:
            return b(OPS["give_last"], dy, index, last, axis=axis)
        return _given(b, node, dy, index, last)

    def _fits(self, index: Value, axis: int, count: int) -> bool:
        """Whether a kernel supports ``count`` result elements along the axis."""
        shape = index.type.ints
        result = (*shape[:axis], count, *shape[axis + 1 :])
        if not prod(shape) or not prod(result):
            return False
        if self.any_axis:
            return True
        lines, length = prod(shape) // shape[axis], shape[axis]
        few = by_lines(lines, length, count, _PLACE_BYTES) or scans(length, result, axis)
        return few or by_atomics("places", DType.I32, lines * max(length, count))

    def _turned(
        self, b: Builder, values: Sequence[Value], axis: int
    ) -> tuple[list[Value], int, tuple[int, ...] | None]:
        """The values with the axis last if kernels need that, its number, and the order of axes that undoes that."""
        rank = values[0].type.rank
        if self.any_axis or axis == rank - 1:
            return list(values), axis, None
        perm = (*(other for other in range(rank) if other != axis), axis)
        back = tuple(perm.index(axis) for axis in range(rank))
        return [b(OPS["transpose"], value, perm=perm) for value in values], rank - 1, back


def _given(b: Builder, node: Node, dy: Value, index: Value, last: Value) -> Value:
    """The gradient of pointwise ops and gathers, for targets without a kernel of it."""
    axis = int_attr(node.attrs, "axis")
    rank, length, count = index.type.rank, index.type.ints[axis], dy.type.ints[axis]
    places = b(OPS["arange"], shape=(length,), start=0, step=1)
    places = b(OPS["reshape"], places, shape=tuple(length if i == axis else 1 for i in range(rank)))
    winner, slope = (b(OPS["gather"], x, index, axis=axis) for x in (last, dy))
    dtype = node.types[0].dtype
    zero, nan = (b(OPS["full"], value=value, dtype=dtype, shape=()) for value in (0.0, "nan"))
    lost = b(OPS["ge"], winner, b(OPS["full"], value=length, dtype=DType.I32, shape=()))
    for compare, bound in (("lt", 0), ("ge", count)):  # of an index outside, the gather has no place
        wrong = b(OPS[compare], index, b(OPS["full"], value=bound, dtype=index.type.dtype, shape=()))
        lost = b(OPS["logical_or"], lost, wrong)
    return b(OPS["where"], b(OPS["eq"], winner, places), slope, b(OPS["where"], lost, nan, zero))


def _is_zero(value: Value) -> bool:
    made = made_by(value, "full")
    return made is not None and made.attrs["value"] == 0


def _least(value: Value) -> Value | None:
    """x of max(x, 0)."""
    made = made_by(value, "maximum")
    return made.inputs[0] if made and _is_zero(made.inputs[1]) else None


def _counts(value: Value, axis: int) -> bool:
    """Whether elements are their places along the axis."""
    made = made_by(value, "expand")
    line = value if made is None else made.inputs[0]  # of a single line, nothing expands it
    if line.type.rank != value.type.rank:
        return False
    made = made_by(line, "reshape")
    source = line if made is None else made.inputs[0]
    if line.type.ints[axis] != prod(line.type.ints):
        return False
    made = made_by(source, "arange")
    return made is not None and made.attrs["start"] == 0 and made.attrs["step"] == 1
