"""Pointwise ops between a transpose and its inverse: they run on the tensor as it was before both.

Before::

    %1 = transpose %0 {perm=(0, 2, 3, 1)} : f32[8, 14, 14, 64]
    %2 = relu %1 : f32[8, 14, 14, 64]
    %3 = transpose %2 {perm=(0, 3, 1, 2)} : f32[8, 64, 14, 14]

After::

    %1 = relu %0 : f32[8, 64, 14, 14]

Other operands are transposed in the same way, have one element, or are vectors along one axis. If something
else reads the result of such an op, the op is computed twice, from at most two tensors: that moves no more bytes than
the transpose. Part of ``simplify``; results keep their bits.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Final

from dslc.compiler.ir.graph import Graph, Node, Value
from dslc.compiler.ir.op import OPS, Builder
from dslc.compiler.passes.lower.simplify.simplify_rules import is_pointwise

_MAX_DEPTH: Final = 8  # of the chain between the transposes
_MAX_SOURCES: Final = 2  # of a chain that is computed twice


def untransposed(graph: Graph) -> Graph:
    """The graph without such transposes; the same object if there are none. Linear in nodes."""
    if not any(node.op.name == "transpose" and is_pointwise(node.inputs[0]) for node in graph.nodes):
        return graph
    reads = Counter(value for node in graph.nodes for value in dict.fromkeys(node.inputs))
    reads.update(graph.roots)
    old = iter(graph.nodes)

    def rule(node: Node) -> Value | None:
        before = next(old)
        found = None
        if node.op.name == "transpose" and is_pointwise(node.inputs[0]):
            perm = node.attrs["perm"]
            assert isinstance(perm, tuple)
            turn = _Turn(tuple(int(str(axis)) for axis in perm), reads)
            found = turn.found(node.inputs[0], _MAX_DEPTH)
            found = None if turn.again and len(turn.sources) > _MAX_SOURCES else found
        for was, value in zip(before.outputs, node.outputs if found is None else (found,)):
            reads[value] = max(reads[value], reads[was])
        return found

    return graph.rewrite(lambda node: None if (found := rule(node)) is None else (found,))


class _Turn:
    """The search for ``transpose(value, perm)`` without a transpose. ``sources``: the tensors that it reads; ``again``:
    whether something else reads one of the results on the way."""

    def __init__(self, perm: tuple[int, ...], reads: Mapping[Value, int]) -> None:
        self.perm, self.reads = perm, reads
        self.sources: set[Value] = set()
        self.again = False

    def found(self, value: Value, depth: int) -> Value | None:
        made, rank, shape = value.producer, len(self.perm), value.type.ints
        if not shape:
            return value
        if isinstance(made, Node) and made.op.name == "transpose" and len(shape) == rank:
            own = made.attrs["perm"]
            assert isinstance(own, tuple)
            self.sources.add(made.inputs[0])
            return made.inputs[0] if all(own[axis] == i for i, axis in enumerate(self.perm)) else None
        if sum(size != 1 for size in shape) <= 1:
            turned = tuple(((1,) * (rank - len(shape)) + shape)[axis] for axis in self.perm)
            builder = Builder().at(made, made.phase) if isinstance(made, Node) else Builder()
            return value if turned == shape else builder(OPS["reshape"], value, shape=turned)
        if depth == 0 or not isinstance(made, Node) or not is_pointwise(value) or len(shape) != rank:
            return None
        self.again |= self.reads[value] > 1
        inputs = [self.found(each, depth - 1) for each in made.inputs]
        known = [each for each in inputs if each is not None]
        return None if len(known) < len(inputs) else Builder().at(made, made.phase)(made.op, *known, **made.attrs)
