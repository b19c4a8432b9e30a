"""Rebuilds a graph: nodes replaced in turn, values read instead of others, nodes that move; shared by passes.

A rewrite of single nodes is ``Graph.rewrite``. ``rebuilt`` is for a rule that must know what the values before it
became, ``reading`` for values that others replace, wherever their producers are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeVar

from dslc.compiler.ir.graph import Graph, Node, Value

_T = TypeVar("_T")


def chunks(groups: Iterable[Sequence[_T]], most: int) -> list[Sequence[_T]]:
    """The groups, cut into parts of at most ``most`` members each, in order."""
    return [group[i : i + most] for group in groups for i in range(0, len(group), most)]


def rebuilt(graph: Graph, rule: Callable[[Node, Mapping[Value, Value]], Node]) -> Graph:
    """The graph with each node replaced by ``rule(node, new)``, whose inputs are those of the rebuilt graph. ``new``:
    the values so far that replace others. The same graph if no node changes."""
    new: dict[Value, Value] = {}
    for node in graph.nodes:
        fresh = rule(node, new)
        if fresh is not node:
            new.update(zip(node.outputs, fresh.outputs))
    return graph.replace_values(new) if new else graph


def nodes_reading(nodes: Iterable[Node], new: dict[Value, Value]) -> list[Node]:
    """The nodes in their order, each reading the values that replace others in ``new``, to which the outputs of changed
    nodes are added."""
    found: list[Node] = []
    for node in nodes:
        found.append(node.reading(new))
        new.update((old, v) for old, v in zip(node.outputs, found[-1].outputs) if old is not v)
    return found


def reading(graph: Graph, instead: Mapping[Value, Value]) -> Graph:
    """The graph that reads the new values; their producers may come after consumers of the old ones."""
    new: dict[Value, Value] = {}
    for root in graph.roots:
        stack = [instead.get(root, root).producer]
        while stack:
            node = stack[-1]
            if not isinstance(node, Node) or all(v in new for v in node.outputs):
                stack.pop()
                continue
            inputs = [instead.get(v, v) for v in node.inputs]
            missing = [v.producer for v in inputs if isinstance(v.producer, Node) and v not in new]
            if missing:
                stack += reversed(missing)
                continue
            new.update(zip(node.outputs, node.with_inputs(tuple(new.get(v, v) for v in inputs)).outputs))
            stack.pop()
    return graph.replace_values({v: new.get(instead.get(v, v), instead.get(v, v)) for v in graph.roots})
