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
from dslc.compiler.passes.fuse.body import is_pointwise
from dslc.compiler.passes.fuse.contraction.pointwise_readers import Takes, not_measured_slower, with_readers


def library_sums(graph: Graph, takes: Takes = lambda *_: True) -> Graph:
    """The graph with such nodes. Deterministic and idempotent."""

    def adds(first: Node, last: Node, whole: Node) -> bool:
        return summands(whole) is not None and takes(first, last, whole)

    return with_readers(graph, _product, adds)


def takes(build: Build) -> Takes:
    """The rule of a build: whether a library computes both as one node, and measured times do not speak against it."""

    def rule(first: Node, last: Node, found: Node) -> bool:
        launches = lowered(found, build.target, True) or ()
        called = any(isinstance(launch.spec, LibraryCall) for launch in launches)
        return called and not_measured_slower(build, first, last, found)

    return rule


def _product(node: Node) -> Node | None:
    """The product of matrices to which a pointwise node adds something."""
    if not is_pointwise(node) or len(node.outputs) > 1:
        return None
    for value in dict.fromkeys(node.inputs):
        made = value.producer
        if isinstance(made, Node) and _fits(made, node) and value.type == node.types[0]:
            return made
    return None


def _fits(product: Node, node: Node) -> bool:
    return product.op.name == "matmul" and product.phase is node.phase
