"""Moves channels last in images that tensor cores read: convolutions then read runs of channels, as these need them.

Before, with x, w, y in bf16::

    %1 = conv %x, %w : bf16[8, 64, 14, 14]
    %2 = relu %1 : bf16[8, 64, 14, 14]
    %3 = conv %2, %v : bf16[8, 32, 14, 14]

After::

    %1 = transpose %x {perm=(0, 2, 3, 1)} : bf16[8, 14, 14, 16]
    %2 = transpose %w {perm=(0, 2, 3, 1)} : bf16[64, 3, 3, 16]
    %3 = conv_last %1, %2 : bf16[8, 14, 14, 64]
    %4 = relu %3 : bf16[8, 14, 14, 64]
    %5 = transpose %v {perm=(0, 2, 3, 1)} : bf16[32, 3, 3, 64]
    %6 = conv_last %4, %5 : bf16[8, 14, 14, 32]
    %7 = transpose %6 {perm=(0, 3, 1, 2)} : bf16[8, 32, 14, 14]

Values computed with channels last keep that layout through pointwise ops, pools, norms, concat, slice, pad, reductions,
and transposes of the parts of axes (``regrouped.py``). A transpose remains only before an op that needs channels first.
Each value is transposed once. GPU only: the CPU's kernels read any strides. Results keep their bits up to the order of
sums in convolutions and reductions.

Of 16-bit images; also of f32 images if their factors are rounded to TF32 and libraries are called: cuDNN's TF32
algorithms move channels last by themselves, at each call and in a workspace as large as the tensors. Pointwise
convolutions between values with channels first stay there, as products, if that is faster (``pointwise_first.py``).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Final

from dslc.compiler.cost import Machine, machine_of
from dslc.compiler.ir.build import Build
from dslc.compiler.ir.graph import Attr, Graph, Node, Value, order
from dslc.compiler.ir.op import Builder, Op, Pointwise
from dslc.compiler.ir.types import DType
from dslc.compiler.ops.attrs import bool_attr, int_attr
from dslc.compiler.ops.reduction.reduce import Reduction
from dslc.compiler.ops.shape.broadcast import SumTo
from dslc.compiler.ops.spatial.channels_last import GROUPED_LAST, LAST, last_type, to_first, to_last
from dslc.compiler.ops.spatial.conv import Convolution
from dslc.compiler.passes.lower.layout.axis_order import attrs_along, reduced_axes, reshaped, summed_shape, transposed
from dslc.compiler.passes.lower.layout.pointwise_first import Turned, directly, kept_first
from dslc.compiler.passes.lower.layout.regrouped import merged_last, split_parts
from dslc.compiler.passes.lower.layout.wide_convolutions import widened

#: Normalisations along the axis of an attribute, of images and their gradients; the other tensors have no channels, or
#: nothing else.
_NORMS: Final = ("layernorm", "layernorm_grad", "rmsnorm", "rmsnorm_grad")
_HALF: Final = frozenset({DType.BF16, DType.F16})
_OPS_LAST: Final = {**LAST, **GROUPED_LAST}


@dataclass(frozen=True)
class Rule:
    """``wanted``: which convolutions read runs of channels. ``machine``: by whose times pointwise ones keep channels
    first; None if none does."""

    wanted: Callable[[Node], bool]
    machine: Machine | None = None


def on_tensor_cores(build: Build) -> Rule:
    """The rule of a build. It does not depend on measured times, so that a lock does not change layouts."""
    tf32 = build.precision.tf32 and build.provider == "vendor"
    dtypes = _HALF | {DType.F32} if tf32 else _HALF
    return Rule(lambda node: node.types[0].dtype in dtypes, machine_of(build.target, build.provider))


def channels_last(graph: Graph, rule: Rule) -> Graph:
    """The graph with channels last after every wanted convolution; the same object if it has none."""
    if not any(isinstance(n.op, Convolution) and n.types[0].rank > 2 and rule.wanted(n) for n in graph.nodes):
        return graph
    turner, found = _turned(graph, rule.wanted)
    if rule.machine is not None:
        kept = kept_first(graph, rule.wanted, turner.turned(), rule.machine)
        if kept:
            _, found = _turned(graph, rule.wanted, kept)
    return found


def _turned(
    graph: Graph, wanted: Callable[[Node], bool], kept: Collection[Node] = frozenset()
) -> tuple[_Turner, Graph]:
    """The graph with all wanted convolutions turned but those that are ``kept``."""
    turner = _Turner(wanted, kept)
    for node in graph.nodes:
        turner.node(node)
    outputs = {name: turner.first(value) for name, value in graph.outputs.items()}
    updates = tuple((source, turner.first(value)) for source, value in graph.updates)
    return turner, Graph(graph.inputs, order([*outputs.values(), *(v for _, v in updates)]), outputs, updates)


class _Turner:
    """Rewrites nodes to channels last. ``first_of`` and ``last_of``: an old value -> its new value with channels first
    or last."""

    def __init__(self, wanted: Callable[[Node], bool], kept: Collection[Node]) -> None:
        self.wanted = wanted
        self.kept = kept
        self.first_of: dict[Value, Value] = {}
        self.last_of: dict[Value, Value] = {}
        self.computed_last: set[Value] = set()

    def first(self, old: Value) -> Value:
        if old in self.last_of and old not in self.first_of:
            self.first_of[old] = transposed(self.last_of[old], to_first(old.type.rank))
        return self.first_of.get(old, old)

    def last(self, old: Value) -> Value:
        if old.type.rank < 3:
            return self.first(old)
        if old not in self.last_of:
            made = old.producer
            if isinstance(made, Node) and made.op.name == "expand" and made.inputs[0].type.rank == old.type.rank:
                shape = last_type(old.type).shape
                self.last_of[old] = Builder().at(made, made.phase)(made.op, self.last(made.inputs[0]), shape=shape)
            else:
                self.last_of[old] = transposed(self.first(old), to_last(old.type.rank))
        return self.last_of[old]

    def turned(self) -> Turned:
        """What was turned."""
        return Turned(self.last_of, self.computed_last, self.first_of)

    def node(self, node: Node) -> None:
        if node in self.kept:
            self.first_of[node.out] = directly(Builder().at(node, node.phase), node, map(self.first, node.inputs))
        elif not self._turned(node):
            fresh = node.with_inputs(tuple(self.first(v) for v in node.inputs))
            if fresh is not node:
                self.first_of.update(zip(node.outputs, fresh.outputs))

    def _turned(self, node: Node) -> bool:
        """Emits the node with channels last if that is supported and useful; returns whether it did."""
        if node.op in _OPS_LAST and node.inputs[0].type.rank > 2 and self._starts(node):
            inputs = [self.last(v) for v in node.inputs]
            wide = widened(Builder().at(node, node.phase), node, inputs) if isinstance(node.op, Convolution) else None
            if wide is None:
                self._emit(node, _OPS_LAST[node.op], inputs)
            else:
                self.last_of[node.out] = wide
                self.computed_last.add(node.out)
            return True
        if self._parts(node):
            return True
        if not any(v in self.computed_last for v in node.inputs):
            return False
        if isinstance(node.op, Pointwise) and not node.op.random and node.types[0].rank > 2:
            self._emit(node, node.op, [self._aligned(v, node.types[0].rank) for v in node.inputs])
            return True
        if isinstance(node.op, Reduction):
            return self._reduction(node)
        if node.op.name in _NORMS and int_attr(node.attrs, "axis") == 1 and node.types[0].rank > 2:
            self._norm(node, node.types[0].rank)
            return True
        if isinstance(node.op, SumTo):
            return self._sum_to(node)
        attrs = attrs_along(node, to_last(node.types[0].rank))
        if attrs is None:
            return False
        self._emit(node, node.op, [self.last(v) for v in node.inputs], **attrs)
        return True

    def _starts(self, node: Node) -> bool:
        """Whether a convolution is wanted with channels last. Other ops need an input that already is channels last."""
        if isinstance(node.op, Convolution):
            return self.wanted(node)
        return any(v in self.computed_last for v in node.inputs)

    def _parts(self, node: Node) -> bool:
        """A transpose of the parts of an image's axes, and the reshape that makes an image of these parts."""
        moved = node.inputs[0].producer if node.op.name == "reshape" else node
        parts = split_parts(moved) if isinstance(moved, Node) else None
        if parts is None or parts.source not in self.computed_last:
            return False
        b, last = Builder().at(node, node.phase), self.last(parts.source)
        if moved is node:
            self.first_of[node.out] = parts.of_last(b, last, parts.perm)
            return True
        image = merged_last(b, node, parts, last)
        if image is None:
            return False
        self.last_of[node.out] = image
        self.computed_last.add(node.out)
        return True

    def _emit(self, node: Node, op: Op, inputs: Sequence[Value], **changed: Attr) -> None:
        fresh = Builder().at(node, node.phase).node(op, *inputs, **{**node.attrs, **changed})
        for old, new in zip(node.outputs, fresh.outputs):
            if old.type.rank > 2:
                self.last_of[old] = new
                self.computed_last.add(old)
            else:
                self.first_of[old] = new

    def _aligned(self, old: Value, rank: int) -> Value:
        """A pointwise op's input for a result with channels last; an input of lower rank first gets leading axes of
        size 1."""
        if old.type.rank == rank or old.type.rank == 0:
            return self.last(old)
        x = self.first(old)
        shape = (1,) * (rank - x.type.rank) + x.type.shape
        return transposed(reshaped(x, shape), to_last(rank))

    def _reduction(self, node: Node) -> bool:
        [x] = node.inputs
        over = reduced_axes(node, to_first(x.type.rank))
        if over is None:
            return False
        fresh = Builder().at(node, node.phase).node(node.op, self.last(x), **{**node.attrs, "over": over})
        if bool_attr(node.attrs, "keep") and node.types[0].rank > 2:
            self.last_of[node.out] = fresh.out
            self.computed_last.add(node.out)
        else:
            self.first_of[node.out] = fresh.out
        return True

    def _norm(self, node: Node, rank: int) -> None:
        """A normalisation of each place of an image, over its channels."""
        inputs = [self.last(v) if v.type.rank == rank else self.first(v) for v in node.inputs]
        fresh = Builder().at(node, node.phase).node(node.op, *inputs, **{**node.attrs, "axis": rank - 1})
        for old, new in zip(node.outputs, fresh.outputs):
            if old.type.rank == rank:
                self.last_of[old] = new
                self.computed_last.add(old)
            else:
                self.first_of[old] = new

    def _sum_to(self, node: Node) -> bool:
        """Sums to an image's shape, which then has channels last, or to one that keeps the order of the axes."""
        [x] = node.inputs
        rank = x.type.rank
        if rank < 3:
            return False
        if node.types[0].rank == rank:
            shape = node.types[0].shape
            self._emit(node, node.op, [self.last(x)], shape=tuple(shape[axis] for axis in to_last(rank)))
            return True
        summed = summed_shape(node, to_first(rank))
        if summed is None:
            return False
        small = Builder().at(node, node.phase)(node.op, self.last(x), shape=summed)
        self.first_of[node.out] = reshaped(small, node.types[0].shape)
        return True
