"""Reverse accumulation over nodes: the loop of the autodiff pass and of ops that are composed of others."""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence

from dslc.base.errors import DslcError
from dslc.compiler.ir.graph import Node, Phase, Value
from dslc.compiler.ir.op import OPS, Builder, NoGradient
from dslc.compiler.ir.types import TensorType


class NotDifferentiable(DslcError):
    """E0507, at the ``span`` of a node."""

    def __init__(self, node: Node, why: NoGradient) -> None:
        self.span = node.span
        super().__init__(
            "E0507",
            f"`{node.op.name}` has no gradient: {why}",
            place=str(node.span) if node.span else node.name,
            help="put `stop_gradient(...)` around the part that needs no gradient",
        )


def pull_back(
    nodes: Sequence[Node],
    terms: dict[Value, list[Value]],
    reached: Container[Value],
    total: Callable[[Sequence[Value]], Value],
) -> None:
    """Adds to ``terms``, the summands of each value's gradient, those that the nodes contribute, last node first.

    ``nodes`` are in topological order. ``reached``: the values whose gradients are wanted. ``total`` adds summands.
    Raises NotDifferentiable.
    """
    for node in reversed(nodes):
        dys = [total(terms[v]) if v in terms else None for v in node.outputs]
        if all(dy is None for dy in dys):
            continue
        builder = Builder().at(node, Phase.BACKWARD)
        try:
            found = node.op.grad(node, dys, builder)
        except NoGradient as why:
            raise NotDifferentiable(node, why) from why
        assert len(found) == len(node.inputs), f"{node.op.name} gives {len(found)} gradients"
        for value, gradient in zip(node.inputs, found):
            if gradient is not None and value in reached and value.type.dtype.is_float:
                terms.setdefault(value, []).append(_sum_to(builder, gradient, value.type))


def _sum_to(b: Builder, gradient: Value, type: TensorType) -> Value:
    """Sums the gradient over the axes along which the value was broadcast."""
    if gradient.type.shape == type.shape:
        return gradient
    return b(OPS["sum_to"], gradient, shape=type.shape)
