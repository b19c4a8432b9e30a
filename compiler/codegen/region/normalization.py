"""Regions of normalisations: statistics of a row or a channel, then its elements; and their gradients."""

from __future__ import annotations

import math
from collections.abc import Sequence

from dslc.compiler.codegen.launch import Launch
from dslc.compiler.codegen.lowerings import lowers
from dslc.compiler.codegen.region.reduction import Kind, RowsBuilder
from dslc.compiler.ir.graph import Node, Value
from dslc.compiler.ir.scalar import Expr, call
from dslc.compiler.ops.attrs import float_attr, int_attr
from dslc.compiler.ops.spatial.channels_last import first_type


@lowers("layernorm")
def layernorm(node: Node) -> list[Launch]:
    reads = ["x", "along", "along", "first"]
    rows = RowsBuilder(node, node.input_types[0].ints, _axis(node), reads, ["x", "row", "row"], _and_first(node))
    return _normalised(rows, float_attr(node.attrs, "eps"))


@lowers("rmsnorm")
def rmsnorm(node: Node) -> list[Launch]:
    rows = RowsBuilder(node, node.input_types[0].ints, _axis(node), ["x", "along"], ["x", "row"])
    x = rows.input(0)
    squares = rows.sum(x * x)
    rows.b.row()
    scale = rows.let(1 / call("sqrt", squares / float(rows.count) + float_attr(node.attrs, "eps")))
    rows.store(1, scale)
    rows.b.element()
    rows.store(0, x * scale * rows.input(1))
    return rows.launch()


@lowers("batchnorm", "batchnorm_last")
def batchnorm(node: Node) -> list[Launch]:
    shape, momentum = node.input_types[0].ints, float_attr(node.attrs, "momentum")
    rows = RowsBuilder(
        node, shape, _channels(node), ["x", *["row"] * 4, "first"], ["x", *["row"] * 4], _and_first(node)
    )
    x, centre, spread, scale = _moments(rows, float_attr(node.attrs, "eps"))
    unbiased = spread * (rows.count / max(1, rows.count - 1))
    rows.store(1, rows.input(3) * (1 - momentum) + centre * momentum)
    rows.store(2, rows.input(4) * (1 - momentum) + rows.let(unbiased) * momentum)
    rows.store(3, centre)
    rows.store(4, scale)
    factor = rows.let(scale * rows.input(1))
    rows.b.element()
    rows.store(0, (x - centre) * factor + rows.input(2))
    return rows.launch()


@lowers("batchnorm_grad", "batchnorm_grad_last")
def batchnorm_grad(node: Node) -> list[Launch]:
    """The weight is a value per channel, so the channel's sums serve all three gradients."""
    rows = RowsBuilder(
        node, node.input_types[0].ints, _channels(node), ["x", "row", "row", "row", "x"], ["x", "row", "row"]
    )
    x, weight, centre, scale, dy = (rows.input(i) for i in range(5))
    added, sloped = _sums(rows, dy, (x - centre) * scale)
    rows.b.row()
    rows.store(1, sloped)
    rows.store(2, added)
    shared, slope = rows.let(weight * added / float(rows.count)), rows.let(weight * sloped / float(rows.count))
    rows.b.element()
    xhat = rows.let((x - centre) * scale)
    rows.store(0, (dy * weight - shared - xhat * slope) * scale)
    return rows.launch()


@lowers("layernorm_grad")
def layernorm_grad(node: Node) -> list[Launch]:
    """Reduces the gradient of x by rows, and those of weight and bias by columns, in a second launch."""
    shape, axis = node.input_types[0].ints, _axis(node)
    kinds = ["x", "along", "row", "row", "x"]
    rows = RowsBuilder(node, shape, axis, kinds, ["x"], outputs=node.outputs[:1])
    _through_moments(rows)
    others = [a for a in range(len(shape)) if a not in axis]
    inputs = (node.inputs[0], *node.inputs[2:])
    columns = RowsBuilder(node, shape, others, ["x", "along", "along", "x"], ["row", "row"], inputs, node.outputs[1:])
    return [*rows.launch(), *_of_weights(columns)]


def _through_moments(rows: RowsBuilder) -> None:
    """Output 0: the gradient of x, from inputs x, weight, mean, 1/std, dy."""
    x, weight, centre, scale, dy = (rows.input(i) for i in range(5))
    added, sloped = _sums(rows, dy * weight, (x - centre) * scale)
    rows.b.row()
    shared, slope = rows.let(added / float(rows.count)), rows.let(sloped / float(rows.count))
    rows.b.element()
    xhat = rows.let((x - centre) * scale)
    rows.store(0, (rows.let(dy * weight) - shared - xhat * slope) * scale)


