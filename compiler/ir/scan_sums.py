"""Lets loops continue a sum that begins before them, instead of adding their own sum to it.

Before, where ``%3`` and the carry are parts of the gradient of one parameter::

    %4 = full {value=-0.0, ...} : [4]
    %5 = scan %4, %x {...} : [4]
      %2 = add %0, %1 : [4]
      update carry.0 = %2
    %6 = add %3, %5 : [4]

After::

    %6 = scan %3, %x {...} : [4]
      ...

The terms are added one after another, as in the program written out: those of a loop in a loop, and those of several
loops that read one parameter.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field

from dslc.compiler.ir.graph import Graph, Input, Node, Phase, Value
from dslc.compiler.ir.op import OPS
from dslc.compiler.ir.scan import Loop, body_of, consts_of, scan, with_body


def continued_sums(graph: Graph) -> Graph:
    """The graph with such loops, also in the bodies of loops; the same object if there are none."""
    if not any(node.op is scan for node in graph.nodes):
        return graph
    graph = graph.rewrite(_inside)
    readers = _readers(graph)
    found = _Edges(graph)
    for node in graph.nodes:
        if node.op is OPS["add"]:
            before, value = node.inputs
            at = _sum_of(value, readers)
            if at is not None and before.type == value.type and found.add(before, at[0]):
                found.first.setdefault(at[0], {})[at[1]] = before
                found.instead[node.out] = value
    return found.graph() if found.instead else graph


def _inside(node: Node) -> Node | None:
    if node.op is not scan:
        return None
    body = body_of(node.attrs)
    changed = continued_sums(body)
    return None if changed is body else with_body(node, changed)


def _readers(graph: Graph) -> dict[Value, list[Node | None]]:
    """The nodes that read a value, one for each time, and None for each root that it is."""
    readers: dict[Value, list[Node | None]] = {}
    for node in graph.nodes:
        for value in node.inputs:
            readers.setdefault(value, []).append(node)
    for value in graph.roots:
        readers.setdefault(value, []).append(None)
    return readers


def _sum_of(value: Value, readers: dict[Value, list[Node | None]]) -> tuple[Node, int] | None:
    """The loop of a gradient whose carry this is, and the number of its input, if it only adds terms to -0.0."""
    node = value.producer
    if not isinstance(node, Node) or node.op is not scan or node.phase is Phase.FORWARD or len(readers[value]) != 1:
        return None
    number = node.outputs.index(value)
    loop = Loop.of(node)
    if number >= len(loop.carries):
        return None
    start = loop.carries[number].producer
    if not isinstance(start, Node) or start.op is not OPS["full"]:
        return None
    zero = start.attrs["value"]
    if zero != 0.0 or math.copysign(1.0, float(zero)) > 0 or not _only_adds(loop, number):
        return None
    return node, consts_of(node.attrs) + number


def _only_adds(loop: Loop, number: int) -> bool:
    """Whether a step adds terms to this carry and reads it for nothing else."""
    value, readers = loop.carry_inputs[number].value, _readers(loop.graph)
    after = loop.graph.updates[number][1]
    while value is not after:
        if len(readers[value]) != 1 or (reader := readers[value][0]) is None or reader.inputs.count(value) != 1:
            return False
        at = reader.inputs.index(value)
        if reader.op is OPS["add"] and at == 0:
            value = reader.out
            continue
        inner = at - consts_of(reader.attrs) if reader.op is scan else -1
        if inner < 0 or inner >= len((within := Loop.of(reader)).carries) or not _only_adds(within, inner):
            return False
        value = reader.outputs[inner]
    return readers[after] == [None]


@dataclass
class _Edges:
    """The changes to a graph. ``first``: a loop -> the new values of its inputs by number; ``instead``: a sum -> the
    carry that is it from now on."""

    old: Graph
    first: dict[Node, dict[int, Value]] = field(default_factory=dict)
    instead: dict[Value, Value] = field(default_factory=dict)

    def __post_init__(self) -> None:
        loops = [node for node in self.old.nodes if node.op is scan]
        self.bits = {node: 1 << i for i, node in enumerate(loops)}
        self.before: dict[Node, int] = {}  # the loops that a node depends on, itself too
        for node in self.old.nodes:
            self.before[node] = self.bits.get(node, 0)
            for value in node.inputs:
                self.before[node] |= self._mask(value)

    def _mask(self, value: Value) -> int:
        return 0 if isinstance(value.producer, Input) else self.before[value.producer]

    def add(self, value: Value, loop: Node) -> bool:
        """Whether the loop may read the value, which then counts as read: it does not depend on the loop."""
        mask = self._mask(value)
        more = mask
        for other, bit in self.bits.items():
            if mask & bit:
                more |= self.before[other]
        if more & self.bits[loop]:
            return False
        for node, known in self.before.items():
            if known & self.bits[loop]:
                self.before[node] = known | more
        return True

    def graph(self) -> Graph:
        """The changed graph."""
        new: dict[Value, Value] = {}
        started: set[Node] = set()
        for root in self.old.roots:
            stack: list[tuple[Node, Iterator[Value]]] = []
            self._enter(self._now(root), stack, started)
            while stack:
                node, rest = stack[-1]
                for value in rest:
                    if self._enter(value, stack, started):
                        break
                else:
                    stack.pop()
                    inputs = self._inputs(node)
                    if inputs != node.inputs or any(v in new for v in inputs):
                        made = node.with_inputs(tuple(new.get(v, v) for v in inputs))
                        new.update(zip(node.outputs, made.outputs))
        new.update({old: new.get(now := self._now(old), now) for old in self.instead})
        return self.old.replace_values(new)

    def _enter(self, value: Value, stack: list[tuple[Node, Iterator[Value]]], started: set[Node]) -> bool:
        node = value.producer
        if isinstance(node, Input) or node in started:
            return False
        started.add(node)
        stack.append((node, iter(self._inputs(node))))
        return True

    def _inputs(self, node: Node) -> tuple[Value, ...]:
        changed = self.first.get(node, {})
        return tuple(self._now(changed.get(i, value)) for i, value in enumerate(node.inputs))

    def _now(self, value: Value) -> Value:
        while value in self.instead:
            value = self.instead[value]
        return value
