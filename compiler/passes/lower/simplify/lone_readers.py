"""Rewrites pairs of nodes: one, and the node that alone reads its result. Shared by parts of ``simplify``."""

from __future__ import annotations

from collections.abc import Callable

from dslc.compiler.ir.graph import Graph, Node, Value
from dslc.compiler.passes.queries import has_one_reader


def join_lone_readers(
    graph: Graph, producer_of: Callable[[Node], Node | None], joined: Callable[[Node, Node], Value]
) -> Graph:
    """The graph without such pairs; the same object if there are none. Linear in nodes.

    ``producer_of``: the producer of a node's first input, if a rule applies to both; None for other nodes.
    ``joined``: from the producer and its reader, what replaces the reader's result.
    """
    found = [node for node in graph.nodes if producer_of(node) is not None]
    if not found:
        return graph
    is_alone = has_one_reader(graph)
    lone = {node for node in found if is_alone(node.inputs[0])}
    if not lone:
        return graph
    old = iter(graph.nodes)

    def rule(node: Node) -> tuple[Value, ...] | None:
        made = producer_of(node) if next(old) in lone else None
        return None if made is None else (joined(made, node),)

    return graph.rewrite(rule)
