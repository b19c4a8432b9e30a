"""Joins a product with the pointwise node that reads it: what the passes of this folder share.

In these files ``product`` is a matrix product, a convolution or a gradient of one, ``reader`` the pointwise node that
alone reads its result, and ``joined`` the node ``contraction`` that stands for both.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from typing import TypeAlias

from dslc.compiler.ir.build import Build
from dslc.compiler.ir.graph import Graph, Node, Value
from dslc.compiler.ir.op import PRODUCT_KINDS
from dslc.compiler.ops.compound.contraction import with_epilogue
from dslc.compiler.passes.fuse.body import Body, is_pointwise
from dslc.compiler.passes.rebuild import reading

#: (product, reader, joined) -> whether to join the two.
JoinRule: TypeAlias = Callable[[Node, Node, Node], bool]


def always(product: Node, reader: Node, joined: Node) -> bool:
    """The rule that joins every pair."""
    return True


def join_readers(graph: Graph, product_of: Callable[[Node], Node | None], rule: JoinRule) -> Graph:
    """The graph in which products have their only reader as their epilogue. Deterministic and idempotent.

    ``product_of``: the product that a reader may be joined with, or None. A product that has another reader stays.
    """
    readers, roots = graph.readers(), set(graph.roots)

    instead: dict[Value, Value] = {}
    for node in graph.nodes:
        product = product_of(node)
        if product is not None and product.out not in roots and readers[product.out] == [node]:
            joined = _joined(product, node)
            if rule(product, node, joined):
                instead[node.out] = joined.out
    return reading(graph, instead)


def products_read(reader: Node) -> Iterator[Node]:
    """The products of a pointwise node's phase whose results it reads and which have the shape of its only result, each
    once, in the order of its inputs."""
    if not is_pointwise(reader) or len(reader.outputs) > 1:
        return
    for value in dict.fromkeys(reader.inputs):
        made = value.producer
        if not isinstance(made, Node) or made.op.kernel_kind not in PRODUCT_KINDS:
            continue
        if made.phase is reader.phase and value.type.shape == reader.types[0].shape:
            yield made


def measured_faster(
    build: Build, pair: tuple[Node, Node], joined: Node, providers: Collection[str] | None = None
) -> bool | None:
    """Whether the joined node is faster than the product and its reader, by measured times; None if one of the three
    was not measured. ``providers``: those that may compute the joined node; by default those of the build."""
    choices = build.choices
    if not choices.ways:
        return None
    one = choices.seconds(joined, build.providers if providers is None else providers)
    product, reader = (choices.seconds(node, build.providers) for node in pair)
    return None if one is None or product is None or reader is None else one < product + reader


def _joined(product: Node, reader: Node) -> Node:
    """The node that stands for both."""
    body = Body([product.out, *reader.inputs])
    body.add(reader, is_last=True)
    return with_epilogue(product, reader, body.inputs[1:], tuple(body.steps))
