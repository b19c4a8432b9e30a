"""Products of few rows take the pointwise node that reads them into their kernel, as in the generation of text.

Before, for one token::

    %1 = matmul %x, %w {transpose_b=True, ...} : bf16[1, 1, 3072]  # fc forward
    %2 = fused %1, %bias {gelu(%1 + bias)} : bf16[1, 1, 3072]  # gelu forward

After::

    %2 = contraction %x, %w, %bias {product="matmul", ..., body=...} : bf16[1, 1, 3072]  # gelu forward

Such a product takes as long as its weights come from memory, and a launch of its own for the rest takes as long again.
All steps are computed in f32 and rounded once. Only where the target computes both as one kernel of its own; linear in
nodes and reads.
"""

from __future__ import annotations

from math import prod
from typing import Final

from dslc.compiler.codegen.lowering_cache import lowered
from dslc.compiler.ir.build import Build
from dslc.compiler.ir.graph import Graph, Node
from dslc.compiler.passes.fuse.body import is_pointwise
from dslc.compiler.passes.fuse.contraction.pointwise_readers import Takes, not_measured_slower, with_readers

MOST_ROWS: Final = 8


def few_rows(graph: Graph, takes: Takes = lambda *_: True) -> Graph:
    """The graph with such nodes. Deterministic and idempotent."""
    return with_readers(graph, _product, takes)


def takes(build: Build) -> Takes:
    """The rule of a build: whether both are one own kernel, and measured times do not speak against it."""
    vendor = build.provider == "vendor"

    def rule(first: Node, last: Node, found: Node) -> bool:
        launches = lowered(found, build.target, vendor) or ()
        own = len(launches) == 1 and getattr(launches[0].spec, "is_of_few_rows", False)
        return own and not_measured_slower(build, first, last, found)

    return rule


def _product(node: Node) -> Node | None:
    """The product of few rows, weights in a matrix, that a pointwise node reads."""
    if not is_pointwise(node) or len(node.outputs) > 1 or len(node.types[0].ints) < 2:
        return None
    for value in dict.fromkeys(node.inputs):
        made = value.producer
        if isinstance(made, Node) and made.op.name == "matmul" and made.phase is node.phase:
            shape = value.type.ints
            if shape == node.types[0].ints and made.inputs[1].type.rank == 2 and 0 < prod(shape[:-1]) <= MOST_ROWS:
                return made
    return None
