"""Regions over the classes of a target: cross entropy, its gradient, both at once; and in_top_k."""

from __future__ import annotations

import math

from dslc.compiler.codegen.launch import Launch
from dslc.compiler.codegen.lowerings import lowers
from dslc.compiler.codegen.region.reduction import RowsBuilder
from dslc.compiler.ir.graph import Node
from dslc.compiler.ir.scalar import Expr, as_expr, call, select
from dslc.compiler.ir.types import DType
from dslc.compiler.ops.attrs import float_attr, int_attr


class Classes:
    """The target of a loss over classes: its class index, and whether that is valid."""

    def __init__(self, rows: RowsBuilder, target: Expr) -> None:
        self.rows = rows
        self.ignore = int_attr(rows.node.attrs, "ignore_index") if "ignore_index" in rows.node.attrs else None
        rows.b.row()
        self.place = rows.let(target, DType.I64)
        self.known = rows.let(call("and", self.place >= 0, self.place < rows.count), DType.B1)

    def hit(self) -> Expr:
        """Whether this element is the target's."""
        return call("eq", self.rows.b.index, self.place)

    def checked(self, value: Expr) -> Expr:
        """``value``; 0 if the target is ignored, nan if it is not a valid class. Invalid input data was already
        refused; nan exposes an invalid class that the model itself computes."""
        value = select(self.known, value, math.nan)
        return value if self.ignore is None else select(call("eq", self.place, self.ignore), 0.0, value)


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


@lowers("in_top_k")
def in_top_k(node: Node) -> list[Launch]:
    rows = RowsBuilder(node, node.input_types[0].ints, [int_attr(node.attrs, "axis")], ["x", "row"], ["row"])
    x, classes = rows.input(0), Classes(rows, rows.input(1))
    own = rows.sum(select(classes.hit(), x, 0.0))
    tied = call("and", call("eq", x, own), rows.b.index < classes.place)
    ahead = call("or", call("or", x > own, call("ne", x, x)), tied)
    before = rows.sum(ahead, DType.I64)
    rows.b.row()
    right = call("and", call("and", before < int_attr(node.attrs, "top"), classes.known), call("eq", own, own))
    rows.store(0, right)
    return rows.launch()
