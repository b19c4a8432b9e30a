"""Lets the kernel of a product of few rows compute the pointwise node that reads it, as in the generation of text.

Before, for one token::

    %1 = matmul %x, %w {transpose_b=True, ...} : bf16[1, 1, 3072]  # fc forward
    %2 = fused %1, %bias {gelu(%1 + bias)} : bf16[1, 1, 3072]  # gelu forward

After::

    %2 = contraction %x, %w, %bias {product="matmul", ..., body=...} : bf16[1, 1, 3072]  # gelu forward

Such a product takes as long as its weights take to come from memory, and a separate launch for the rest takes as long
again. All steps are computed in f32 and rounded once. The pass joins two nodes only if the target has a kernel of its
own for both; linear in nodes and reads.
"""

from __future__ import annotations

from math import prod

from dslc.compiler.codegen.lowering_cache import lowered
from dslc.compiler.ir.build import Build
from dslc.compiler.ir.graph import Graph, Node
from dslc.compiler.ops.products.linear import FEW_ROWS
from dslc.compiler.passes.fuse.contraction.pointwise_join import (
    JoinRule,
    always,
    join_readers,
    measured_faster,
    products_read,
)


def few_rows_epilogue(graph: Graph, rule: JoinRule = always) -> Graph:
    """The graph with such nodes. Deterministic and idempotent."""
    return join_readers(graph, _product, rule)


def few_rows_rule(build: Build) -> JoinRule:
    """The rule of a build: one own kernel computes both, and measured times do not say that it is slower."""
    vendor = build.provider == "vendor"

    def rule(product: Node, reader: Node, joined: Node) -> bool:
        launches = lowered(joined, build.target, vendor) or ()
        own = len(launches) == 1 and getattr(launches[0].spec, "is_of_few_rows", False)
        return own and measured_faster(build, (product, reader), joined) is not False

    return rule


def _product(node: Node) -> Node | None:
    """The product of few rows, weights in a matrix, that a pointwise node reads."""
    return next((made for made in products_read(node) if _has_few_rows(made)), None)


def _has_few_rows(product: Node) -> bool:
    shape = product.types[0].ints
    is_of_weights = product.op.name == "matmul" and len(shape) >= 2 and product.inputs[1].type.rank == 2
    return is_of_weights and 0 < prod(shape[:-1]) <= FEW_ROWS
