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

from typing import Final

from dslc.compiler.ir.graph import Node, Value
from dslc.compiler.passes.mirror.training_graph import TrainingGraph

MAX_STEPS: Final = 48  # nodes between two values in memory; a fused region holds 64


def propose(training: TrainingGraph, allowed: frozenset[Value]) -> frozenset[Value]:
    """Echo's rule applied to the values that are allowed to be dropped. Linear in nodes and reads."""
    return _Frontier(training, allowed).run()


class _Frontier:
    """The walk. ``left``: how many nodes still need a value for recomputation."""

    def __init__(self, training: TrainingGraph, allowed: frozenset[Value]) -> None:
        self.training = training
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
        for node in reversed(self.training.forward):
            outputs = [v for v in node.outputs if self.training.counts(v)]
            if any(v in self.allowed or v in self.left for v in outputs) and self.training.may(node):
                found.append(node)
                for value in dict.fromkeys(node.inputs):
                    self.left[value] = self.left.get(value, 0) + 1
        found.reverse()
        return found

    def run(self) -> frozenset[Value]:
        """The values to drop."""
        training = self.training
        useful = set(self.useful)
        looked_at: set[Value] = set()
        for node in self.useful:
            for value in node.inputs:
                if self.left.get(value, 0) > 1 and self._is_new(value) and value not in looked_at:
                    looked_at.add(value)
                    self._together([r for r in training.readers[value] if r in useful])
            if node in self.kept or self._must_keep(node) or self._freed_by([node]) >= self._taken_by([node]):
                self._keep(node)
            else:
                self._drop(node)
        return frozenset(self.dropped)

    def _is_new(self, value: Value) -> bool:
        return self.training.is_new(value) and value not in self.dropped

    def _results(self, node: Node) -> list[Value]:
        """The node's results that are needed, recomputed or kept."""
        wanted = self.training.wanted
        return [v for v in node.outputs if self.training.counts(v) and (v in wanted or self.left.get(v, 0))]

    def _must_keep(self, node: Node) -> bool:
        results = self._results(node)
        if any(v in self.training.wanted and v not in self.allowed for v in results):
            return True
        return self._steps_of(node) > MAX_STEPS

    def _steps_of(self, node: Node) -> int:
        """How many nodes lie between a node's results and memory."""
        return 1 + sum(self.steps[v] for v in node.inputs if v in self.dropped)

    def _taken_by(self, nodes: list[Node]) -> int:
        """Bytes of the nodes' results."""
        return sum(self.training.bytes[v] for n in nodes for v in self._results(n))

    def _freed_by(self, nodes: list[Node]) -> int:
        """Bytes that are no longer kept if the nodes' results are."""
        reads: dict[Value, int] = {}
        for node in nodes:
            for value in dict.fromkeys(node.inputs):
                reads[value] = reads.get(value, 0) + 1
        freed = 0
        for value, count in reads.items():
            if value in self.training.wanted or self.left.get(value, 0) > count:
                continue
            freed += (
                self.freed[value] if value in self.dropped else self.training.bytes[value] if self._is_new(value) else 0
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
                if not self.left[value] and value in self.dropped and value not in self.training.wanted:
                    self.dropped.discard(value)
                    if isinstance(made, Node) and not any(v in self.dropped for v in made.outputs):
                        gone.append(made)

    def _drop(self, node: Node) -> None:
        freed = self._freed_by([node])
        steps = self._steps_of(node)
        for value in self._results(node):
            self.dropped.add(value)
            self.freed[value] = freed
            self.steps[value] = 0 if self.training.stands_alone(value) else steps
