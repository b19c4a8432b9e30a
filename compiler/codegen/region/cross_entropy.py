"""Regions of cross entropy: the loss of each row of logits, their gradient, and both at once."""

from __future__ import annotations

from dslc.compiler.codegen.launch import Launch
from dslc.compiler.codegen.lowerings import lowers
from dslc.compiler.codegen.region.reduction import Classes, RowsBuilder
from dslc.compiler.ir.graph import Node
from dslc.compiler.ir.scalar import Expr, as_expr, call, select
from dslc.compiler.ir.types import DType
from dslc.compiler.ops.attrs import float_attr, int_attr


class _Entropy:
    """State that the regions of a node share: rows of logits along the class axis, and the target of each."""

    def __init__(self, node: Node, reads: list[str], writes: list[str]) -> None:
        self.rows = RowsBuilder(node, node.input_types[0].ints, [int_attr(node.attrs, "axis")], ["x", *reads], writes)
        self.smoothing = float_attr(node.attrs, "smoothing")
        self.x, self.classes = self.rows.input(0), Classes(self.rows, self.rows.input(1))

    def loss(self) -> tuple[Expr, Expr, Expr]:
        """The loss, the maximum logit, and the sum of exponentials relative to it; leaves a row stage open.

        Logits are read as differences from the maximum, which are exact for the logits that matter, and the logarithm
        is added to differences: a common offset of the logits never mixes with it.
        """
        rows, classes = self.rows, self.classes
        top = rows.extreme("max", self.x)
        rows.b.element()
        apart = self.x - top
        added = [call("exp", apart), select(classes.hit(), self.x, 0.0), *[apart] * bool(self.smoothing)]
        below, own, *every = (rows.b.reduce("sum", value) for value in [rows.let(each) for each in added])
        rows.b.row()
        rest = rows.let(call("log", below))
        loss = (rest - rows.let(own - top)) * (1 - self.smoothing)
        if every:
            loss = loss + (rest - every[0] / float(rows.count)) * self.smoothing
        return classes.checked(rows.let(loss)), top, below

    def slope(self, top: Expr, below: Expr, dy: Expr) -> Expr:
        """The gradient of an element, in an element stage; expects an open row stage."""
        rows, even = self.rows, self.smoothing / self.rows.count
        top, pace, own = rows.let(top), rows.let(dy / below), rows.let(dy * (even + (1 - self.smoothing)))
        others = rows.let(dy * even) if even else 0.0
        rows.b.element()
        hit = rows.let(self.classes.hit(), DType.B1)
        found = call("exp", self.x - top) * pace - select(hit, own, others)
        return self.classes.checked(found)  # one tree: 16-bit types compute it without rounding in between


@lowers("softmax_cross_entropy")
def softmax_cross_entropy(node: Node) -> list[Launch]:
    region = _Entropy(node, ["row"], ["row"] * 3)
    loss, top, below = region.loss()
    for number, value in enumerate((loss, top + 0.0, below)):  # the maximum may be -0.0: adding 0.0 makes it 0.0
        region.rows.store(number, value)
    return region.rows.launch()


@lowers("softmax_cross_entropy_grad")
def softmax_cross_entropy_grad(node: Node) -> list[Launch]:
    region = _Entropy(node, ["row"] * 4, ["x"])
    region.rows.store(0, region.slope(*(region.rows.input(i) for i in (2, 3, 4))))
    return region.rows.launch()


@lowers("softmax_cross_entropy_both")
def softmax_cross_entropy_both(node: Node) -> list[Launch]:
    region = _Entropy(node, ["row"] * (len(node.inputs) - 1), ["row", "x"])
    loss, top, below = region.loss()
    rows = region.rows
    rows.store(0, loss)
    dy = rows.input(2) if len(node.inputs) > 2 else rows.let(as_expr(float_attr(node.attrs, "dy")), node.types[0].dtype)
    rows.store(1, region.slope(top, below, dy))
    return rows.launch()
