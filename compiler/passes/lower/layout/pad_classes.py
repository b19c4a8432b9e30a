"""Pads the classes of a loss to whole rows of 128 bytes, so that a library's products read and write aligned rows.

Before, with 50,257 classes::

    %2 = matmul %x, %w {transpose_b=True, ...} : bf16[64, 50257]  # head forward
    %3, %4, %5 = softmax_cross_entropy %2, %label {...} : f32[64], f32[64], f32[64]  # loss forward
    %6 = softmax_cross_entropy_grad %2, %label, %4, %5, %dy {...} : bf16[64, 50257]  # loss backward
    %7 = matmul %6, %w {...} : bf16[64, 768]  # head backward

After::

    %2 = pad %w {high=(47, 0), value=0.0, ...} : bf16[50304, 768]  # head forward
    %3 = a bias of zeros, padded by minus infinity : bf16[50304]  # head forward
    %5 = %x times %2, plus %3 : bf16[64, 50304]  # head forward
    %6, %7, %8 = softmax_cross_entropy %5, %label {...} : f32[64], f32[64], f32[64]  # loss forward
    %9 = softmax_cross_entropy_grad %5, %label, %7, %8, %dy {...} : bf16[64, 50304]  # loss backward
    %10 = matmul %9, %2 {...} : bf16[64, 768]  # head backward

The logits that are added are minus infinity: they change no loss, and their gradients are 0. Only sums may be in
another order. All that reads the logits or their gradient must be the loss, products, sums over rows, or reshapes that
keep the classes; smoothing would give the added classes a share. For builds with libraries; linear in nodes and reads.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

from dslc.compiler.ir.graph import Attr, Graph, Node, Value
from dslc.compiler.ir.op import OPS, Builder
from dslc.compiler.ops.attrs import bool_attr, float_attr, int_attr, int_tuple
from dslc.compiler.ops.loss.cross_entropy import softmax_cross_entropy, softmax_cross_entropy_grad
from dslc.compiler.passes.queries import producer_before

_ALIGNED: Final = 16  # bytes of a row that products read at once
_WHOLE: Final = 128  # bytes to which rows are padded
_FEWEST: Final = 1024  # classes that are worth it

_Readers = Mapping[Value, list[Node]]


def pad_classes(graph: Graph) -> Graph:
    """The graph with padded classes; the same object if nothing is padded."""
    readers, roots = graph.readers(), set(graph.roots)
    whole: dict[Node, set[Value]] = {}
    for node in graph.nodes:
        if node.op is softmax_cross_entropy and (first := _product(node.inputs[0])) is not None and first not in whole:
            reached = _reached(first.out, readers, roots)
            if reached is not None:
                whole[first] = reached
    if not whole:
        return graph
    padder = _Padder(set[Value]().union(*whole.values()), set(whole))
    for node in graph.nodes:
        padder.node(node)
    return graph.replace_values(padder.new)


def _product(logits: Value) -> Node | None:
    """The product of matrices that gives logits whose rows are not aligned, up to reshapes and a bias."""
    made = producer_before(logits, ("reshape", "add"))
    if not isinstance(made, Node) or made.op.name != "matmul" or made.inputs[1].type.rank != 2:
        return None
    classes, each = made.types[0].ints[-1], made.types[0].dtype.itemsize
    return made if classes >= _FEWEST and classes * each % _ALIGNED else None


def _reached(product: Value, readers: _Readers, roots: Collection[Value]) -> set[Value] | None:
    """The values whose last axis is that of the classes of a product; None if anything reads one in another way."""
    classes, found, waiting = product.type.ints[-1], {product}, [product]
    while waiting:
        value = waiting.pop()
        if value in roots:
            return None
        for node in readers.get(value, ()):
            kind = _kind(node, value, classes)
            if kind is None:
                return None
            if kind == "classes" and node.outputs[0] not in found:
                found.add(node.outputs[0])
                waiting.append(node.outputs[0])
    return found


def _kind(node: Node, value: Value, classes: int) -> str | None:
    """The kind of a reader's result: ``classes`` again, or ``else``; None if it cannot read padded classes."""
    name, type = node.op.name, node.types[0]
    if node.op is softmax_cross_entropy or node.op is softmax_cross_entropy_grad:
        if int_attr(node.attrs, "axis") != value.type.rank - 1 or float_attr(node.attrs, "smoothing"):
            return None
        return "classes" if node.op is softmax_cross_entropy_grad else "else"
    if name == "reshape":
        return "classes" if type.ints[-1:] == (classes,) else None
    if name == "add":
        return "classes" if node.inputs[0] is value and node.inputs[1].type.shape == (classes,) else None
    if name == "sum_to":
        return "else" if type.ints == (classes,) else None
    if name != "matmul" or node.inputs.count(value) != 1 or node.inputs[1].type.rank != 2:
        return None
    if node.inputs[0] is value:  # turned, the classes are rows of a result
        return "else" if value.type.rank == 2 or not bool_attr(node.attrs, "transpose_a") else None
    return None if bool_attr(node.attrs, "transpose_b") else "else"


