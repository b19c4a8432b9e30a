"""Computes the gradient of a cross entropy together with the loss. One launch reads the logits; neither their maximum
nor the sums of exponentials go to memory.

Before::

    %1, %2, %3 = softmax_cross_entropy %x, %label {...} : f32[64], f32[64], f32[64]  # loss forward
    %4 = full {dtype=f32, shape=(64,), value=0.015625} : f32[64]  # loss backward
    %5 = softmax_cross_entropy_grad %x, %label, %2, %3, %4 {...} : f32[64, 10]  # loss backward

After::

    %1, %5 = softmax_cross_entropy_both %x, %label {..., dy=0.015625} : f32[64], f32[64, 10]  # loss backward

The gradient of the loss becomes an attribute if it is one constant, else an input; it must not depend on the loss.
Results keep their bits. GPU only; linear in nodes except for short walks.
"""

from __future__ import annotations

from typing import Final

from dslc.compiler.ir.graph import Graph, Node, Value, origins_of
from dslc.compiler.ops.loss.cross_entropy import softmax_cross_entropy_both as both
from dslc.compiler.passes.queries import needed_after
from dslc.compiler.passes.rebuild import reading

_MAX_MOVED: Final = 64  # nodes after the loss that its gradient may depend on, which move before it


def cross_entropy(graph: Graph) -> Graph:
    """The graph with such nodes. Deterministic and idempotent."""
    instead: dict[Value, Value] = {}
    for loss, grad in _pairs(graph).items():
        instead.update(zip((loss.outputs[0], grad.out), _loss_with_gradient(loss, grad).outputs))
    return reading(graph, instead)


def _pairs(graph: Graph) -> dict[Node, Node]:
    """A loss -> its gradient."""
    grads = [node for node in graph.nodes if node.op.name == "softmax_cross_entropy_grad"]
    if not grads:
        return {}
    position = {node: i for i, node in enumerate(graph.nodes)}
    readers, roots = graph.readers(), set(graph.roots)
    found: dict[Node, Node] = {}
    for grad in grads:
        loss = grad.inputs[2].producer
        if not isinstance(loss, Node) or loss.op.name != "softmax_cross_entropy" or loss in found:
            continue
        if loss.inputs != grad.inputs[:2] or loss.outputs[1:] != grad.inputs[2:4]:
            continue
        if any(v in roots or readers[v] != [grad] for v in loss.outputs[1:]):
            continue
        moved = needed_after(loss, [grad.inputs[4]], position, _MAX_MOVED)
        if dict(loss.attrs) == dict(grad.attrs) and moved is not None:
            found[loss] = grad
    return found


def _loss_with_gradient(loss: Node, grad: Node) -> Node:
    inputs, attrs, dy = loss.inputs, dict(loss.attrs), grad.inputs[4]
    made = dy.producer
    if isinstance(made, Node) and made.op.name == "full" and isinstance(made.attrs["value"], int | float):
        attrs["dy"] = float(made.attrs["value"])
    else:
        inputs = (*inputs, dy)
    types = (loss.types[0], grad.types[0])
    return grad.replaced(op=both, inputs=inputs, types=types, attrs=attrs, origins=origins_of((loss, grad)))
