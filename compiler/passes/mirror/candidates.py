"""Decides which forward values to recompute in the backward pass rather than keep: proposals by bytes.

Echo's rule (Zheng et al. 2020; MXNet #18228): assume that every value that may be recomputed is, and walk the nodes
from the inputs. If keeping a node's results frees at least as many bytes of inputs that only this node reads, they are
kept::

    tanh(u + v), u and v of products      the sum replaces two tensors: kept; then tanh replaces the sum: kept
    tanh(x + y1), tanh(x + y2), ...       all sums depend on x: none is kept, no tanh either
    matmul(tanh(tanh(x)), w)              the first replaces x; its gradient reads it: kept, the second recomputed

Nodes that read the same tensor are also considered together. An input that the backward pass reads in any case counts
on neither side.

The result is the largest set that may be dropped; ``select.py`` selects from it the values that are worth their
time. A contraction may be recomputed, too, if it takes no longer than a pointwise op on two tensors of its size, e.g. a
1x1 convolution to many channels. So Echo's "never a convolution" is replaced here by the time model.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from dslc.compiler.cost import Machine, kernel_seconds, kind, seconds
from dslc.compiler.ir.graph import Graph, Kind, Node, Origin, Phase, Value
from dslc.compiler.ir.op import Pointwise
from dslc.compiler.ops.compound.fused_sums import fused_sums

MAX_STEPS: Final = 48  # nodes between two values in memory; a fused region holds 64
_LARGEST_TO_NEGLIGIBLE: Final = 1024  # the bytes of the largest value, divided by those of one that is kept in any case


@dataclass(frozen=True)
class Choice:
    """``dropped``: the values that are not kept for the backward pass."""

    dropped: frozenset[Value] = frozenset()


class Facts:
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


def propose(facts: Facts, allowed: frozenset[Value]) -> Choice:
    """Echo's rule applied to the values that are allowed to be dropped. Linear in nodes and reads."""
    return _Frontier(facts, allowed).run()


class _Frontier:
    """The walk. ``left``: how many nodes still need a value for recomputation."""

    def __init__(self, facts: Facts, allowed: frozenset[Value]) -> None:
        self.facts = facts
        self.allowed = allowed
        self.dropped: set[Value] = set()
        self.left: dict[Value, int] = {}
        self.freed: dict[Value, int] = {}  # of a dropped value: bytes that are kept only for it
        self.steps: dict[Value, int] = {}
        self.kept: set[Node] = set()  # nodes whose results are kept because of a group
        self.useful = self._useful()

    def _useful(self) -> list[Node]:
        """Nodes that may have to be recomputed, in order; counts ``left``."""
        found: list[Node] = []
        for node in reversed(self.facts.forward):
            outputs = [v for v in node.outputs if self.facts.counts(v)]
            if any(v in self.allowed or v in self.left for v in outputs) and self.facts.may(node):
                found.append(node)
                for value in dict.fromkeys(node.inputs):
                    self.left[value] = self.left.get(value, 0) + 1
        found.reverse()
        return found

    def run(self) -> Choice:
        facts = self.facts
        useful = set(self.useful)
        looked_at: set[Value] = set()
        for node in self.useful:
            for value in node.inputs:
                if self.left.get(value, 0) > 1 and self._is_new(value) and value not in looked_at:
                    looked_at.add(value)
                    self._together([r for r in facts.readers[value] if r in useful])
            if node in self.kept or self._must_keep(node) or self._freed_by([node]) >= self._taken_by([node]):
                self._keep(node)
            else:
                self._drop(node)
        return Choice(frozenset(self.dropped))

    def _is_new(self, value: Value) -> bool:
        return self.facts.is_new(value) and value not in self.dropped

    def _results(self, node: Node) -> list[Value]:
        """The node's results that are needed, recomputed or kept."""
        wanted = self.facts.wanted
        return [v for v in node.outputs if self.facts.counts(v) and (v in wanted or self.left.get(v, 0))]

    def _must_keep(self, node: Node) -> bool:
        results = self._results(node)
        if any(v in self.facts.wanted and v not in self.allowed for v in results):
            return True
        return self._steps_of(node) > MAX_STEPS

    def _steps_of(self, node: Node) -> int:
        """How many nodes lie between a node's results and memory."""
        return 1 + sum(self.steps[v] for v in node.inputs if v in self.dropped)

    def _taken_by(self, nodes: list[Node]) -> int:
        """Bytes of the nodes' results."""
        return sum(self.facts.bytes[v] for n in nodes for v in self._results(n))

    def _freed_by(self, nodes: list[Node]) -> int:
        """Bytes that are no longer kept if the nodes' results are."""
        reads: dict[Value, int] = {}
        for node in nodes:
            for value in dict.fromkeys(node.inputs):
                reads[value] = reads.get(value, 0) + 1
        freed = 0
        for value, count in reads.items():
            if value in self.facts.wanted or self.left.get(value, 0) > count:
                continue
            freed += (
                self.freed[value] if value in self.dropped else self.facts.bytes[value] if self._is_new(value) else 0
            )
        return freed

    def _together(self, nodes: list[Node]) -> None:
        """Keeps the results of nodes that read one tensor if that frees at least as many bytes as it takes."""
        if self._freed_by(nodes) >= self._taken_by(nodes):
            self.kept.update(nodes)

    def _keep(self, node: Node) -> None:
        """Keeps the node's results in memory: its inputs are needed once less, and so on upwards."""
        gone = [node]
        while gone:
            for value in dict.fromkeys(gone.pop().inputs):
                self.left[value] -= 1
                made = value.producer
                if not self.left[value] and value in self.dropped and value not in self.facts.wanted:
                    self.dropped.discard(value)
                    if isinstance(made, Node) and not any(v in self.dropped for v in made.outputs):
                        gone.append(made)

    def _drop(self, node: Node) -> None:
        freed = self._freed_by([node])
        steps = self._steps_of(node)
        for value in self._results(node):
            self.dropped.add(value)
            self.freed[value] = freed
            self.steps[value] = 0 if self.facts.stands_alone(value) else steps


def is_inline(reader: Node, value: Value) -> bool:
    """Whether a reader can compute a value inside its own kernel."""
    made = value.producer
    if not isinstance(made, Node) or not isinstance(made.op, Pointwise):
        return False
    if reader.op is fused_sums:
        return any(v.type.shape == value.type.shape for v in reader.inputs)
    return isinstance(reader.op, Pointwise) and reader.types[0].shape == value.type.shape
