"""Questions about a training step: what the backward pass reads of the forward pass, and which nodes may run again."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Final

from dslc.compiler.cost import Machine, kernel_seconds, kind, seconds
from dslc.compiler.ir.graph import Graph, Kind, Node, Origin, Phase, Value
from dslc.compiler.ir.op import Pointwise
from dslc.compiler.ops.compound.fused_sums import fused_sums

_LARGEST_TO_NEGLIGIBLE: Final = 1024  # the bytes of the largest value, divided by those of one that is kept in any case


class TrainingGraph:
    """Analysis of a training graph: readers, values that the backward pass reads, cheap nodes."""

    def __init__(
        self,
        graph: Graph,
        words: Mapping[Origin, str] | None = None,
        *,
        extra_outputs: bool = False,
        recomputes_inputs: bool = False,
        machine: Machine | None = None,
    ) -> None:
        """``words``: ``always`` or ``never`` for nodes that the source marks. ``extra_outputs``: backward kernels may
        store recomputed values. ``recomputes_inputs``: later fusion passes may recompute inputs on their own,
        independently of this choice. ``machine``: time model that decides which contractions are cheap; without it none
        is."""
        self.graph = graph
        self.recomputes_inputs = recomputes_inputs
        self.machine = machine
        self.extra_outputs = extra_outputs
        self.words = words or {}
        self.readers = graph.readers()
        self.kept_in_any_case = {i.value for i in graph.inputs} | set(graph.roots)
        self.bytes = {
            v: v.type.bytes for v in (*(i.value for i in graph.inputs), *(v for n in graph.nodes for v in n.outputs))
        }
        self.small = max(self.bytes.values(), default=0) // _LARGEST_TO_NEGLIGIBLE
        self.forward = [n for n in graph.nodes if n.phase is Phase.FORWARD]

    @cached_property
    def wanted(self) -> dict[Value, list[Node]]:
        """Forward values that take memory -> the nodes of later phases that read them."""
        found: dict[Value, list[Node]] = {}
        for node in self.forward:
            for value in node.outputs:
                later = [r for r in self.readers.get(value, ()) if r.phase is not Phase.FORWARD]
                if later and self.counts(value):
                    found[value] = later
        return found

    def counts(self, value: Value) -> bool:
        """Whether keeping a value takes memory that is not negligible."""
        return self.bytes[value] > self.small and value not in self.kept_in_any_case

    def stands_alone(self, value: Value) -> bool:
        """Whether a dropped value must return to memory: not every reader can compute it inline."""
        return any(not is_inline(r, value) for r in self.wanted.get(value, ()))

    def may(self, node: Node) -> bool:
        """Whether a node may be recomputed."""
        return (node.op.mirror or self._cheap(node)) and self.words.get((node.name, node.span)) != "never"

    def _cheap(self, node: Node) -> bool:
        """Whether a node is a contraction that takes no longer than a pointwise op on two tensors like its result."""
        if self.machine is None or kind(node) != "product":
            return False
        return seconds(node, self.machine) <= kernel_seconds("elements", 3 * node.types[0].bytes, 0, self.machine)

    def is_new(self, value: Value) -> bool:
        """Whether a value is kept only because other values are recomputed from it."""
        return self.counts(value) and value not in self.wanted

    @cached_property
    def always(self) -> frozenset[Value]:
        """Wanted values that the source asks to recompute."""
        return frozenset(v for v in self.candidates if self.words.get((v.producer.name, v.producer.span)) == "always")

    @cached_property
    def candidates(self) -> frozenset[Value]:
        """Wanted values that may be recomputed."""
        wanted = (v for v in self.wanted if v not in self._of_weights)
        return frozenset(v for v in wanted if isinstance(v.producer, Node) and self.may(v.producer))

    @cached_property
    def _of_weights(self) -> frozenset[Value]:
        """Values that depend only on parameters, e.g. casts of them, which a GPU computes in one launch for all
        readers."""
        found: set[Value] = set()
        if self.recomputes_inputs:
            found.update(i.value for i in self.graph.inputs if i.kind is Kind.PARAM)
            for node in self.forward:
                if node.inputs and found.issuperset(node.inputs):
                    found.update(node.outputs)
        return frozenset(found)


def is_inline(reader: Node, value: Value) -> bool:
    """Whether a reader can compute a value inside its own kernel."""
    made = value.producer
    if not isinstance(made, Node) or not isinstance(made.op, Pointwise):
        return False
    if reader.op is fused_sums:
        return any(v.type.shape == value.type.shape for v in reader.inputs)
    return isinstance(reader.op, Pointwise) and reader.types[0].shape == value.type.shape
