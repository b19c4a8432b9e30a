"""Puts the nodes of the gradient in the place of each call of ``gradient``, once sizes are known.

Before::

    %2 = mul %1, %1 : [4]  # square m.nn:3:1 forward
    %3 = gradient %2, %1 : [4]  # force m.nn:4:1 forward

After::

    %2 = mul %1, %1 : [4]  # square m.nn:3:1 forward
    %3 = full {dtype=float, shape=(4,), value=1.0} : [4]  # force m.nn:4:1 gradient
    %4 = mul %3, %1 : [4]  # square m.nn:3:1 gradient
    %5 = mul %3, %1 : [4]  # square m.nn:3:1 gradient
    %6 = add %4, %5 : [4]  # square m.nn:3:1 gradient

Each node has the place of the operation whose gradient it computes, and so its dtype. ``gradient`` of a gradient reads
nodes that are in place already: an ordinary expression. An op whose gradient has no gradient is composed of others
(``Op.in_gradient``).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from dslc.compiler.ir.graph import Graph, Node, Phase, Value
from dslc.compiler.ir.op import OPS, Builder
from dslc.compiler.ir.scan import body_of, scan, with_body
from dslc.compiler.ir.scan_merge import merged_loops
from dslc.compiler.ir.scan_sums import continued_sums
from dslc.compiler.ops.compound.gradient import gradient
from dslc.compiler.passes.lower.gradient.differentiate import differentiate


def with_gradients(graph: Graph, missed: Callable[[Node], None] | None = None) -> Graph:
    """The graph without calls of ``gradient``; sizes are ints. Raises NotDifferentiable.

    ``missed`` is called with each call whose first tensor does not depend on the second; its gradient is 0.
    """

    def rule(node: Node) -> Sequence[Value] | Node | None:
        if node.op is scan:
            body = body_of(node.attrs)
            inner = with_gradients(body, missed)
            return None if inner is body else with_body(node, inner)
        if node.op is not gradient:
            return None
        y, x = node.inputs
        b = Builder().at(node, Phase.GRADIENT)
        seed = b(OPS["full"], value=1.0, dtype=y.type.dtype, shape=y.type.shape)
        found = differentiate(graph, y, [x], seed, Phase.GRADIENT).get(x)
        if found is None:
            if missed is not None:
                missed(node)
            found = b(OPS["full"], value=0.0, dtype=x.type.dtype, shape=x.type.shape)
        return (found,)

    return continued_sums(merged_loops(graph.rewrite(rule)))
