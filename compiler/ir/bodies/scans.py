"""The node of several loops at run time that have the same step, and none of which needs another's results.

Its attributes are those of ``scan``, but ``reverse`` is a tuple of each loop's. Its inputs are those of the first loop,
then those of the next, and so are its outputs. The pass ``joined_loops`` makes it; one kernel runs all of its loops at
once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from dslc.compiler.ir.graph import Attr, Attrs, Node, Value, origins_of
from dslc.compiler.ir.op import Builder, Cost, Mismatch, NoGradient, Op
from dslc.compiler.ir.scan import body_of, scan
from dslc.compiler.ir.types import TensorType

if TYPE_CHECKING:
    from dslc.compiler.ir.op import Array


class Scans(Op):
    """scans(...): what its loops compute. A pass makes it, so the table of ops does not list it."""

    name = "scans"

    def infer(self, types: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
        loops = list(_loops(types, attrs))
        if not loops or len(types) != len(loops) * len(body_of(attrs).inputs):
            raise Mismatch(f"{len(loops)} loops are given {len(types)} inputs", "the inputs of each")
        return tuple(type for own, some in loops for type in scan.infer(some, own))

    def grad(self, node: Node, dys: Sequence[Value | None], b: Builder) -> Sequence[Value | None]:
        raise NoGradient("loops are joined after differentiation")

    def meaning(self, xs: Sequence[Array], attrs: Mapping[str, Any]) -> Sequence[Array]:
        return [y for own, some in _loops(xs, attrs) for y in scan.meaning(some, own)]

    def cost(self, node: Node) -> Cost:
        costs = [scan.cost(loop) for loop in loops_of(node)]
        return Cost(sum(c.flops for c in costs), sum(c.bytes for c in costs))


def _loops(xs: Sequence[Any], attrs: Mapping[str, Any]) -> Iterator[tuple[dict[str, Any], Sequence[Any]]]:
    """The attributes and the operands of each loop."""
    count = len(body_of(attrs).inputs)
    for number, reverse in enumerate(attrs["reverse"]):
        yield {**attrs, "reverse": reverse}, xs[number * count : (number + 1) * count]


def loops_of(node: Node) -> list[Node]:
    """The loops that a ``scans`` stands for, in order. Their outputs are values of their own."""
    results = len(node.types) // len(list(_loops(node.inputs, node.attrs)))
    return [
        Node(
            scan, tuple(inputs), node.types[number * results : (number + 1) * results], own,
            name=node.name, span=node.span, phase=node.phase,
        )
        for number, (own, inputs) in enumerate(_loops(node.inputs, node.attrs))
    ]  # fmt: skip


def joined(loops: Sequence[Node]) -> Node:
    """One node for loops of one phase and with equal steps: that of the first counts."""
    first, more = loops[0], len(loops) - 1
    attrs: dict[str, Attr] = {**first.attrs, "reverse": tuple(bool(loop.attrs["reverse"]) for loop in loops)}
    return Node(
        scans, tuple(v for loop in loops for v in loop.inputs), tuple(t for loop in loops for t in loop.types), attrs,
        name=f"{first.name} and {more} more", span=first.span, phase=first.phase, origins=origins_of(loops),
    )  # fmt: skip


scans = Scans()
