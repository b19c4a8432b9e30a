"""The graph of a model in evaluation, from that in training."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from dslc.compiler.ir.graph import Graph, Node, Value
from dslc.compiler.ir.op import OPS, Builder
from dslc.compiler.ir.scan import body_of, scan, with_body
from dslc.compiler.ops.compound.gradient import gradient


def evaluated(graph: Graph) -> Graph:
    """The graph without dropout, and with batchnorm reading its buffers."""
    apart = any(node.op is gradient for node in graph.nodes)

    def rule(node: Node) -> Sequence[Value] | Node | None:
        if node.op is scan:
            return _with_changed_body(node, evaluated)
        b = Builder().at(node)
        found = node.op.in_eval(node, b)
        if found is None or not apart:
            return found
        # not its input itself: a gradient with respect to the result is not one with respect to the input
        return [b(OPS["reshape"], v, shape=v.type.shape) if v in node.inputs else v for v in found]

    return graph.rewrite(rule)


def unassigned(graph: Graph, buffers: Mapping[Value, Value]) -> Graph:
    """The graph whose assignments to buffers are replaced by what these were before the step."""
    written = iter(graph.nodes)  # what an assignment gives may depend on one before it, so nodes count as they were

    def rule(node: Node) -> Sequence[Value] | Node | None:
        before = buffers.get(next(written).outputs[0])
        if before is not None:
            return (before,)
        return _with_changed_body(node, lambda body: unassigned(body, buffers)) if node.op is scan else None

    return graph.rewrite(rule)


def _with_changed_body(loop: Node, change: Callable[[Graph], Graph]) -> Node | None:
    """The loop with a changed body; None if nothing changes."""
    body = body_of(loop.attrs)
    changed = change(body)
    return None if changed is body else with_body(loop, changed)
