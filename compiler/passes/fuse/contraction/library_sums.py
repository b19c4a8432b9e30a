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

from collections.abc import Callable, Mapping
from typing import TypeAlias

from dslc.compiler.codegen.lowering_cache import lowered
from dslc.compiler.codegen.target import LibraryCall
from dslc.compiler.ir.build import Build
from dslc.compiler.ir.graph import Graph, Node, Value
from dslc.compiler.ops.compound.contraction import joined, summands
from dslc.compiler.passes.fuse.body import Body, is_pointwise
from dslc.compiler.passes.fuse.rebuild import rebuilt

#: Of a product, the pointwise node that reads it, and both as one node: whether they become that.
Takes: TypeAlias = Callable[[Node, Node, Node], bool]


def library_sums(graph: Graph, takes: Takes = lambda *_: True) -> Graph:
    """The graph with such nodes. Deterministic and idempotent."""
    readers, roots = graph.readers(), set(graph.roots)

    def rule(node: Node, new: Mapping[Value, Value]) -> Node:
        first = _product(node)
        if first is None or first.out in roots or readers[first.out] != [node]:
            return node.reading(new)
        body = Body([first.out, *node.inputs])
        body.add(node)
        found = joined(first.reading(new), node, [new.get(v, v) for v in body.inputs[1:]], tuple(body.steps))
        return found if summands(found) is not None and takes(first, node, found) else node.reading(new)

    return rebuilt(graph, rule)


def takes(build: Build) -> Takes:
    """The rule of a build: whether a library computes both as one node, and measured times do not speak against it."""
    choices, providers = build.choices, build.providers

    def rule(first: Node, last: Node, found: Node) -> bool:
        launches = lowered(found, build.target, True) or ()
        if not any(isinstance(launch.spec, LibraryCall) for launch in launches):
            return False
        if not choices.ways:
            return True
        together, product, pointwise = (choices.seconds(node, providers) for node in (found, first, last))
        if together is None or product is None or pointwise is None:
            return True
        return together < product + pointwise

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
