"""Fuses the pointwise epilogue of a contraction into the kernel that writes its result.

Before::

    %1 = matmul %x, %w {...} : f32[64, 512]  # f1 forward
    %2 = fused %1, %bias {relu(%1 + bias)} : f32[64, 512]  # relu forward

After::

    %2 = contraction %x, %w, %bias {product="matmul", ..., body=...} : f32[64, 512]  # relu forward

The pointwise node must be the contraction's only consumer and have its shape and dtype. It may only use ops that C++
computes exactly (``scalar.is_exact``): no exp or similar functions. Results keep their bits. Only for dslc's own f32
and f64 kernels on GPUs; linear in nodes and reads. Builds with own kernels fuse and builds with libraries do not,
unless measured times of both ways say which one is faster (``epilogue_rule``).
"""

from __future__ import annotations

from math import prod

from dslc.compiler.ir.build import Build
from dslc.compiler.ir.choice import OWN_KERNELS
from dslc.compiler.ir.graph import Graph, Node
from dslc.compiler.ir.index_limits import I32_PADDED_ELEMENTS
from dslc.compiler.ir.op import Pointwise
from dslc.compiler.ir.scalar import argument, is_exact
from dslc.compiler.ir.types import DType
from dslc.compiler.ops.compound.fused import results_of, steps_of
from dslc.compiler.ops.constants.constant import full
from dslc.compiler.passes.fuse.contraction.pointwise_join import (
    JoinRule,
    always,
    join_readers,
    measured_faster,
    products_read,
)
from dslc.compiler.passes.rounding import tf32_rounded


def epilogue(graph: Graph, rule: JoinRule = always) -> Graph:
    """The graph with such nodes. Deterministic and idempotent."""
    return join_readers(graph, _product, rule)


def epilogue_rule(build: Build) -> JoinRule:
    """The rule of a build: by measured times if the product, its reader and the joined node have them."""
    own, tf32 = build.provider != "vendor", build.precision.tf32

    def rule(product: Node, reader: Node, joined: Node) -> bool:
        product, joined = (tf32_rounded(node) if tf32 else node for node in (product, joined))
        faster = measured_faster(build, (product, reader), joined, OWN_KERNELS)
        return own if faster is None else faster

    return rule


def compared_nodes(graph: Graph, *, tf32: bool) -> list[Node]:
    """The nodes whose measured times decide (``epilogue_rule``): each product, its reader, and both joined. ``tf32``:
    factors of f32 products are rounded."""
    found: list[Node] = []

    def note(*nodes: Node) -> bool:
        found.extend(tf32_rounded(node) if tf32 else node for node in nodes)
        return True

    epilogue(graph, note)
    return found


def _product(node: Node) -> Node | None:
    """The product whose epilogue the node may become."""
    products = [made for made in products_read(node) if _is_of_one_dtype(made, node)]
    if not products:
        return None
    type = node.types[0]
    if type.dtype not in (DType.F32, DType.F64) or not 0 < prod(type.ints) <= I32_PADDED_ELEMENTS:
        return None
    steps = steps_of(node)
    whole = len(node.inputs) + len(steps)
    if tuple(results_of(node.attrs, whole)) != (whole - 1,) or not all(map(_is_exact, steps)):
        return None
    if any(t.dtype not in (type.dtype, DType.B1) for t in (*node.input_types, *(s.types[0] for s in steps))):
        return None
    return products[0]


def _is_exact(step: Node) -> bool:
    """Whether C++ computes a step of a body with the bits of its own kernel."""
    if step.op is full:
        return True
    return isinstance(step.op, Pointwise) and is_exact(step.op.scalar(step.attrs, *map(argument, range(step.op.arity))))


def _is_of_one_dtype(product: Node, reader: Node) -> bool:
    """Whether the factors of a product and its result have the dtype of its reader's result."""
    return all(t.dtype is reader.types[0].dtype for t in (*product.input_types, *product.types))
