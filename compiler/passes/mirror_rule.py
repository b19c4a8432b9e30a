"""Which values of the forward pass to compute again in the backward pass rather than to keep: proposals by bytes.

Echo's rule (Zheng et al. 2020; MXNet #18228): suppose that everything is computed again that may be, and go from the
inputs on. Where keeping a node's results would free at least as many bytes of what it alone reads, they are kept::

    tanh(u + v), u and v of products      the sum replaces two tensors: kept; then tanh replaces the sum: kept
    tanh(x + y1), tanh(x + y2), ...       all sums hang on x: none is kept, no tanh either
    matmul(tanh(tanh(x)), w)              the first replaces x; its gradient reads it: kept, the second computed again

Nodes that read the same tensor are also looked at together. An input that the backward pass needs for itself counts on
neither side: it is there anyway.

What comes out is the most that may be dropped; ``mirror_choice.py`` picks from it what is worth its time. A product
may be computed again, too, where that takes no longer than a pointwise op of two tensors of its size, as a 1x1
convolution to many channels; so Echo's words "never a convolution" are a matter of the model here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from dslc.compiler.cost import Machine, kernel_seconds, kind, seconds
from dslc.compiler.ir.graph import Graph, Kind, Node, Origin, Phase, Value
from dslc.compiler.ir.op import Pointwise

MAX_STEPS: Final = 48  # nodes between two values in memory; a fused region holds 64
_SMALL: Final = 1024  # a value of this part of the largest one's bytes is kept: it is not worth looking at


@dataclass(frozen=True)
class Choice:
    """``dropped``: the values that are not kept for the backward pass."""

    dropped: frozenset[Value] = frozenset()


class Facts:
    """A training graph as the rule sees it: readers, the values that the backward pass reads, what is cheap."""

    def __init__(
        self,
        graph: Graph,
        words: Mapping[Origin, str] | None = None,
        *,
        beside: bool = False,
        absorbs: bool = False,
        machine: Machine | None = None,
    ) -> None:
        """``words``: ``always`` or ``never`` for the nodes of which the source says so. ``beside``: kernels of the
        backward pass may write what is computed again from what they read. ``absorbs``: fusion has kernels compute for
        themselves what spares a read, whatever is chosen here. ``machine``: by whose times products are cheap; without
        it none is."""
        self.graph = graph
        self.absorbs = absorbs
        self.machine = machine
        self.beside = beside
        self.words = words or {}
        self.readers = graph.readers()
        self.kept_anyway = {i.value for i in graph.inputs} | set(graph.roots)
        self.bytes = {
            v: v.type.bytes for v in (*(i.value for i in graph.inputs), *(v for n in graph.nodes for v in n.outputs))
        }
        self.small = max(self.bytes.values(), default=0) // _SMALL
        self.forward = [n for n in graph.nodes if n.phase is Phase.FORWARD]

    @cached_property
    def wanted(self) -> dict[Value, list[Node]]:
        """Values of the forward pass that take memory -> the nodes of later phases that read them."""
        found: dict[Value, list[Node]] = {}
        for node in self.forward:
            for value in node.outputs:
                later = [r for r in self.readers.get(value, ()) if r.phase is not Phase.FORWARD]
                if later and self.counts(value):
                    found[value] = later
        return found

    def counts(self, value: Value) -> bool:
        """Whether keeping a value takes memory that is worth a thought."""
        return self.bytes[value] > self.small and value not in self.kept_anyway

    def stands_alone(self, value: Value) -> bool:
        """Whether a dropped value comes back to memory: not every reader can compute it for itself."""
        return any(not is_inline(r, value) for r in self.wanted.get(value, ()))

    def may(self, node: Node) -> bool:
        """Whether a node may be computed again."""
        return (node.op.mirror or self._cheap(node)) and self.words.get((node.name, node.span)) != "never"

    def _cheap(self, node: Node) -> bool:
        """Whether a node is a product that takes no longer than a pointwise op of two tensors like its result."""
        if self.machine is None or kind(node) != "product":
            return False
        return seconds(node, self.machine) <= kernel_seconds("elements", 3 * node.types[0].bytes, 0, self.machine)

    def is_new(self, value: Value) -> bool:
        """Whether a value is kept for nothing but what is computed again from it."""
        return self.counts(value) and value not in self.wanted

    @cached_property
    def always(self) -> frozenset[Value]:
        """Wanted values that the source asks to compute again."""
        return frozenset(v for v in self.candidates if self.words.get((v.producer.name, v.producer.span)) == "always")

    @cached_property
    def candidates(self) -> frozenset[Value]:
        """Wanted values that may be computed again."""
        wanted = (v for v in self.wanted if v not in self._of_weights)
        return frozenset(v for v in wanted if isinstance(v.producer, Node) and self.may(v.producer))

    @cached_property
    def _of_weights(self) -> frozenset[Value]:
        """What comes of parameters alone, as casts of them, which a GPU makes in one launch for all readers."""
        found: set[Value] = set()
        if self.absorbs:
            found.update(i.value for i in self.graph.inputs if i.kind is Kind.PARAM)
            for node in self.forward:
                if node.inputs and found.issuperset(node.inputs):
                    found.update(node.outputs)
        return frozenset(found)


def propose(facts: Facts, allowed: frozenset[Value]) -> Choice:
    """Echo's rule for the values that are allowed to be dropped. Linear in nodes and reads."""
    return _Peel(facts, allowed).run()


class _Peel:
    """The walk. ``left``: how many nodes still read a value in order to be computed again."""

    def __init__(self, facts: Facts, allowed: frozenset[Value]) -> None:
        self.facts = facts
        self.allowed = allowed
        self.dropped: set[Value] = set()
        self.left: dict[Value, int] = {}
        self.freed: dict[Value, int] = {}  # of a dropped value: what is only kept for it
        self.steps: dict[Value, int] = {}
        self.kept: set[Node] = set()  # nodes whose results a group keeps
        self.useful = self._useful()

    def _useful(self) -> list[Node]:
        """What may have to be computed again, in order; counts ``left``."""
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
        """What must be there of a node, computed again or kept."""
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
        """Bytes that nobody would keep any more if the nodes' results were kept."""
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
        """Keeps the results of nodes that read one tensor where that frees as much as it takes."""
        if self._freed_by(nodes) >= self._taken_by(nodes):
            self.kept.update(nodes)

    def _keep(self, node: Node) -> None:
        """The node's results stay in memory: what it reads is needed once less, and so on upwards."""
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
    """Whether a reader can compute a value for itself, inside its own kernel."""
    made = value.producer
    if not isinstance(made, Node) or not isinstance(made.op, Pointwise):
        return False
    if reader.op.name == "fused_sums":
        return any(v.type.shape == value.type.shape for v in reader.inputs)
    return isinstance(reader.op, Pointwise) and reader.types[0].shape == value.type.shape
