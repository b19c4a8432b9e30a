"""Sums the gradients that several readers contribute to a value, some of which read only a part of it.

The gradient of a part is padded with zeros (``pad``). Fifty steps that each read a slice would give fifty tensors of
the size of the whole, added up::

    %3 = pad %1 {high=(0, 3), ...} : [2, 4]
    %4 = pad %2 {low=(0, 1), high=(0, 2), ...} : [2, 4]
    %5 = add %3, %4 : [2, 4]

Adjacent parts are concatenated, with zeros around all of them, or none::

    %3 = concat %1, %2 {axis=1} : [2, 2]
    %4 = pad %3 {high=(0, 2), ...} : [2, 4]

The sum is the same: each element comes from one part plus zeros. In addition, weight gradients from many steps that
share the weight become one contraction over all steps, if the operands are smaller than the results::

    %3 = matmul %h1, %d1 {transpose_a=true, ...} : [512, 512]
    %4 = matmul %h2, %d2 {transpose_a=true, ...} : [512, 512]
    %5 = add %3, %4 : [512, 512]

    %3 = concat %h1, %h2 {axis=0} : [64, 512]
    %4 = concat %d1, %d2 {axis=0} : [64, 512]
    %5 = matmul %3, %4 {transpose_a=true, ...} : [512, 512]

These are the same terms, added up within the contraction.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from dslc.compiler.ir.graph import Node, Phase, Value
from dslc.compiler.ir.op import OPS, Builder
from dslc.compiler.ops.attrs import bool_attr, ints_attr, number_attr


@dataclass(frozen=True, slots=True)
class _Part:
    """A padded term: zeros except for ``value`` at ``start`` along one axis. ``number``: its index among the terms."""

    value: Value
    axis: int
    start: int
    padding: Node
    number: int

    @property
    def stop(self) -> int:
        return self.start + self.value.type.ints[self.axis]


def total(terms: Sequence[Value]) -> Value:
    """The sum of tensors of one type, at least one, in their order except for merged parts. n log n in terms."""
    if len(terms) == 1:
        return terms[0]
    parts = [part for i, term in enumerate(terms) if (part := _part(term, i)) is not None]
    left: list[Value | None] = [*terms]
    for run in _runs(parts):
        first, *others = sorted(part.number for part in run)
        left[first] = _together(run)
        for number in others:
            left[number] = None
    result, *more = _multiplied([term for term in left if term is not None])
    for term in more:
        made = term.producer
        b = Builder().at(made, made.phase) if isinstance(made, Node) else Builder(phase=Phase.BACKWARD)
        result = b(OPS["add"], result, term)
    return result


def _multiplied(terms: Sequence[Value]) -> list[Value]:
    """The terms, with matching matmuls merged into one at the place of the first."""
    groups: dict[tuple[bool, bool], list[int]] = {}
    for number, term in enumerate(terms):
        node = term.producer
        if isinstance(node, Node) and node.op.name == "matmul" and all(v.type.rank == 2 for v in node.inputs):
            flags = bool_attr(node.attrs, "transpose_a"), bool_attr(node.attrs, "transpose_b")
            groups.setdefault(flags, []).append(number)
    result: list[Value | None] = [*terms]
    for (ta, tb), numbers in groups.items():
        nodes = [node for i in numbers if isinstance(node := terms[i].producer, Node)]
        read = sum(prod(v.type.ints) for node in nodes for v in node.inputs)
        if len(nodes) < 2 or read >= sum(prod(node.out.type.ints) for node in nodes):
            continue
        b = Builder().at(nodes[0], nodes[0].phase)
        left, right = ([node.inputs[i] for node in nodes] for i in (0, 1))
        both = (b(OPS["concat"], *left, axis=0 if ta else 1), b(OPS["concat"], *right, axis=1 if tb else 0))
        for i in numbers:
            result[i] = None
        result[numbers[0]] = b(OPS["matmul"], *both, transpose_a=ta, transpose_b=tb)
    return [term for term in result if term is not None]


def _part(term: Value, number: int) -> _Part | None:
    node = term.producer
    if not isinstance(node, Node) or node.op.name != "pad" or number_attr(node.attrs, "value") != 0:
        return None
    low, high, interior = (ints_attr(node.attrs, name) for name in ("low", "high", "interior"))
    axes = [axis for axis, padded in enumerate(zip(low, high)) if any(padded)]
    if len(axes) != 1 or any(interior) or not node.inputs[0].type.elements:
        return None
    return _Part(node.inputs[0], axes[0], low[axes[0]], node, number)


def _runs(parts: Sequence[_Part]) -> list[list[_Part]]:
    """Runs of two or more parts that are adjacent along their axis, without gaps or overlap. Of parts of the same
    place, the first one goes on the first run: each element is added up in the order of the terms."""
    ending: dict[tuple[int, int], deque[list[_Part]]] = {}  # axis and end -> the runs that end there
    for part in sorted(parts, key=lambda p: p.start):
        before = ending.get((part.axis, part.start))
        run = before.popleft() if before else []
        run.append(part)
        ending.setdefault((part.axis, part.stop), deque()).append(run)
    return [run for runs in ending.values() for run in runs if len(run) > 1]


def _together(run: Sequence[_Part]) -> Value:
    """The parts as one tensor, with the zeros that remain around it."""
    first, last = run[0], run[-1]
    b = Builder().at(first.padding, first.padding.phase)
    whole = b(OPS["concat"], *(part.value for part in run), axis=first.axis)
    low, high = (ints_attr(p.padding.attrs, side) for p, side in ((first, "low"), (last, "high")))
    if not any((*low, *high)):
        return whole
    return b(OPS["pad"], whole, low=low, high=high, interior=(0,) * len(low), value=0.0)
