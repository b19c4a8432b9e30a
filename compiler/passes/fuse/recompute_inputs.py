"""Recomputes an input inside its consumer when the consumer already loads everything that the input is computed from.

Before, with y and x of the same size, both in memory::

    %4 = fused %x, %mean, %scale, %bias {relu((x - mean) * scale + bias)} : bf16[8, 14, 14, 64]  # relu forward
    %8, %9 = fused_sums %dy, %4, %x, %mean, %invstd {where(y <= 0, 0, dy), ...} : f32[64], f32[64]

After::

    %8, %9 = fused_sums %dy, %x, %mean, %scale, %bias, %invstd {where(relu((x - mean) * scale + bias) <= 0, ...), ...}

Small inputs, such as a value per row or channel, may be added. Only cheap steps are recomputed: a kernel that waits for
memory hides a few of them, but not a tanh. Results keep their bits. GPU only; linear in nodes and reads.
"""

from __future__ import annotations

from typing import Final

from dslc.compiler.ir.graph import Graph, Node, Value
from dslc.compiler.ops.fused import MAX_STEPS
from dslc.compiler.passes.fuse.body import body_of, is_pointwise, is_small, names_of
from dslc.compiler.passes.fuse.rebuild import inlined

_MAX_RECOMPUTED_STEPS: Final = 12  # per input
_CHEAP: Final = frozenset(
    {"cast", "add", "sub", "mul", "neg", "abs", "maximum", "minimum", "relu", "where", "full",
     "lt", "le", "gt", "ge", "eq", "ne", "logical_and", "logical_or", "logical_not"}
)  # fmt: skip


def recompute_inputs(graph: Graph) -> Graph:
    """The graph in which no node loads an input that it may recompute. Idempotent."""
    return inlined(graph, lambda node, _: _recomputable(node))


def _recomputable(node: Node) -> dict[Value, Node]:
    """Inputs that the node may recompute -> their producers."""
    if not ((is_pointwise(node) and len(node.outputs) == 1) or node.op.name == "fused_sums"):
        return {}
    read, steps = set(node.inputs), len(body_of(node))
    found: dict[Value, Node] = {}
    for value in dict.fromkeys(node.inputs):
        made = value.producer
        if not isinstance(made, Node) or not _is_cheap(made) or is_small(value):
            continue
        more = len(body_of(made))
        if steps + more <= MAX_STEPS and all(v in read or is_small(v) for v in made.inputs):
            found[value] = made
            steps += more
    return found


def _is_cheap(made: Node) -> bool:
    """Whether the node consists of few cheap steps and reads a tensor of its own shape."""
    if not is_pointwise(made) or len(made.outputs) > 1:
        return False
    names = names_of(made)
    large = any(v.type.shape == made.types[0].shape for v in made.inputs)
    return large and len(names) <= _MAX_RECOMPUTED_STEPS and _CHEAP.issuperset(names)
