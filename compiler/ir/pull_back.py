"""Reverse accumulation over nodes: the loop of the autodiff pass and of ops that are composed of others."""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence
from functools import partial, reduce

from dslc.base.errors import DslcError
from dslc.compiler.ir.graph import Attr, Node, Phase, Value
from dslc.compiler.ir.op import OPS, Builder, NoGradient, Op
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
    phase: Phase = Phase.BACKWARD,
) -> None:
    """Adds to ``terms``, the summands of each value's gradient, those that the nodes contribute, last node first.

    ``nodes`` are in topological order. ``reached``: the values whose gradients are wanted. ``total`` adds summands.
    ``phase``: of the nodes of the gradient; those of ``GRADIENT`` may be differentiated again. Raises
    NotDifferentiable.
    """
    for node in reversed(nodes):
        dys = [total(terms[v]) if v in terms else None for v in node.outputs]
        if all(dy is None for dy in dys):
            continue
        builder = Builder().at(node, phase)
        try:
            found = _gradients(node, dys, builder, total)
        except NoGradient as why:
            raise NotDifferentiable(node, why) from why
        assert len(found) == len(node.inputs), f"{node.op.name} gives {len(found)} gradients"
        for value, gradient in zip(node.inputs, found):
            if gradient is not None and value in reached and value.type.dtype.is_float:
                terms.setdefault(value, []).append(_sum_to(builder, gradient, value.type))


def _gradients(
    node: Node, dys: Sequence[Value | None], b: Builder, total: Callable[[Sequence[Value]], Value]
) -> Sequence[Value | None]:
    if b.phase is Phase.GRADIENT:
        recorder = Recorder().at(node, b.phase)
        values = node.op.in_gradient(node, recorder)
        if values is not None:
            return through(recorder.made, values, node.inputs, dys, b)
    return node.op.summed_grad(node, dys, b, total)


def through(
    nodes: Sequence[Node],
    values: Sequence[Value | None],
    inputs: Sequence[Value],
    dys: Sequence[Value | None],
    b: Builder,
) -> list[Value | None]:
    """The gradients of the ``inputs`` of nodes that compute ``values``, from those of the values."""
    terms: dict[Value, list[Value]] = {}
    for value, dy in zip(values, dys, strict=True):
        if dy is not None:
            if value is None:
                raise NoGradient("no gradient flows through its statistics")
            terms.setdefault(value, []).append(dy)
    reached = {*inputs, *(value for node in nodes for value in node.outputs)}
    total = partial(reduce, lambda x, y: b(OPS["add"], x, y))
    pull_back(nodes, terms, reached, total, b.phase)
    return [total(terms[x]) if x in terms else None for x in inputs]


class Recorder(Builder):
    """A builder that remembers its nodes, in order."""

    def __init__(self) -> None:
        super().__init__()
        self.made: list[Node] = []

    def at(self, node: Node, phase: Phase | None = None) -> Recorder:
        found = Recorder()
        found.name, found.span, found.phase = node.name, node.span, phase or self.phase
        return found

    def node(self, op: Op, *inputs: Value, **attrs: Attr) -> Node:
        self.made.append(super().node(op, *inputs, **attrs))
        return self.made[-1]


def _sum_to(b: Builder, gradient: Value, type: TensorType) -> Value:
    """Sums the gradient over the axes along which the value was broadcast."""
    if gradient.type.shape == type.shape:
        return gradient
    return b(OPS["sum_to"], gradient, shape=type.shape)
