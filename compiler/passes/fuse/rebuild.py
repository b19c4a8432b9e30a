"""Graphs rebuilt after fusion: producers inside their readers, values replaced, nodes that move, groups to merge."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeVar

from dslc.compiler.ir.graph import Graph, Node, Value, origins_of
from dslc.compiler.ir.op import OPS, Op
from dslc.compiler.ops.attrs import int_tuple
from dslc.compiler.ops.compound.fused import fused, steps
from dslc.compiler.ops.compound.fused_rows import fused_rows, is_core
from dslc.compiler.ops.compound.fused_sums import fused_sums
from dslc.compiler.passes.fuse.body import Body

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


def inlined(graph: Graph, chosen: Mapping[Node, Sequence[Node]]) -> Graph:
    """The graph in which nodes compute some of their inputs themselves: a node -> the producers of these inputs."""

    def rule(node: Node, new: Mapping[Value, Value]) -> Node:
        return with_producers(node, chosen[node], new) if node in chosen else node.reading(new)

    return rebuilt(graph, rule)


def with_producers(node: Node, producers: Sequence[Node], new: Mapping[Value, Value]) -> Node:
    """Returns ``node`` with the bodies of producers of its inputs placed before its own; inputs are renamed by
    ``new``."""
    read = [v if v.producer in producers else new.get(v, v) for v in node.inputs]
    inputs = [v for v in read if v.producer not in producers]
    body = Body([*inputs, *(new.get(v, v) for producer in producers for v in producer.inputs)])
    for producer in producers:
        body.add(producer, [new.get(v, v) for v in producer.inputs])
    place = body.add(node, read)
    origins, attrs = origins_of((*producers, node)), {"body": tuple(body.steps)}
    if node.op is not fused_sums:
        op = fused_rows if any(is_core(OPS[name]) for name, _, _ in steps(attrs)) else fused
        return node.replaced(op=op, inputs=body.inputs, attrs=attrs, origins=origins)
    own = {name: tuple(map(place, int_tuple(node.attrs, name))) for name in ("summed", "kept") if name in node.attrs}
    return node.replaced(inputs=body.inputs, attrs={**node.attrs, **attrs, **own}, origins=origins)


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


def needed_after(
    first: Node, values: Iterable[Value], position: Mapping[Node, int], most: int, refused: Op | None = None
) -> tuple[Node, ...] | None:
    """The nodes after ``first`` that the values depend on, in order; None if they depend on ``first``, are more than
    ``most`` or include the op ``refused``."""
    found: set[Node] = set()
    stack = [v.producer for v in values]
    while stack:
        node = stack.pop()
        if not isinstance(node, Node) or node in found or position[node] < position[first]:
            continue
        if node is first or node.op is refused or len(found) == most:
            return None
        found.add(node)
        stack += [v.producer for v in node.inputs]
    return tuple(sorted(found, key=position.__getitem__))
