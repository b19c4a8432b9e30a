"""Contractions with the pointwise node that reads them: the rewriter of the passes that make one node of both."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias

from dslc.compiler.ir.build import Build
from dslc.compiler.ir.graph import Graph, Node, Value
from dslc.compiler.ops.compound.contraction import with_epilogue
from dslc.compiler.passes.fuse.body import Body
from dslc.compiler.passes.rebuild import rebuilt

#: (product, the pointwise node that reads it, both as one node) -> whether to fuse them.
Takes: TypeAlias = Callable[[Node, Node, Node], bool]


def with_readers(graph: Graph, product_of: Callable[[Node], Node | None], takes: Takes) -> Graph:
    """The graph in which products have their only reader as their epilogue. Deterministic and idempotent.

    ``product_of``: the product that a node reads pointwise, or None. A product that has another reader stays.
    """
    readers, roots = graph.readers(), set(graph.roots)

    def rule(node: Node, new: Mapping[Value, Value]) -> Node:
        first = product_of(node)
        if first is None or first.out in roots or readers[first.out] != [node]:
            return node.reading(new)
        whole = with_reader(first, node, new)
        return whole if takes(first, node, whole) else node.reading(new)

    return rebuilt(graph, rule)


def not_measured_slower(build: Build, first: Node, last: Node, whole: Node) -> bool:
    """Whether measured times do not speak against one node: not all three are measured, or the one is faster."""
    if not build.choices.ways:
        return True
    one, product, pointwise = (build.choices.seconds(node, build.providers) for node in (whole, first, last))
    return one is None or product is None or pointwise is None or one < product + pointwise


def with_reader(first: Node, last: Node, new: Mapping[Value, Value]) -> Node:
    """A product and the pointwise node that reads it as one node; inputs are renamed by ``new``."""
    body = Body([first.out, *last.inputs])
    body.add(last)
    others = [new.get(v, v) for v in body.inputs[1:]]
    return with_epilogue(first.reading(new), last, others, tuple(body.steps))
