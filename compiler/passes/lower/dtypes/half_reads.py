"""Lets ops that compute in f32 read 16-bit values: the logits of a cross entropy, and the gradients of a global norm.

Before::

    %2 = cast %1 {dtype=f32} : f32[64, 10]  # loss forward
    %3, %4, %5 = softmax_cross_entropy %2, %label {...} : f32[64], f32[64], f32[64]  # loss forward
    %6 = softmax_cross_entropy_grad %2, %label, %4, %5, %dy {...} : f32[64, 10]  # loss backward
    %7 = cast %6 {dtype=bf16} : bf16[64, 10]  # head backward

After::

    %2, %3, %4 = softmax_cross_entropy %1, %label {...} : f32[64], f32[64], f32[64]  # loss forward
    %5 = softmax_cross_entropy_grad %1, %label, %3, %4, %dy {...} : bf16[64, 10]  # loss backward

So neither logits nor their gradient are in memory in f32. Between the cast and the loss there may be ops that only move
elements. Kernels of 16 bits compute in f32 and round a result once, so each element is the same; only sums over classes
may be in another order. Logits whose gradient is also read in f32 stay as they are. The sum of a global norm keeps its
bits. For targets with such kernels. Idempotent; linear in nodes and reads.
"""

from __future__ import annotations

from dslc.compiler.ir.graph import Graph, Node, Value
from dslc.compiler.ir.op import Builder
from dslc.compiler.ir.types import DType
from dslc.compiler.ops.loss.cross_entropy import softmax_cross_entropy, softmax_cross_entropy_grad
from dslc.compiler.ops.optimizer.clip_norm import global_norm


def half_reads(graph: Graph) -> Graph:
    """The graph with such nodes; the same object if there are none."""
    wanted = _wanted(graph)
    if not wanted and not any(node.op is global_norm and _before_casts(node) for node in graph.nodes):
        return graph
    narrow = _Narrow()
    for node in graph.nodes:
        narrow.node(node, bool(node.inputs) and node.inputs[0] in wanted)
    return graph.replace_values(narrow.new)


def _wanted(graph: Graph) -> set[Value]:
    """The logits of cross entropies that can be read in 16 bits."""
    losses = [node for node in graph.nodes if node.op is softmax_cross_entropy or node.op is softmax_cross_entropy_grad]
    found = {node.inputs[0] for node in losses if _half(node.inputs[0]) is not None}
    if not found:
        return found
    readers, roots = graph.readers(), set(graph.roots)

    def rounded(value: Value, dtype: DType) -> bool:
        """Whether a gradient is only read as this dtype."""
        return value not in roots and all(
            node.types[0].dtype is dtype if node.op.name == "cast" else _moves(node) and rounded(node.out, dtype)
            for node in readers.get(value, ())
        )

    for node in losses:
        dtype = _half(node.inputs[0])
        if dtype is not None and node.op is softmax_cross_entropy_grad and not rounded(node.out, dtype):
            found.discard(node.inputs[0])
    return found


def _half(value: Value) -> DType | None:
    """The 16-bit dtype from which a value was cast to f32, before it was moved; else None."""
    made = value.producer
    while isinstance(made, Node) and _moves(made):
        made = made.inputs[0].producer
    if not isinstance(made, Node) or made.op.name != "cast" or made.types[0].dtype is not DType.F32:
        return None
    source = made.input_types[0].dtype
    return source if source.is_half else None


def _before_casts(node: Node) -> dict[Value, Value]:
    """The inputs of a node that were cast from 16 bits to f32, with what was cast."""
    casts = [(x, x.producer) for x in node.inputs if isinstance(x.producer, Node) and x.producer.op.name == "cast"]
    return {
        x: made.inputs[0] for x, made in casts if made.input_types[0].dtype.is_half and made.types[0].dtype is DType.F32
    }


def _moves(node: Node) -> bool:
    return node.op.moves and len(node.inputs) == 1 and len(node.outputs) == 1


class _Narrow:
    """``new``: an old value -> that which replaces it. ``half``: an old f32 value -> the same numbers in 16 bits."""

    def __init__(self) -> None:
        self.new: dict[Value, Value] = {}
        self.half: dict[Value, Value] = {}
        self.gradients: set[Value] = set()

    def node(self, node: Node, wanted: bool) -> None:
        """Rewrites a node. ``wanted``: its first input is such logits."""
        fresh = node.reading(self.new)
        if wanted and node.op is softmax_cross_entropy:
            self.new.update(zip(node.outputs, self._narrowed(node, fresh).outputs))
        elif wanted and node.op is softmax_cross_entropy_grad:
            self._gradient(node.out, self._narrowed(node, fresh).out)
        elif node.op is global_norm and _before_casts(fresh):
            inputs = [_before_casts(fresh).get(x, x) for x in fresh.inputs]
            self.new[node.out] = Builder().at(node, node.phase)(node.op, *inputs, **node.attrs)
        elif node.inputs and node.inputs[0] in self.gradients:
            same = self.half[node.inputs[0]]
            if node.op.name == "cast":
                self.new[node.out] = same
            else:
                self._gradient(node.out, _again(node, same))
        elif fresh is not node:
            self.new.update(zip(node.outputs, fresh.outputs))

    def _gradient(self, old: Value, same: Value) -> None:
        self.half[old] = same
        self.gradients.add(old)

    def _narrowed(self, node: Node, fresh: Node) -> Node:
        inputs = (self._half_of(node.inputs[0]), *fresh.inputs[1:])
        return Builder().at(node, node.phase).node(node.op, *inputs, **node.attrs)

    def _half_of(self, value: Value) -> Value:
        if value not in self.half:
            made = value.producer
            assert isinstance(made, Node)
            source = made.inputs[0]
            cast = made.op.name == "cast"
            self.half[value] = self.new.get(source, source) if cast else _again(made, self._half_of(source))
        return self.half[value]


def _again(node: Node, x: Value) -> Value:
    """The node's result for another input."""
    return Builder().at(node, node.phase)(node.op, x, **node.attrs)
