"""The gradient of one value for others, as nodes.

Reverse accumulation over the nodes between them. The gradients that several consumers contribute to a value are added
in consumer order, last first, so the sum depends only on the graph. If consumers read disjoint parts of a value, each
once, their gradients are concatenated instead of padded with zeros and added (``sum_gradients.py``).
"""

from __future__ import annotations

from collections.abc import Sequence

from dslc.compiler.ir.graph import Graph, Node, Phase, Value, order
from dslc.compiler.ir.op import OPS, Builder
from dslc.compiler.ir.pull_back import pull_back
from dslc.compiler.passes.lower.gradient.sum_gradients import total


def differentiate(
    graph: Graph, loss: Value, wrt: Sequence[Value], seed: Value | None = None, phase: Phase = Phase.BACKWARD
) -> dict[Value, Value]:
    """The gradient of ``loss`` for each value of ``wrt`` that it depends on, of the same type, by nodes of ``phase``.

    ``seed`` has the type of the loss, and is the gradient of what is differentiated with respect to it; without it the
    loss is a float of rank 0. Omits values on which the loss does not depend, or only through ``stop_gradient`` or
    integers. Raises DslcError E0507 if the loss depends on a value through an op without a gradient.
    """
    seed = _one(loss) if seed is None else seed
    assert loss.type == seed.type and loss.type.dtype.is_float, f"the loss is {loss.type}"
    reached = set(wrt)  # values that depend on one of wrt through floats
    between: list[Node] = []
    for node in order([loss]):
        if any(v in reached for v in node.inputs):
            between.append(node)
            reached.update(v for v in node.outputs if v.type.dtype.is_float)
    if loss not in reached:
        return {}
    terms = {loss: [seed]}  # summands of each value's gradient
    pull_back(between, terms, reached, total, phase)
    return {v: total(terms[v]) for v in wrt if v in terms}


def _one(loss: Value) -> Value:
    """The seed: the gradient of the loss with respect to itself."""
    at = loss.producer
    b = Builder(name=at.name, span=at.span, phase=Phase.BACKWARD)
    return b(OPS["full"], value=1.0, dtype=loss.type.dtype, shape=())
