"""Lets a library add what is added to a product of matrices: a bias for each column, a residual, or both.

Before::

    %1 = matmul %x, %w {...} : bf16[64, 512]  # fc forward
    %2 = fused %1, %bias, %rest {%rest + (%1 + %bias)} : bf16[64, 512]  # "" forward

After::

    %2 = contraction %x, %w, %bias, %rest {product="matmul", ..., body=...} : bf16[64, 512]  # "" forward

The sum must be the product's only reader, and the library must compute the product. It adds before it rounds, so 16-bit
results are rounded once instead of after each step. Measured times decide if all of them are known. Only for builds
with libraries; linear in nodes and reads.
"""

from __future__ import annotations

from dslc.compiler.codegen.lowering_cache import lowered
from dslc.compiler.codegen.target import LibraryCall
from dslc.compiler.ir.build import Build
from dslc.compiler.ir.graph import Graph, Node
from dslc.compiler.ops.compound.contraction import summands
from dslc.compiler.passes.fuse.contraction.pointwise_join import (
    JoinRule,
    always,
    join_readers,
    measured_faster,
    products_read,
)


def library_epilogue(graph: Graph, rule: JoinRule = always) -> Graph:
    """The graph with such nodes. Deterministic and idempotent."""

    def adds(product: Node, reader: Node, joined: Node) -> bool:
        return summands(joined) is not None and rule(product, reader, joined)

    return join_readers(graph, _product, adds)


def library_rule(build: Build) -> JoinRule:
    """The rule of a build: a library computes both as one node, and measured times do not say that it is slower."""

    def rule(product: Node, reader: Node, joined: Node) -> bool:
        launches = lowered(joined, build.target, True) or ()
        called = any(isinstance(launch.spec, LibraryCall) for launch in launches)
        return called and measured_faster(build, (product, reader), joined) is not False

    return rule


def _product(node: Node) -> Node | None:
    """The product of matrices to which a pointwise node adds something."""
    matmuls = (made for made in products_read(node) if made.op.name == "matmul" and made.types == node.types)
    return next(matmuls, None)
