"""Moves the scale of each channel of a product into the product's weights: a batch normalisation of ``predict`` is then
one addition.

Before::

    %2 = conv %x, %w {...} : [1, 64, 56, 56]  # conv forward
    %3 = sub %2, %mean : [1, 64, 56, 56]  # batchnorm forward
    %4 = mul %3, %scale : [1, 64, 56, 56]  # batchnorm forward
    %5 = add %4, %bias : [1, 64, 56, 56]  # batchnorm forward

After, where the first two nodes need weights alone::

    %1 = mul %w, %scale : [64, 64, 1, 1]  # batchnorm forward
    %2 = sub %bias, %mean * %scale : [64, 1, 1]  # batchnorm forward
    %3 = conv %x, %1 {...} : [1, 64, 56, 56]  # conv forward
    %5 = add %3, %2 : [1, 64, 56, 56]  # batchnorm forward

Two such sums that are added have one vector in the end: ``(p + a) + (q + b)`` is ``(p + q) + (a + b)``.

A chain of additions, subtractions, multiplications and divisions is taken whose other operands need weights alone and
differ along the channels only; transposes may come in between. Only of ``predict``, and only if the build prepares
values: then ``prepare.py`` computes the scaled weights once after the weights change. Sums are rounded in other places
than before. Linear in nodes.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod
from typing import Final

from dslc.compiler.ir.build import Build
from dslc.compiler.ir.graph import Graph, Node, Value, made_by
from dslc.compiler.ir.op import OPS, Builder
from dslc.compiler.ir.program import Program
from dslc.compiler.ops.attrs import bool_attr, int_attr, int_tuple
from dslc.compiler.passes.queries import values_of_weights
from dslc.compiler.passes.rebuild import reading

_SCALES: Final = ("mul", "div")
_SHIFTS: Final = ("add", "sub")


def fold_scales(program: Program, build: Build) -> Program:
    """The pass."""
    if program.entry != "predict" or program.prepared is not None or not build.prepare or build.provider == "reference":
        return program
    graph = program.graph
    fixed, readers, roots = values_of_weights(graph), graph.readers(), {*graph.roots}
    instead: dict[Value, Value] = {}
    for node in graph.nodes:
        product = _Product.of(node, fixed)
        if product is None:
            continue
        chain: _Chain | None = _Chain(product, node, product.channel)
        longest = None  # that ends with a scale or a shift: transposes after it stay
        while chain is not None and chain.last.out not in roots and len(found := readers[chain.last.out]) == 1:
            chain = chain.then(found[0], fixed)
            longest = chain if chain is not None and chain.last.op.name != "transpose" else longest
        if longest is not None and longest.scale is not None:
            instead[longest.last.out] = longest.folded()
    graph = _with_joined_shifts(reading(graph, instead)) if instead else graph
    return program if graph is program.graph else replace(program, graph=graph)


def _with_joined_shifts(graph: Graph) -> Graph:
    """The graph in which of two sums with vectors of weights that are added, the vectors are added first."""
    fixed, readers = values_of_weights(graph), graph.readers()

    def parts(value: Value, fixed: set[Value]) -> tuple[Value, Value] | None:
        made = made_by(value, "add")
        if made is None or len(readers.get(value, ())) != 1 or value in fixed:
            return None
        data, vector = made.inputs if made.inputs[1] in fixed else made.inputs[::-1]
        return (data, vector) if vector in fixed and data.type == value.type else None

    instead: dict[Value, Value] = {}
    for node in graph.nodes:
        sums = [parts(value, fixed) for value in node.inputs] if node.op.name == "add" else []
        if len(sums) == 2 and sums[0] is not None and sums[1] is not None:
            (p, a), (q, b), make = sums[0], sums[1], Builder().at(node, node.phase)
            if a.type == b.type and p.type == q.type:
                instead[node.out] = make(OPS["add"], make(OPS["add"], p, q), make(OPS["add"], a, b))
    return reading(graph, instead) if instead else graph


@dataclass(frozen=True)
class _Product:
    """A product of data and weights. ``channel``, ``column``: the axis of the channels in the result and in the
    weights."""

    node: Node
    channel: int
    column: int

    @classmethod
    def of(cls, node: Node, fixed: set[Value]) -> _Product | None:
        if node.op.name not in ("conv", "conv_dgrad", "matmul"):
            return None
        data, weights = node.inputs
        if weights not in fixed or data in fixed:
            return None
        rank = weights.type.rank
        if node.op.name == "matmul":
            rows = bool_attr(node.attrs, "transpose_b")
            return cls(node, node.types[0].rank - 1, rank - (2 if rows else 1)) if rank >= 2 else None
        if node.op.name == "conv":
            return cls(node, 1, 0)
        return cls(node, 1, 1) if int_attr(node.attrs, "groups") == 1 else None


@dataclass(frozen=True)
class _Chain:
    """``product * scale + shift``, vectors over the channels, then ``transposes``, is the value of ``last``, whose axis
    ``channel`` has the channels. None: no factor, nothing is added."""

    product: _Product
    last: Node
    channel: int
    scale: Value | None = None
    shift: Value | None = None
    transposes: tuple[Node, ...] = ()

    def then(self, node: Node, fixed: set[Value]) -> _Chain | None:
        """The chain with the node that reads its end, if it can be a part of it."""
        if node.op.name == "transpose":
            channel = int_tuple(node.attrs, "perm").index(self.channel)
            return replace(self, last=node, channel=channel, transposes=(*self.transposes, node))
        if node.op.name not in (*_SCALES, *_SHIFTS):
            return None
        first, second = node.inputs
        if second is self.last.out and node.op.name in ("sub", "div"):  # of the chain from something, or by it
            return None
        other = first if second is self.last.out else second
        vector = self._vector(node, other) if other in fixed else None
        if vector is None:
            return None
        if node.op.name in _SHIFTS:
            return replace(self, last=node, shift=_applied(node, self.shift, 0.0, vector))
        scaled = None if self.shift is None else _applied(node, self.shift, 1.0, vector)
        return replace(self, last=node, scale=_applied(node, self.scale, 1.0, vector), shift=scaled)

    def _vector(self, node: Node, value: Value) -> Value | None:
        """An operand that differs along the channels alone, as a vector over them, or of one element."""
        shape, end = value.type.ints, self.last.types[0]
        at = self.channel - (end.rank - len(shape))
        if node.types[0] != end or any(size != 1 for axis, size in enumerate(shape) if axis != at):
            return None
        return Builder().at(node, node.phase)(OPS["reshape"], value, shape=(prod(shape),))

    def folded(self) -> Value:
        """The same of a product with scaled weights."""
        assert self.scale is not None, "there is something to fold"
        product = self.product
        data, weights = product.node.inputs
        b = Builder().at(self.last, self.last.phase)
        scaled = b(OPS["mul"], weights, _along(b, self.scale, product.column, weights.type.rank))
        made = product.node.with_inputs((data, scaled)).out
        if self.shift is not None:
            made = b(OPS["add"], made, _along(b, self.shift, product.channel, made.type.rank))
        for node in self.transposes:
            made = node.with_inputs((made,)).out
        return made


def _applied(node: Node, before: Value | None, neutral: float, vector: Value) -> Value:
    """What the node does to a vector; of None, to the neutral number."""
    b = Builder().at(node, node.phase)
    if before is None and node.op.name in ("add", "mul"):
        return vector
    start = before or b(OPS["full"], value=neutral, dtype=vector.type.dtype, shape=())
    return b(node.op, start, vector)


def _along(b: Builder, vector: Value, axis: int, rank: int) -> Value:
    """A vector, shaped so that it broadcasts along an axis of so many."""
    return b(OPS["reshape"], vector, shape=(*vector.type.ints, *(1 for _ in range(axis + 1, rank))))