def _of_weights(columns: RowsBuilder) -> list[Launch]:
    """The gradients of weight and bias, from inputs x, mean, 1/std, dy."""
    x, centre, scale, dy = (columns.input(i) for i in range(4))
    added, sloped = _sums(columns, dy, (x - centre) * scale)
    columns.b.row()
    columns.store(0, sloped)
    columns.store(1, added)
    return columns.launch()


@lowers("rmsnorm_grad")
def rmsnorm_grad(node: Node) -> list[Launch]:
    """Like layernorm_grad, without a mean."""
    shape, axis = node.input_types[0].ints, _axis(node)
    rows = RowsBuilder(node, shape, axis, ["x", "along", "row", "x"], ["x"], outputs=node.outputs[:1])
    x, weight, scale, dy = (rows.input(i) for i in range(4))
    _, sloped = _sums(rows, dy * weight, x * scale)
    rows.b.row()
    slope = rows.let(sloped / float(rows.count))
    rows.b.element()
    xhat = rows.let(x * scale)
    rows.store(0, (rows.let(dy * weight) - xhat * slope) * scale)
    others = [a for a in range(len(shape)) if a not in axis]
    inputs = (node.inputs[0], *node.inputs[2:])
    columns = RowsBuilder(node, shape, others, ["x", "along", "x"], ["row"], inputs, node.outputs[1:])
    x, scale, dy = (columns.input(i) for i in range(3))
    _, sloped = _sums(columns, dy, x * scale)
    columns.b.row()
    columns.store(0, sloped)
    return [*rows.launch(), *columns.launch()]


@lowers("groupnorm", "groupnorm_last")
def groupnorm(node: Node) -> list[Launch]:
    """Rows are the groups of an image; inner axes are a group's channels and their elements."""
    x = _Grouped(node, int_attr(node.attrs, "groups"))
    reads: list[Kind] = ["x", x.channel, x.channel, "first"]
    rows = RowsBuilder(node, x.shape, x.of_group, reads, ["x", "row", "row"], _and_first(node))
    return _normalised(rows, float_attr(node.attrs, "eps"))


@lowers("groupnorm_grad", "groupnorm_grad_last")
def groupnorm_grad(node: Node) -> list[Launch]:
    """Reduces the gradient of x by groups, and those of weight and bias by channels, in a second launch."""
    x = _Grouped(node, node.input_types[2].ints[1])
    reads: list[Kind] = ["x", x.channel, "row", "row", "x"]
    rows = RowsBuilder(node, x.shape, x.of_group, reads, ["x"], outputs=node.outputs[:1])
    _through_moments(rows)
    inputs, reads = (node.inputs[0], *node.inputs[2:]), ["x", x.row, x.row, "x"]
    columns = RowsBuilder(node, x.shape, x.of_channel, reads, ["row", "row"], inputs, node.outputs[1:])
    return [*rows.launch(), *_of_weights(columns)]


@lowers("channel_sums")
def channel_sums(node: Node) -> list[Launch]:
    """Rows are the channels of an image."""
    batch, *space, channels = node.input_types[0].ints
    twice = (*node.inputs, *node.inputs)
    rows = RowsBuilder(node, (batch, math.prod(space), channels), (1,), ["x", "first"], ["row", "row"], twice)
    rows.b.element()
    apart = rows.let(rows.input(0) - rows.input(1))
    squares = rows.let(apart * apart)
    sums = [rows.b.reduce("sum", value) for value in (apart, squares)]
    rows.b.row()
    for number, value in enumerate(sums):
        rows.store(number, value)
    return rows.launch()


@lowers("group_moments")
def group_moments(node: Node) -> list[Launch]:
    """Rows are groups, their inner axis is the channels."""
    each, places = node.input_types[0].ints[2], float(int_attr(node.attrs, "places"))
    shift: list[Kind] = [
        (math.prod(t.ints[1:]), each, along) for t in node.input_types[3:] for along in (1, 0)
    ]  # of each channel, and of the group's first
    rows = _channel_rows(node, shift, ["row", "row", "x", "x"], (*node.inputs, *node.inputs[3:]))
    apart = rows.input(0) / places
    means = rows.input(3) - rows.input(4) + apart if shift else apart
    total = rows.sum(means)
    rows.b.row()
    middle = rows.let(total / float(each))
    mean = rows.let(rows.input(4) + middle) if shift else middle
    rows.b.element()
    away = rows.let(means - middle)
    own = rows.let(call("max", rows.input(1) - rows.input(0) * apart, 0.0))
    squares = rows.b.reduce("sum", rows.let(own + away * away * places))
    rows.b.row()
    scale = rows.let(1 / call("sqrt", squares / (places * each) + float_attr(node.attrs, "eps")))
    rows.store(0, mean)
    rows.store(1, scale)
    rows.b.element()
    rows.store(2, mean)
    rows.store(3, scale * rows.input(2))
    return rows.launch()


