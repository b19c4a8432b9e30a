"""Fuses the pointwise epilogue of a contraction into the kernel that writes its result.

Before::

    %1 = matmul %x, %w {...} : f32[64, 512]  # f1 forward
    %2 = fused %1, %bias {relu(%1 + bias)} : f32[64, 512]  # relu forward

After::

    %2 = contraction %x, %w, %bias {product="matmul", ..., body=...} : f32[64, 512]  # relu forward

The pointwise node must be the contraction's only consumer and have its shape and dtype. It may only use ops that C++
computes exactly (``scalar.is_exact``): no exp or similar functions. Results keep their bits. Only for dslc's own f32
and f64 kernels on GPUs; linear in nodes and reads. Builds with own kernels fuse and builds with libraries do not,
unless measured times of both ways say which one is faster (``joins``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import prod
from typing import TypeAlias

from dslc.compiler.ir.build import Build
from dslc.compiler.ir.choice import OWN_KERNELS
from dslc.compiler.ir.graph import Graph, Node, Value
from dslc.compiler.ir.index_limits import I32_PADDED_ELEMENTS
from dslc.compiler.ir.op import PRODUCT_KINDS, Pointwise
from dslc.compiler.ir.scalar import argument, is_exact
from dslc.compiler.ir.types import DType
from dslc.compiler.ops.compound.fused import results_of, steps_of
from dslc.compiler.ops.constants.constant import full
from dslc.compiler.passes.fuse.body import is_pointwise
from dslc.compiler.passes.fuse.contraction.pointwise_readers import with_reader
from dslc.compiler.passes.fuse.contraction.tf32 import rounded
from dslc.compiler.passes.rebuild import rebuilt

#: (product, the pointwise node that reads it, both as one node) -> whether to fuse them.
Joins: TypeAlias = Callable[[Node, Node, Node], bool]


def epilogue(graph: Graph, joins: Joins = lambda *_: True) -> Graph:
    """The graph with such nodes. Deterministic and idempotent."""
    readers, roots = graph.readers(), set(graph.roots)

    def rule(node: Node, new: Mapping[Value, Value]) -> Node:
        first = _product(node)
        if first is None or first.out in roots or readers[first.out] != [node]:
            return node.reading(new)
        found = with_reader(first, node, new)
        return found if joins(first, node, found) else node.reading(new)

    return rebuilt(graph, rule)


def joins(build: Build) -> Joins:
    """The rule of a build: by measured times if the product, the pointwise node and the fused node have them."""
    by_rule, choices, tf32 = build.provider != "vendor", build.choices, build.precision.tf32

    def rule(first: Node, last: Node, found: Node) -> bool:
        if not choices.ways:
            return by_rule
        fused = choices.seconds(rounded(found) if tf32 else found, OWN_KERNELS)
        product = choices.seconds(rounded(first) if tf32 else first, build.providers)
        pointwise = choices.seconds(last, build.providers)
        if fused is None or product is None or pointwise is None:
            return by_rule
        return fused < product + pointwise

    return rule


def pieces(graph: Graph, *, tf32: bool) -> list[Node]:
    """The nodes whose measured times decide (``joins``): each product, its pointwise node and both as one node.
    ``tf32``: factors of f32 products are rounded."""
    found: list[Node] = []

    def note(*nodes: Node) -> bool:
        found.extend(rounded(node) if tf32 else node for node in nodes)
        return True

    epilogue(graph, note)
    return found


def _product(node: Node) -> Node | None:
    """The contraction whose epilogue the node may become."""
    if not is_pointwise(node) or len(node.outputs) > 1:
        return None
    type, inputs = node.types[0], list(dict.fromkeys(node.inputs))
    if type.dtype not in (DType.F32, DType.F64) or not 0 < prod(type.ints) <= I32_PADDED_ELEMENTS:
        return None
    steps = steps_of(node)
    whole = len(node.inputs) + len(steps)
    if tuple(results_of(node.attrs, whole)) != (whole - 1,) or not all(map(_is_exact, steps)):
        return None
    if any(t.dtype not in (type.dtype, DType.B1) for t in (*node.input_types, *(s.types[0] for s in steps))):
        return None
    return next((made for v in inputs if (made := _made_by(v, node)) is not None), None)


def _is_exact(step: Node) -> bool:
    """Whether C++ computes a step of a body with the bits of its own kernel."""
    if step.op is full:
        return True
    return isinstance(step.op, Pointwise) and is_exact(step.op.scalar(step.attrs, *map(argument, range(step.op.arity))))


def _made_by(value: Value, node: Node) -> Node | None:
    """The contraction that produces ``value`` and whose kernel may also compute ``node``."""
    made = value.producer
    if not isinstance(made, Node) or made.op.kernel_kind not in PRODUCT_KINDS or value.type != node.types[0]:
        return None
    return made if made.phase is node.phase and all(t.dtype is value.type.dtype for t in made.input_types) else None
