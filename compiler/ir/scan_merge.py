"""Makes one loop of several that compute the same with different results.

The gradient of a loop makes the loop again with more results (``scan_gradient.py``). Both have the same inputs, and
bodies with the same inputs; the loop with the results of all of them replaces them.
"""

from __future__ import annotations

from dslc.compiler.ir.graph import Body, Graph, Node, Value, order
from dslc.compiler.ir.scan import body_of, scan


def merged_loops(graph: Graph) -> Graph:
    """The graph with one loop for all that came from the same; the same object if there are none."""
    groups: dict[object, list[Node]] = {}
    for node in graph.nodes:
        if node.op is scan:
            groups.setdefault((node.inputs, body_of(node.attrs).inputs), []).append(node)
    several = {node: nodes for nodes in groups.values() if len(nodes) > 1 for node in nodes}
    if not several:
        return graph
    new: dict[Value, Value] = {}
    made: dict[Node, tuple[Node, list[Value]]] = {}
    for node in graph.nodes:
        nodes = several.get(node)
        if nodes is None:
            current = node.reading(new)
            new.update((old, v) for old, v in zip(node.outputs, current.outputs) if old is not v)
            continue
        if nodes[0] not in made:
            made[nodes[0]] = _joined(nodes[0].reading(new), nodes)
        whole, yields = made[nodes[0]]
        body = body_of(node.attrs)
        carries = len(body.updates)
        new.update(zip(node.outputs[:carries], whole.outputs[:carries]))
        for old, value in zip(node.outputs[carries:], body.outputs.values()):
            new[old] = whole.outputs[carries + yields.index(value)]
    return graph.replace_values(new)


def _joined(first: Node, nodes: list[Node]) -> tuple[Node, list[Value]]:
    """A loop with the results of all these, and the values of the body that they are."""
    body = body_of(first.attrs)
    yields = list(dict.fromkeys(v for node in nodes for v in body_of(node.attrs).outputs.values()))
    outputs = {f"y.{i}": v for i, v in enumerate(yields)}
    updates = body_of(nodes[-1].attrs).updates
    nodes_inside = order([*yields, *(v for _, v in updates)])
    whole = merged_loops(Graph(body.inputs, nodes_inside, outputs, updates))
    attrs = {**first.attrs, "loop": Body(whole)}
    types = scan.infer(first.input_types, attrs)
    return first.replaced(attrs=attrs, types=types), yields