@lowers("group_slopes")
def group_slopes(node: Node) -> list[Launch]:
    """Rows are groups, their inner axis is the channels."""
    channels = _channel_rows(node, ["row"], ["x", "x"])
    added, sloped, weight, scale = (channels.input(i) for i in range(4))
    first, second = _both_sums(channels, added * weight, sloped * weight)
    channels.b.row()
    share = channels.let(scale / float(int_attr(node.attrs, "count")))
    slope, shift = channels.let(second * scale * scale * share), channels.let(first * share)
    channels.b.element()
    channels.store(0, slope)
    channels.store(1, shift)
    return channels.launch()


def _channel_rows(
    node: Node, reads: Sequence[Kind], writes: Sequence[Kind], inputs: Sequence[Value] | None = None
) -> RowsBuilder:
    """Rows of sums ``[B, groups, channels of a group]``; the third input is a vector over all channels. ``reads``: the
    kinds of the others."""
    shape = node.input_types[0].ints
    return RowsBuilder(node, shape, (2,), ["x", "x", (0, shape[2], 1), *reads], writes, inputs)


class _Grouped:
    """x as ``[batch, groups, channels per group, elements]``, or with channels last ``[batch, elements, groups,
    channels per group]``. ``of_group`` and ``of_channel``: the axes of a group's and of a channel's elements;
    ``channel`` and ``row``: the strides of a channel vector and of a statistic."""

    def __init__(self, node: Node, groups: int) -> None:
        last = node.op.name.endswith("_last")
        batch, channels, *space = first_type(node.input_types[0]).ints if last else node.input_types[0].ints
        each, places = channels // groups, math.prod(space)
        order = (0, 3, 1, 2) if last else (0, 1, 2, 3)
        self.shape, self.channel, self.row = (
            tuple(numbers[axis] for axis in order)
            for numbers in ((batch, groups, each, places), (0, each, 1, 0), (groups, 1, 0, 0))
        )
        self.of_group, self.of_channel = ((1, 3), (0, 1)) if last else ((2, 3), (0, 3))


def _axis(node: Node) -> list[int]:
    return [int_attr(node.attrs, "axis")]


def _channels(node: Node) -> list[int]:
    """All axes except the channel axis."""
    rank = node.input_types[0].rank
    channels = rank - 1 if node.op.name.endswith("_last") else 1
    return [a for a in range(rank) if a != channels]


def _and_first(node: Node) -> tuple[Value, ...]:
    """The inputs, and x once more for each row's first element."""
    return (*node.inputs, node.inputs[0])


def _normalised(rows: RowsBuilder, eps: float) -> list[Launch]:
    """Rows of x with weight and bias: the elements, then the mean and the scale of each row."""
    x, centre, _, scale = _moments(rows, eps)
    rows.store(1, centre)
    rows.store(2, scale)
    rows.b.element()
    rows.store(0, (x - centre) * scale * rows.input(1) + rows.input(2))
    return rows.launch()


def _moments(rows: RowsBuilder, eps: float) -> tuple[Expr, Expr, Expr, Expr]:
    """x, its mean, variance and 1/std over the inner axes; leaves a row stage open.

    The mean is computed from differences to the row's first element, the last input: with a large common offset these
    are exact. The variance corrects the rounding error of the mean.
    """
    x = rows.input(0)
    rows.b.row()
    first = rows.let(rows.input(len(rows.reads) - 1))
    added = rows.sum(x - first)
    rows.b.row()
    shift = rows.let(added / float(rows.count))
    centre = rows.let(first + shift)
    lost = rows.let(shift - rows.let(centre - first))
    rows.b.element()
    apart = rows.let(x - centre)
    squares = rows.b.reduce("sum", rows.let(apart * apart))
    rows.b.row()
    spread = rows.let(call("max", squares / float(rows.count) - lost * lost, 0.0))
    return x, centre, spread, rows.let(1 / call("sqrt", spread + eps))


def _sums(rows: RowsBuilder, g: Expr, xhat: Expr) -> tuple[Expr, Expr]:
    """The sums of g and of g * xhat, in one element stage."""
    rows.b.element()
    first = rows.let(g)
    second = rows.let(first * rows.let(xhat))
    return rows.b.reduce("sum", first), rows.b.reduce("sum", second)


def _both_sums(rows: RowsBuilder, first: Expr, second: Expr) -> tuple[Expr, Expr]:
    """The sums of two values, in one element stage."""
    rows.b.element()
    first, second = rows.let(first), rows.let(second)
    return rows.b.reduce("sum", first), rows.b.reduce("sum", second)
