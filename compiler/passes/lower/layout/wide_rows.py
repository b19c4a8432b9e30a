"""Computes odd rows in the aligned rows that products write and read, instead of copying from one to the other.

Before, of a convolution that has 230 channels and two of zeros::

    %2 = slice %1 {stops=(16, 28, 28, 230), ...} : bf16[16, 28, 28, 230]  # norm forward
    %3 = relu %2 : bf16[16, 28, 28, 230]  # relu forward
    %4 = pad %3 {high=(0, 0, 0, 2), ...} : bf16[16, 28, 28, 232]  # conv forward

After::

    %3 = relu %1 : bf16[16, 28, 28, 232]  # relu forward

Pointwise ops, reductions over other axes, and reshapes, pads, slices and transposes that leave the last axis alone are
computed with rows of the aligned length; vectors that they read are padded. A padded tensor is replaced if the added
elements are zeros, which follows from those of the operands. Where another op reads the odd rows, they are a slice of
the aligned ones. Only where the copies that this saves take longer than those that it needs. ``wide_values.py`` says
which values can be computed so. Results keep their bits up to the order of sums, as long as they are finite. Linear in
nodes and reads.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Final

from dslc.compiler.codegen.device_model import H200
from dslc.compiler.ir.graph import Graph, Node, Value
from dslc.compiler.ir.op import OPS, Builder
from dslc.compiler.ir.types import TensorType
from dslc.compiler.passes.lower.layout.wide_values import WideValues, is_large, more_of, prefix
from dslc.compiler.passes.rebuild import reading

_COPY: Final = 2e-6  # seconds of a launch


def wide_rows(graph: Graph) -> Graph:
    """The graph with such rows; the same object if there are none. Deterministic and idempotent."""
    values = WideValues(graph)
    if not values.pads:
        return graph
    groups = _Groups(graph, values)
    writer = _Writer(values, groups.worth())
    return reading(graph, writer.instead(graph))


class _Groups:
    """Nodes that are computed with aligned rows, or not, together: those that large values connect."""

    def __init__(self, graph: Graph, values: WideValues) -> None:
        self.graph, self.values = graph, values
        self._group: dict[Node | Value, Node | Value] = {}
        for node in values.nodes:
            for value in (*node.inputs, *node.outputs):
                if value in values.rows and is_large(value):
                    self._join(node, value)

    def worth(self) -> set[Node]:
        """The nodes of the groups that save time."""
        values, saved = self.values, defaultdict[Node | Value, float](float)
        for value in filter(is_large, values.rows):
            saved[self._first(value)] += self._saved(value)
        odd = [(self._first(node), v) for node in values.nodes for v in node.inputs if values.is_odd(v)]
        for group, value in dict.fromkeys(odd):
            if value not in values.rows:
                saved[group] -= _copied(value.type)  # it is padded
        return {node for node in values.nodes if any(map(is_large, node.inputs)) and saved[self._first(node)] > 0}

    def _saved(self, value: Value) -> float:
        """The seconds of the copies of a value to and from aligned rows that its group saves."""
        values, readers = self.values, self._readers.get(value, ())
        others = any(node not in values.nodes and not values.follows(node) for node in readers)
        kept, pads = others or value in self._roots, values.replaced_pads(value, readers)
        gain = sum(_copied(pad.types[0]) for pad in pads)
        if value in values.sliced:
            return gain if kept else gain + _copied(value.type)
        return gain - _copied(value.type) if kept and value in values.made else gain

    @cached_property
    def _readers(self) -> Mapping[Value, Sequence[Node]]:
        return self.graph.readers()

    @cached_property
    def _roots(self) -> set[Value]:
        return {*self.graph.roots}

    def _first(self, member: Node | Value) -> Node | Value:
        while (other := self._group.get(member, member)) is not member:
            self._group[member] = self._group.get(other, other)
            member = other
        return member

    def _join(self, one: Node | Value, other: Node | Value) -> None:
        self._group[self._first(one)] = self._first(other)


class _Writer:
    """Makes the wide values of the nodes ``chosen`` and of what they read."""

    def __init__(self, values: WideValues, chosen: set[Node]) -> None:
        self.values, self.chosen = values, chosen
        self._wide: dict[Value, Value] = {}
        self._written: dict[Node, Node] = {}

    def instead(self, graph: Graph) -> Mapping[Value, Value]:
        """What takes the place of which values."""
        for node in graph.nodes:
            if node in self.chosen:
                self._node(node)
        found: dict[Value, Value] = {}
        for node, wide in self._written.items():
            b = Builder().at(node, node.phase)
            found.update({old: prefix(b, new, old.type.ints) for old, new in zip(node.outputs, wide.outputs)})
        for node in graph.nodes:
            wide_input = self._wide.get(node.inputs[0]) if node.inputs and node not in self._written else None
            if wide_input is not None and self.values.replaced_pads(node.inputs[0], [node]):
                found[node.out] = wide_input
            elif wide_input is not None and node.op.name == "slice":
                found[node.out] = Builder().at(node, node.phase)(node.op, wide_input, **node.attrs)
        return found

    def _node(self, node: Node) -> None:
        if node in self._written:
            return
        b = Builder().at(node, node.phase)
        inputs = [self._of(b, v) if self.values.is_odd(v) else v for v in node.inputs]
        self._written[node] = b.node(node.op, *inputs, **self.values.attrs(node))
        self._wide.update(zip(node.outputs, self._written[node].outputs))

    def _of(self, b: Builder, value: Value) -> Value:
        made, values = value.producer, self.values
        if value not in self._wide:
            if value in values.sliced:
                self._wide[value] = values.sliced[value]
            elif value in values.made:
                assert isinstance(made, Node)
                self._node(made)
            elif value in values.pads:
                self._wide[value] = values.pads[value].out
            else:
                none = (0,) * value.type.rank
                high = (*none[1:], more_of(value.type))
                self._wide[value] = b(OPS["pad"], value, low=none, high=high, interior=none, value=0.0)
        return self._wide[value]


def _copied(type: TensorType) -> float:
    """The seconds of a copy."""
    return _COPY + 2 * type.bytes / H200.bandwidth
