"""Attention in separate kernels: batched matrix products, and regions over the rows of scores in between.

Scores and probabilities of all positions are in scratch memory, [..., Tq, Tk]: in f32 for sums, else in the tensors'
dtype.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from math import prod

from dslc.compiler.codegen.cuda.attention import tiled
from dslc.compiler.codegen.cuda.attention.sums import Along, summed
from dslc.compiler.codegen.cuda.contraction.lower import tiled_launches
from dslc.compiler.codegen.cuda.contraction.output import Output
from dslc.compiler.codegen.cuda.contraction.problem import Axes, Group, Operand, problem
from dslc.compiler.codegen.launch import Argument, Launch, Scratch
from dslc.compiler.codegen.lowerings import lowers
from dslc.compiler.codegen.region.builder import RegionBuilder
from dslc.compiler.codegen.region.ir import Access, Region, broadcast_strides, dense
from dslc.compiler.ir.graph import Node, Value
from dslc.compiler.ir.scalar import Expr, call, select
from dslc.compiler.ir.types import DType
from dslc.compiler.ops.attrs import bool_attr, flag_attr, float_attr
from dslc.compiler.ops.compound.strided_attention import fits_tiles, reads_of, terms_of, unstrided, writes_of
from dslc.compiler.ops.products.attention_terms import is_plain


class _Attention:
    """The sizes of one attention; allocates its scratch blocks."""

    def __init__(self, node: Node) -> None:
        q, k, v = node.input_types[:3]
        *self.lead, self.queries, self.features = q.ints
        self.keys, self.values = k.ints[-2], v.ints[-1]
        self.dtype, self.wide = q.dtype, q.dtype.computed
        self.stack = prod(self.lead)
        self.causal, self.scale = bool_attr(node.attrs, "causal"), float_attr(node.attrs, "scale")
        self.tf32 = flag_attr(node.attrs, "tf32")
        self._blocks = 0

    def scratch(self, dtype: DType, *shape: int) -> Scratch:
        self._blocks += 1
        return Scratch(self._blocks - 1, max(1, self.stack * prod(shape)) * dtype.itemsize)

    def product(
        self,
        sizes: tuple[int, int, int],
        a: tuple[Argument, str, DType],
        b: tuple[Argument, str, DType],
        c: tuple[Argument, DType],
    ) -> list[Launch]:
        """c [m, n] = a times b for each matrix of the stack; ``a`` is laid out as "mk" or "km", ``b`` as "kn" or
        "nk"."""
        size = dict(zip("mnk", sizes))

        def operand(names: str, dtype: DType) -> Operand:
            rows, cols = size[names[0]], size[names[1]]
            strides = (("stack", rows * cols), (names[0], cols), (names[1], 1))
            return Operand(dtype, self.stack * rows * cols, strides)

        axes: dict[Group, Axes] = {
            "z": [("stack", self.stack)], "m": [("m", size["m"])], "n": [("n", size["n"])], "k": [("k", size["k"])]
        }  # fmt: skip
        one = problem(axes, operand(a[1], a[2]), operand(b[1], b[2]), operand("mn", c[1]))
        made = tiled_launches([one], (a[0], b[0]), Output(c[0], self._blocks), self.tf32)
        self._blocks += len({x.number for launch in made for x in launch.scratch} - {*range(self._blocks)})
        return made

    def rows(self, inputs: Sequence[Access], outputs: Sequence[Access]) -> RegionBuilder:
        """A region over the rows of scores."""
        return RegionBuilder([*self.lead, self.queries], [self.keys], inputs, outputs, [len(self.lead)])

    @property
    def scores(self) -> Access:
        return Access(self.wide, dense([*self.lead, self.queries, self.keys]))

    @property
    def weights(self) -> Access:
        return Access(self.dtype, dense([*self.lead, self.queries, self.keys]))

    @property
    def row(self) -> Access:
        return Access(self.wide, (*dense([*self.lead, self.queries]), 0))

    def terms(self, node: Node) -> list[Access]:
        """How the mask and the bias are read."""
        wide = [*self.lead, self.queries, self.keys]
        return [Access(x.type.dtype, broadcast_strides(x.type.ints, wide)) for x in terms_of(node)]

    def score(self, b: RegionBuilder, node: Node, first: int) -> Expr:
        """The scaled score of an element with its bias, minus infinity if it is masked; input 0 is the product, and the
        mask and the bias begin with input ``first``."""
        x = b.let(b.input(0) * self.scale, self.wide)
        terms = [(term.type.dtype, b.input(first + n)) for n, term in enumerate(terms_of(node))]
        for dtype, term in terms:
            x = x if dtype is DType.B1 else b.let(x + b.let(term, self.wide), self.wide)
        if self.causal:
            x = b.let(select(b.index <= b.along(len(self.lead)), x, -math.inf), self.wide)
        for dtype, term in terms:
            x = b.let(select(term, x, -math.inf), self.wide) if dtype is DType.B1 else x
        return x

    def slope(self, of: Value) -> Region:
        """The region that adds gradients of scores along the axes over which a bias is broadcast."""
        wide = [*self.lead, self.queries, self.keys]
        strides = zip(wide, dense(wide), broadcast_strides(of.type.ints, wide))
        axes = [Along(n, read, written if written or n == 1 else None) for n, read, written in strides]
        return summed(axes, self.wide, of.type.dtype)


@lowers("sdpa", target="cuda")
def sdpa(node: Node) -> list[Launch] | None:
    """Scores, a softmax of their rows, and the weighted sum of the values."""
    if fits_tiles(node):
        return tiled.sdpa(node)
    if not is_plain(node):
        return None  # a pass has replaced it
    a = _Attention(node)
    (q, k, v, *terms), (y, lse) = node.inputs, node.outputs
    scores, weights = a.scratch(a.wide, a.queries, a.keys), a.scratch(a.dtype, a.queries, a.keys)
    b = a.rows([a.scores, *a.terms(node)], [a.row, a.weights])
    b.element()
    top = b.reduce("max", a.score(b, node, 1))
    b.row()
    shift = b.let(select(call("eq", top, -math.inf), 0.0, top), a.wide)
    b.element()
    total = b.reduce("sum", b.let(call("exp", a.score(b, node, 1) - shift), a.wide))
    b.row()
    b.store(0, b.let(call("log", total) + top, a.wide))
    below = b.let(select(call("eq", total, 0.0), 1.0, total), a.wide)
    b.element()
    b.store(1, b.let(call("exp", a.score(b, node, 1) - shift) / below, a.dtype))
    return [
        *a.product((a.queries, a.keys, a.features), (q, "mk", a.dtype), (k, "nk", a.dtype), (scores, a.wide)),
        Launch(b.region(), (scores, *terms), (lse, weights)),
        *a.product((a.queries, a.values, a.keys), (weights, "mk", a.dtype), (v, "kn", a.dtype), (y, a.dtype)),
    ]


@lowers("sdpa_grad", target="cuda")
def sdpa_grad(node: Node) -> list[Launch] | None:
    """Recomputes the scores; computes their gradient from dy, v and the row's sum of dy * y; then the three
    products."""
    if fits_tiles(node):
        return tiled.sdpa_grad(node)
    if not is_plain(node):
        return None
    a = _Attention(node)
    (q, k, v, y, lse, dy, *terms), (dq, dk, dv, *of_bias) = node.inputs, node.outputs
    scores, slopes = (a.scratch(a.wide, a.queries, a.keys) for _ in range(2))
    weights, scaled = (a.scratch(a.dtype, a.queries, a.keys) for _ in range(2))
    shared = a.scratch(a.wide, a.queries)
    sums = RegionBuilder(
        [*a.lead, a.queries], [a.values], [Access(a.dtype, dense([*a.lead, a.queries, a.values]))] * 2, [a.row]
    )
    sums.element()
    wide = [sums.let(sums.input(i), a.wide) for i in range(2)]
    total = sums.reduce("sum", sums.let(wide[0] * wide[1], a.wide))
    sums.row()
    sums.store(0, total)
    raw = [a.scratch(a.wide, a.queries, a.keys) for _ in of_bias]
    b = a.rows([a.scores, a.scores, a.row, a.row, *a.terms(node)], [a.weights, a.weights, *(a.scores for _ in raw)])
    b.row()
    shift = b.let(select(call("eq", b.input(2), -math.inf), 0.0, b.input(2)), a.wide)
    b.element()
    weight = b.let(call("exp", a.score(b, node, 4) - shift), a.wide)
    b.store(0, b.let(weight, a.dtype))
    b.store(1, b.let(weight * (b.input(1) - b.input(3)) * a.scale, a.dtype))
    for number, _ in enumerate(raw, 2):
        b.store(number, b.let(weight * (b.input(1) - b.input(3)), a.wide))
    pairs, turned = (a.queries, a.keys), (a.keys, a.queries)
    return [
        *a.product((*pairs, a.features), (q, "mk", a.dtype), (k, "nk", a.dtype), (scores, a.wide)),
        *a.product((*pairs, a.values), (dy, "mk", a.dtype), (v, "nk", a.dtype), (slopes, a.wide)),
        Launch(sums.region(), (dy, y), (shared,)),
        Launch(b.region(), (scores, slopes, lse, shared, *terms), (weights, scaled, *raw)),
        *a.product((a.queries, a.features, a.keys), (scaled, "mk", a.dtype), (k, "kn", a.dtype), (dq, a.dtype)),
        *a.product((turned[0], a.features, turned[1]), (scaled, "km", a.dtype), (q, "kn", a.dtype), (dk, a.dtype)),
        *a.product((turned[0], a.values, turned[1]), (weights, "km", a.dtype), (dy, "kn", a.dtype), (dv, a.dtype)),
        *(Launch(a.slope(to), (block,), (to,)) for block, to in zip(raw, of_bias)),
    ]


@lowers("strided_sdpa", target="cuda")
def strided_sdpa(node: Node) -> list[Launch] | None:
    """The tiled kernel on views; None if it does not fit."""
    own = unstrided(node)
    if not fits_tiles(own):
        return None
    [(number, y), _] = writes_of(node.attrs)
    made = tiled.sdpa(own, [*reads_of(node.attrs)[:3], y])
    place = dict(zip((*own.inputs, *own.outputs), (*node.inputs, node.outputs[number], node.outputs[1 - number])))
    return [launch.on_values(place) for launch in made]


@lowers("strided_sdpa_grad", target="cuda")
def strided_sdpa_grad(node: Node) -> list[Launch] | None:
    """The tiled kernels on views; None if they do not fit."""
    own = unstrided(node)
    if not fits_tiles(own):
        return None
    q, k, v, y, _, dy, *_ = reads_of(node.attrs)
    writes = writes_of(node.attrs)
    views = [q, k, v, y, dy, *(view for _, view in writes)]
    outputs = [node.outputs[number] for number, _ in writes]
    made = tiled.sdpa_grad(own, views, outputs)
    place = dict(zip((*own.inputs, *outputs), (*node.inputs, *outputs)))
    return [launch.on_values(place) for launch in made]
