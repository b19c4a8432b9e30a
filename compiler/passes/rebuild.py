"""Rebuilds a graph; shared by passes.

- ``Graph.rewrite``: a rule replaces single nodes.
- ``reading``: values replace others, wherever their producers are. So a pass that merges nodes only says which result
  of a new node stands for which value. The new node reads values of the old graph; the order follows from the graph.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TypeVar

from dslc.compiler.ir.graph import Graph, Node, Value

_T = TypeVar("_T")


def chunks(groups: Iterable[Sequence[_T]], most: int) -> list[Sequence[_T]]:
    """The groups, cut into parts of at most ``most`` members each, in order."""
    return [group[i : i + most] for group in groups for i in range(0, len(group), most)]


def nodes_reading(nodes: Iterable[Node], new: dict[Value, Value]) -> list[Node]:
    """The nodes in their order, each reading the values that replace others in ``new``, to which the outputs of changed
    nodes are added."""
    found: list[Node] = []
    for node in nodes:
        found.append(node.reading(new))
        new.update((old, v) for old, v in zip(node.outputs, found[-1].outputs) if old is not v)
    return found


def reading(graph: Graph, instead: Mapping[Value, Value]) -> Graph:
    """The graph whose nodes and roots read other values instead of the keys; the same graph without keys.

    The new values are those of inputs, or of nodes that read values of the old graph, which are replaced in turn. Their
    producers may come after readers of the old ones. No new value may depend on the one that it replaces.
    """
    if not instead:
        return graph
    done: dict[Node, Node] = {}
    for root in graph.roots:
        stack = [instead.get(root, root).producer]
        while stack:
            node = stack[-1]
            if not isinstance(node, Node) or node in done:
                stack.pop()
                continue
            inputs = [instead.get(v, v) for v in node.inputs]
            missing = [v.producer for v in inputs if isinstance(v.producer, Node) and v.producer not in done]
            if missing:
                stack += reversed(missing)
                continue
            done[node] = node.with_inputs(tuple([_made_by(done, v) for v in inputs]))
            stack.pop()
    return graph.replace_values({root: _made_by(done, instead.get(root, root)) for root in graph.roots})


def _made_by(done: Mapping[Node, Node], value: Value) -> Value:
    """The value as an output of the node that stands for its producer."""
    made = value.producer
    return done[made].outputs[value.index] if isinstance(made, Node) else value
