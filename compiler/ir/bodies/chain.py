"""The node of a chain: nodes that follow one another and that one kernel computes, stage by stage.

Its attribute ``body`` holds them as a graph of its own, whose inputs are those of the node, and whose outputs are the
node's. The pass ``chains`` makes it. Tables that the body changes in place may be changed in place by the node, too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from dslc.compiler.ir.graph import Attr, Attrs, Body, Graph, Input, Node, Value
from dslc.compiler.ir.op import Builder, Cost, Mismatch, NoGradient, Op
from dslc.compiler.ir.types import DType, TensorType

if TYPE_CHECKING:
    from dslc.compiler.ir.op import Array


class Chain(Op):
    """chain(...): what the nodes of its body compute. A pass makes it, so the table of ops does not list it."""

    name = "chain"

    def infer(self, types: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
        graph = chained(attrs)
        if [source.value.type for source in graph.inputs] != list(types):
            raise Mismatch(f"a chain is given {', '.join(map(str, types))}", "the inputs of its body")
        return tuple(value.type for value in graph.outputs.values())

    def grad(self, node: Node, dys: Sequence[Value | None], b: Builder) -> Sequence[Value | None]:
        raise NoGradient("chains are made after differentiation")

    def meaning(self, xs: Sequence[Array], attrs: Mapping[str, Any]) -> Sequence[Array]:
        graph = chained(attrs)
        known = dict(zip((source.value for source in graph.inputs), xs, strict=True))
        for node in graph.nodes:
            plain = {name: _plain(value) for name, value in node.attrs.items()}
            known.update(zip(node.outputs, node.op.meaning([known[v] for v in node.inputs], plain)))
        return [known[value] for value in graph.outputs.values()]

    def cost(self, node: Node) -> Cost:
        costs = [inner.op.cost(inner) for inner in chained(node.attrs).nodes if not inner.op.view]
        return Cost(sum(c.flops for c in costs), sum(c.bytes for c in costs))

    def in_place(self, node: Node) -> tuple[tuple[int, int], ...]:
        """Of each table that one node of the body reads and may change in place: the places of both."""
        graph = chained(node.attrs)
        source = {each.value: i for i, each in enumerate(graph.inputs)}
        readers = graph.readers()
        found = []
        for o, value in enumerate(graph.outputs.values()):
            made = value.producer
            if isinstance(made, Input):
                continue
            for i, old in enumerate(made.inputs):
                if old in source and (i, value.index) in made.op.in_place(made) and readers[old] == [made]:
                    found.append((source[old], o))
        return tuple(found)


def chained(attrs: Mapping[str, Any]) -> Graph:
    """The body of a chain from its node's attributes."""
    body = attrs["body"]
    assert isinstance(body, Body)
    return body.graph


def _plain(attr: Attr) -> object:
    """An attribute as ``meaning`` takes it: dtypes by name."""
    if isinstance(attr, tuple):
        return [_plain(each) for each in attr]
    return attr.value if isinstance(attr, DType) else attr


chain = Chain()
