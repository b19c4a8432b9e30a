"""Nodes that are sums of products: matmul, conv and its gradients, with channels first or last."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import Final, TypeAlias

from dslc.compiler.codegen import pointwise
from dslc.compiler.codegen.cuda.contract import contract
from dslc.compiler.codegen.cuda.places import Coordinate, Group, Operand
from dslc.compiler.codegen.launch import Launch, Scratch
from dslc.compiler.codegen.region import Access, RegionBuilder
from dslc.compiler.ir.graph import Node, Value
from dslc.compiler.ir.types import TensorType
from dslc.compiler.ops.attrs import bool_attr, int_attr, int_tuple
from dslc.compiler.ops.channels_last import first_type

Axes: TypeAlias = Sequence[tuple[str, int]]
Argument: TypeAlias = Value | Scratch


def matmul(node: Node) -> list[Launch] | None:
    """Leading axes broadcast; each is an axis of z, but rows of a stack that meets one matrix are one long m."""
    [a, b], [c] = node.input_types, node.types
    ta, tb = bool_attr(node.attrs, "transpose_a"), bool_attr(node.attrs, "transpose_b")
    stack = [(f"z{i}", size) for i, size in enumerate(c.ints[:-2])]
    rows, cols = c.ints[-2:]
    inner = a.ints[-2] if ta else a.ints[-1]
    a_strides = dict(_stack(a, len(stack)))
    b_strides = dict(_stack(b, len(stack)))
    c_strides = dict(_stack(c, len(stack)))
    a_strides |= {"row": 1, "sum": rows} if ta else {"row": inner, "sum": 1}
    b_strides |= {"sum": 1, "col": inner} if tb else {"sum": cols, "col": 1}
    c_strides |= {"row": cols, "col": 1}
    axes: dict[Group, Axes] = {"z": stack, "m": [("row", rows)], "n": [("col", cols)], "k": [("sum", inner)]}
    if b.rank == 2 and not ta:
        axes |= {"z": [], "m": [*stack, ("row", rows)]}
    return _launches(node, axes, _operand(a, a_strides), _operand(b, b_strides), _operand(c, c_strides))


def _stack(t: TensorType, rank: int) -> list[tuple[str, int]]:
    """Strides of the leading axes, 0 where they broadcast."""
    lead = t.ints[:-2]
    found, step = [], prod(t.ints[-2:])
    for place in range(len(lead) - 1, -1, -1):
        if lead[place] != 1:
            found.append((f"z{place + rank - len(lead)}", step))
        step *= lead[place]
    return found


def _operand(t: TensorType, strides: Mapping[str, int], coordinates: Sequence[Coordinate] = ()) -> Operand:
    return Operand(t.dtype, prod(t.ints), tuple(strides.items()), tuple(coordinates))


class _Convolution:
    """x [B, C, *space], w [O, C/groups, *k], y [B, O, *count]; or all of them with channels last."""

    def __init__(self, node: Node, x: TensorType, w: TensorType, y: TensorType) -> None:
        self.last = node.op.name.endswith("_last")
        self.x, self.w, self.y = (first_type(t) for t in (x, w, y)) if self.last else (x, w, y)
        self.groups = int_attr(node.attrs, "groups")
        self.stride, self.pad, self.dilation = (int_tuple(node.attrs, n) for n in ("stride", "pad", "dilation"))
        self.batch, self.channels, *self.space = self.x.ints
        self.filters, self.inputs, *self.taps = self.w.ints
        self.outputs = self.filters // self.groups
        self.count = self.y.ints[2:]
        self.group = [("g", self.groups)] if self.groups > 1 else []

    def axes(self, name: str, sizes: Sequence[int]) -> list[tuple[str, int]]:
        return [(f"{name}{i}", size) for i, size in enumerate(sizes)]

    def reading(self, channel: str, count: int) -> list[tuple[str, int]]:
        """The axes of a sum, or of a weight, over taps and channels: what lies together in memory is last."""
        taps = self.axes("t", self.taps)
        return [*taps, (channel, count)] if self.last else [(channel, count), *taps]

    def _image(self, t: TensorType, channel: str, per_group: int, pixels: str | None) -> dict[str, int]:
        """Strides of x or y: batch ``b``, groups, ``channel``, and the pixels where these are axes of their own."""
        channels, *space = t.ints[1:]
        step = channels if self.last else 1  # of pixels
        plane = 1 if self.last else prod(space)  # of channels
        found = {"b": channels * prod(space), "g": per_group * plane, channel: plane}
        if pixels is not None:
            found |= {f"{pixels}{i}": prod(space[i + 1 :]) * step for i in range(len(space))}
        return found

    def inputs_at(self, pixels: str | None, coordinates: Sequence[Coordinate] = ()) -> Operand:
        """x, by pixel or by the coordinates that windows make."""
        return _operand(self.x, self._image(self.x, "c", self.inputs, pixels), coordinates)

    def outputs_at(self, pixels: str | None, coordinates: Sequence[Coordinate] = ()) -> Operand:
        """y, the same way."""
        return _operand(self.y, self._image(self.y, "o", self.outputs, pixels), coordinates)

    def weights(self) -> Operand:
        taps = prod(self.taps)
        channel, tap = (1, self.inputs) if self.last else (taps, 1)
        found = {"g": self.outputs * self.inputs * taps, "o": self.inputs * taps, "c": channel}
        found |= {f"t{i}": prod(self.taps[i + 1 :]) * tap for i in range(len(self.taps))}
        return _operand(self.w, found)

    def windows(self) -> list[Coordinate]:
        """Where output pixel y and tap t are in the input."""
        found, step = [], self.channels if self.last else 1
        for i, size in enumerate(self.space):
            steps = ((f"y{i}", self.stride[i]), (f"t{i}", self.dilation[i]))
            found.append(Coordinate(steps, -self.pad[i], size, prod(self.space[i + 1 :]) * step))
        return found

    def origins(self) -> list[Coordinate]:
        """Which output pixel reads input pixel x by tap t."""
        found, step = [], self.filters if self.last else 1
        for i, size in enumerate(self.count):
            steps = ((f"x{i}", 1), (f"t{i}", -self.dilation[i]))
            found.append(Coordinate(steps, self.pad[i], size, prod(self.count[i + 1 :]) * step, self.stride[i]))
        return found


def conv(node: Node) -> list[Launch] | None:
    """Rows are images and pixels of the result."""
    x, w = node.input_types
    g = _Convolution(node, x, w, node.types[0])
    axes: dict[Group, Axes] = {
        "z": g.group,
        "m": [("b", g.batch), *g.axes("y", g.count)],
        "n": [("o", g.outputs)],
        "k": g.reading("c", g.inputs),
    }
    return _launches(node, axes, g.inputs_at(None, g.windows()), g.weights(), g.outputs_at("y"))


def conv_dgrad(node: Node) -> list[Launch] | None:
    """Rows are images and pixels of the input; a tap adds where a window began at a whole place."""
    y, w = node.input_types
    g = _Convolution(node, node.types[0], w, y)
    axes: dict[Group, Axes] = {
        "z": g.group,
        "m": [("b", g.batch), *g.axes("x", g.space)],
        "n": [("c", g.inputs)],
        "k": g.reading("o", g.outputs),
    }
    return _launches(node, axes, g.outputs_at(None, g.origins()), g.weights(), g.inputs_at("x"))


def conv_wgrad(node: Node) -> list[Launch] | None:
    """The sum runs over images and pixels of the result."""
    x, y = node.input_types
    g = _Convolution(node, x, node.types[0], y)
    axes: dict[Group, Axes] = {
        "z": g.group,
        "m": g.reading("c", g.inputs),
        "n": [("o", g.outputs)],
        "k": [("b", g.batch), *g.axes("y", g.count)],
    }
    return _launches(node, axes, g.inputs_at(None, g.windows()), g.outputs_at("y"), g.weights())


def _launches(node: Node, axes: dict[Group, Axes], a: Operand, b: Operand, c: Operand) -> list[Launch]:
    """The product; zeros for a sum of nothing. ``a`` reads the node's first input, ``b`` its second."""
    if not all(size for _, size in axes["k"]):
        return pointwise.filled(node, 0.0)
    return product(axes, (a, node.inputs[0]), (b, node.inputs[1]), (c, node.outputs[0]), 0)


