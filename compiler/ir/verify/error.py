"""The error of the verifier, which shows the node and its neighbours."""

from __future__ import annotations

from dslc.compiler.ir.graph import Graph, Node
from dslc.compiler.ir.text import format_node, numbering

_NEIGHBOURS = 5


class VerifyError(Exception):
    """The compiler produced an unsound program: our error, not the user's."""


def fault_at(graph: Graph, node: Node | None, why: str) -> VerifyError:
    """The error with the lines of the node and its neighbours."""
    if node is None or node not in graph.nodes:
        return VerifyError(why)
    at = graph.nodes.index(node)
    number = numbering(graph)
    lines = []
    for i in range(max(0, at - _NEIGHBOURS), min(len(graph.nodes), at + _NEIGHBOURS + 1)):
        lines.append(("> " if i == at else "  ") + format_node(graph.nodes[i], number))
    return VerifyError(f"{node.op.name} {node.name}: {why}\n" + "\n".join(lines))
