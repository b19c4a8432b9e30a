"""Regions of cross entropy: the loss of each row of logits, their gradient, and both at once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from dslc.compiler.codegen.launch import Launch
from dslc.compiler.codegen.rows import Classes, Rows
from dslc.compiler.ir.graph import Node
from dslc.compiler.ir.scalar import Expr, as_expr, call, select
from dslc.compiler.ir.types import DType
from dslc.compiler.ops.attrs import float_attr, int_attr


class _Entropy:
    """What the regions of a node share: rows of logits along the class axis, and the target of each."""

    def __init__(self, node: Node, reads: list[str], writes: list[str]) -> None:
        self.rows = Rows(node, node.input_types[0].ints, [int_attr(node.attrs, "axis")], ["x", *reads], writes)
        self.smoothing = float_attr(node.attrs, "smoothing")
        self.x, self.classes = self.rows.input(0), Classes(self.rows, self.rows.input(1))

    def loss(self) -> tuple[Expr, Expr]:
        """The loss, and the log of the sum of exponentials; leaves a stage of the row open."""
        rows, x, classes = self.rows, self.x, self.classes
        top = rows.extreme("max", x)
        rows.b.element()
        added = [call("exp", x - top), select(classes.hit(), x, 0.0), *[x] * bool(self.smoothing)]
        below, own, *every = (rows.b.reduce("sum", value) for value in [rows.let(each) for each in added])
        rows.b.row()
        lse = rows.let(call("log", below) + top)
        loss = (lse - own) * (1 - self.smoothing)
        if every:
            loss = loss + (lse - every[0] / float(rows.count)) * self.smoothing
        return classes.checked(rows.let(loss)), lse

    def slope(self, lse: Expr, dy: Expr) -> Expr:
        """The gradient of an element, in a stage of elements."""
        rows = self.rows
        rows.b.element()
        hit = rows.let(self.classes.hit(), DType.B1)
        share = call("exp", self.x - lse)
        if self.smoothing:
            share = share - self.smoothing / rows.count
        found = select(hit, share - (1 - self.smoothing), share) * dy  # one tree: of 16 bits it is computed as such
        return self.classes.checked(found)


def softmax_cross_entropy(node: Node) -> list[Launch]:
    region = _Entropy(node, ["row"], ["row", "row"])
    loss, lse = region.loss()
    region.rows.store(0, loss)
    region.rows.store(1, lse)
    return region.rows.launch()


def softmax_cross_entropy_grad(node: Node) -> list[Launch]:
    region = _Entropy(node, ["row", "row", "row"], ["x"])
    region.rows.store(0, region.slope(region.rows.input(2), region.rows.input(3)))
    return region.rows.launch()


def softmax_cross_entropy_both(node: Node) -> list[Launch]:
    region = _Entropy(node, ["row"] * (len(node.inputs) - 1), ["row", "x"])
    loss, lse = region.loss()
    rows = region.rows
    rows.store(0, loss)
    dy = rows.input(2) if len(node.inputs) > 2 else rows.let(as_expr(float_attr(node.attrs, "dy")), node.types[0].dtype)
    rows.store(1, region.slope(lse, dy))
    return rows.launch()


LOWERED: Final[Mapping[str, Callable[[Node], list[Launch]]]] = {
    "softmax_cross_entropy": softmax_cross_entropy,
    "softmax_cross_entropy_grad": softmax_cross_entropy_grad,
    "softmax_cross_entropy_both": softmax_cross_entropy_both,
}
