"""What a node reads is computed again by it where that spares the reading: all of what it is made of is read anyhow.

Before, with y and x of the same size, both in memory::

    %4 = fused %x, %mean, %scale, %bias {relu((x - mean) * scale + bias)} : bf16[8, 14, 14, 64]  # relu forward
    %8, %9 = fused_sums %dy, %4, %x, %mean, %invstd {where(y <= 0, 0, dy), ...} : f32[64], f32[64]

After::

    %8, %9 = fused_sums %dy, %x, %mean, %scale, %bias, %invstd {where(relu((x - mean) * scale + bias) <= 0, ...), ...}

Small inputs, of a row or a channel, may come in new. Steps are cheap ones alone: a kernel waits for memory with a few
of them beside, but not with a tanh. The bits stay. GPUs alone, linear in nodes and reads.
"""

from __future__ import annotations

import dataclasses
from typing import Final

from dslc.compiler.ir.build import Build
from dslc.compiler.ir.graph import Graph, Node, Value
from dslc.compiler.ir.program import Program
from dslc.compiler.ops.fused import MAX_STEPS
from dslc.compiler.passes.absorb import joined
from dslc.compiler.passes.bodies import body_of, is_pointwise, names_of

SMALL: Final = 1 << 16  # bytes of an input that is as good as free
_MOST: Final = 12  # steps that are computed again
_CHEAP: Final = frozenset(
    {"cast", "add", "sub", "mul", "neg", "abs", "maximum", "minimum", "relu", "where", "full",
     "lt", "le", "gt", "ge", "eq", "ne", "logical_and", "logical_or", "logical_not"}
)  # fmt: skip


def again(program: Program, build: Build) -> Program:
    """The pass."""
    if build.target == "cpu" or not build.fuse:
        return program
    return dataclasses.replace(program, graph=again_graph(program.graph))


def again_graph(graph: Graph) -> Graph:
    """The graph where no node reads what it may as well compute. Running it twice changes nothing more."""
    new: dict[Value, Value] = {}
    for node in graph.nodes:
        taken = _spared(node)
        fresh = joined(node, taken, new) if taken else node.reading(new)
        if fresh is not node:
            new.update(zip(node.outputs, fresh.outputs))
    return graph.replace_values(new) if new else graph


def _spared(node: Node) -> dict[Value, Node]:
    """Inputs that the node may compute, and what makes them."""
    if not ((is_pointwise(node) and len(node.outputs) == 1) or node.op.name == "fused_sums"):
        return {}
    read, steps = set(node.inputs), len(body_of(node))
    found: dict[Value, Node] = {}
    for value in dict.fromkeys(node.inputs):
        made = value.producer
        if not isinstance(made, Node) or not _is_cheap(made) or value.type.bytes <= SMALL:
            continue
        more = len(body_of(made))
        if steps + more <= MAX_STEPS and all(v in read or v.type.bytes <= SMALL for v in made.inputs):
            found[value] = made
            steps += more
    return found


def _is_cheap(made: Node) -> bool:
    """Whether it is made of few cheap steps, from something as large as itself."""
    if not is_pointwise(made) or len(made.outputs) > 1:
        return False
    names = names_of(made)
    large = any(v.type.shape == made.types[0].shape for v in made.inputs)
    return large and len(names) <= _MOST and _CHEAP.issuperset(names)