def product(
    axes: dict[Group, Axes],
    a: tuple[Operand, Argument],
    b: tuple[Operand, Argument],
    c: tuple[Operand, Argument],
    block: int,
) -> list[Launch]:
    """The launches of a sum of products of arguments; its parts, where it is divided, go to scratch block ``block``."""
    spec, swapped = contract(axes, a[0], b[0], c[0])
    problem, out = spec.problem, c[0].dtype
    reads = (b[1], a[1]) if swapped else (a[1], b[1])
    if problem.split == 1:
        return [Launch(spec, reads, (c[1],))]
    kept, elements = problem.c.dtype, problem.c.elements
    parts = Scratch(block, problem.split * elements * kept.itemsize)
    builder = RegionBuilder([elements], [problem.split], [Access(kept, (1, elements))], [Access(out, (1, 0))])
    builder.element()
    total = builder.reduce("sum", builder.let(builder.input(0), kept))
    builder.row()
    builder.store(0, builder.let(total, out))
    return [Launch(spec, reads, (parts,)), Launch(builder.region(), (parts,), (c[1],))]


LOWERED: Final[Mapping[str, Callable[[Node], list[Launch] | None]]] = {
    "matmul": matmul,
    "conv": conv,
    "conv_dgrad": conv_dgrad,
    "conv_wgrad": conv_wgrad,
    "conv_last": conv,
    "conv_dgrad_last": conv_dgrad,
    "conv_wgrad_last": conv_wgrad,
}