class _Padder:
    """``new``: an old value -> what replaces it. ``padded``: an old value of classes -> the same, padded."""

    def __init__(self, classes: Collection[Value], products: Collection[Node]) -> None:
        self.classes, self.products = classes, products
        self.new: dict[Value, Value] = {}
        self.padded: dict[Value, Value] = {}
        self.operands: dict[tuple[Value, int], Value] = {}

    def node(self, node: Node) -> None:
        """Rewrites a node."""
        fresh = node.reading(self.new)
        read = [x for x in node.inputs if x in self.padded]
        if node in self.products:
            self.padded[node.out] = self._logits(node, fresh)
        elif read:
            self._reader(node, fresh, read[0])
        elif fresh is not node:
            self.new.update(zip(node.outputs, fresh.outputs))

    def _logits(self, node: Node, fresh: Node) -> Value:
        """The product, plus minus infinity for the classes that are added."""
        b, type = Builder().at(node, node.phase), node.types[0]
        turned = bool_attr(node.attrs, "transpose_b")
        weight = self._operand(fresh.inputs[1], 0 if turned else 1, b)
        product = b(node.op, fresh.inputs[0], weight, **node.attrs)
        row = b(OPS["full"], value=0.0, dtype=type.dtype, shape=type.ints[-1:])
        return b(OPS["add"], product, _padded(b, row, 0, "-inf"))

    def _reader(self, node: Node, fresh: Node, value: Value) -> None:
        b, wide = Builder().at(node, node.phase), self.padded[value]
        inputs = [wide if x is value else y for x, y in zip(node.inputs, fresh.inputs)]
        attrs: dict[str, Attr] = dict(node.attrs)
        if node.op.name == "add":
            inputs[1] = self._operand(fresh.inputs[1], 0, b)
        elif node.op.name in ("reshape", "sum_to"):
            attrs["shape"] = (*int_tuple(node.attrs, "shape")[:-1], wide.type.ints[-1])
        elif node.op.name == "matmul" and node.inputs[0] is value and not bool_attr(node.attrs, "transpose_a"):
            inputs[1] = self._operand(fresh.inputs[1], 1 if bool_attr(node.attrs, "transpose_b") else 0, b)
        found = b.node(node.op, *inputs, **attrs)
        if node.outputs[0] in self.classes:
            self.padded[node.outputs[0]] = found.outputs[0]
        elif found.types == node.types:
            self.new.update(zip(node.outputs, found.outputs))
        else:
            self.new[node.out] = _cut(b, found.out, node.types[0].ints)

    def _operand(self, value: Value, axis: int, b: Builder) -> Value:
        """An operand with an axis of classes, padded by zeros; each once."""
        if (value, axis) not in self.operands:
            self.operands[value, axis] = _padded(b, value, axis, 0.0)
        return self.operands[value, axis]


def _padded(b: Builder, value: Value, axis: int, by: float | str) -> Value:
    rank, each = value.type.rank, value.type.dtype.itemsize
    more = -value.type.ints[axis] % (_WHOLE // each)
    high = tuple(more if at == axis else 0 for at in range(rank))
    return b(OPS["pad"], value, low=(0,) * rank, high=high, interior=(0,) * rank, value=by)


def _cut(b: Builder, value: Value, shape: tuple[int, ...]) -> Value:
    """The first elements of each axis."""
    rank = len(shape)
    return b(OPS["slice"], value, starts=(0,) * rank, stops=shape, steps=(1,) * rank)
