"""``together``: several nodes of one op, none of which needs another's result, as one node. A pass makes them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from dslc.compiler.ir.graph import Attr, Attrs, Node, Value, origins_of
from dslc.compiler.ir.op import OPS, Builder, Cost, Mismatch, NoGradient, Op, register
from dslc.compiler.ir.types import TensorType
from dslc.compiler.ops.attrs import int_tuple, str_attr

if TYPE_CHECKING:
    from dslc.compiler.ir.op import Array

MAX_MEMBERS: Final = 32  # per node


class Together(Op):
    """together(x...): the results of up to 32 nodes of the op that the attribute ``member`` names, node by node.

    ``reads``: how many inputs each of them has; ``each``: its attributes, as pairs.
    """

    name = "together"

    def infer(self, types: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
        found: list[TensorType] = []
        for own, some in _members(types, attrs):
            found += OPS[str_attr(attrs, "member")].infer(some, own)
        if not 1 <= (count := len(int_tuple(attrs, "reads"))) <= MAX_MEMBERS:
            raise Mismatch(f"{count} nodes", f"1 to {MAX_MEMBERS}")
        return tuple(found)

    def grad(self, node: Node, dys: Sequence[Value | None], b: Builder) -> Sequence[Value | None]:
        raise NoGradient("nodes are put together after differentiation")

    def meaning(self, xs: Sequence[Array], attrs: Mapping[str, Any]) -> Sequence[Array]:
        return [y for own, some in _members(xs, attrs) for y in OPS[attrs["member"]].meaning(some, own)]

    def cost(self, node: Node) -> Cost:
        costs = [member.op.cost(member) for member in members(node)]
        return Cost(sum(c.flops for c in costs), sum(c.bytes for c in costs))


def _members(xs: Sequence[Any], attrs: Mapping[str, Any]) -> Iterator[tuple[dict[str, Any], Sequence[Any]]]:
    """The attributes and the operands of each member."""
    first = 0
    for count, each in zip(attrs["reads"], attrs["each"], strict=True):
        yield dict(each), xs[first : first + count]
        first += count
    assert first == len(xs), f"{len(xs)} operands of {first}"


def members(node: Node) -> list[Node]:
    """The nodes that a ``together`` stands for, in the order of its outputs. Their outputs are values of their own."""
    op = OPS[str_attr(node.attrs, "member")]
    types = [op.infer([value.type for value in inputs], own) for own, inputs in _members(node.inputs, node.attrs)]
    return [
        Node(op, tuple(inputs), tuple(own_types), own, name=node.name, span=node.span, phase=node.phase)
        for (own, inputs), own_types in zip(_members(node.inputs, node.attrs), types)
    ]


def grouped(nodes: Sequence[Node]) -> Node:
    """One node for nodes of one op and phase."""
    first, more = nodes[0], len(nodes) - 1
    each: tuple[Attr, ...] = tuple(tuple(sorted(node.attrs.items())) for node in nodes)
    attrs: dict[str, Attr] = {"member": first.op.name, "reads": tuple(len(node.inputs) for node in nodes), "each": each}
    return Node(
        together, tuple(v for node in nodes for v in node.inputs), tuple(type for node in nodes for type in node.types),
        attrs,
        name=f"{first.name} and {more} more", span=first.span, phase=first.phase, origins=origins_of(nodes),
    )  # fmt: skip


together = register(Together())
