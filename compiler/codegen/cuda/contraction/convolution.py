"""Convolutions and their gradients as contractions, with channels first or last."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product as points
from math import gcd, prod

from dslc.compiler.codegen.cuda.contraction.problem import Axes, Group, Operand, Problem, Window, operand, problem
from dslc.compiler.ir.graph import Node
from dslc.compiler.ir.types import TensorType
from dslc.compiler.ops.attrs import int_attr, int_tuple
from dslc.compiler.ops.spatial.channels_last import first_type


class Convolution:
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

    def reading(self, channel: str, count: int, taps: Sequence[int]) -> list[tuple[str, int]]:
        """The axes of a sum, or of a weight, over kernel positions and channels, with the contiguous axis last. Kernel
        axes of size 1 are omitted; if no kernel position is left, there are no channels."""
        named = [axis for axis, whole in zip(self.axes("t", taps), self.taps) if whole > 1]
        count = count if all(taps) else 0
        return [*named, (channel, count)] if self.last else [(channel, count), *named]

    def steps(self, t: TensorType) -> list[int]:
        """The distances between neighbours along each spatial axis of x or y."""
        channels, *space = t.ints[1:]
        return [prod(space[i + 1 :]) * (channels if self.last else 1) for i in range(len(space))]

    def image(self, t: TensorType, channel: str, per_group: int) -> dict[str, int]:
        """Strides of x or y along batch, groups and channels."""
        channels, *space = t.ints[1:]
        plane = 1 if self.last else prod(space)  # distance between channels
        return {"b": channels * prod(space), "g": per_group * plane, channel: plane}

    def windows(self) -> Operand:
        """x by output pixels and kernel positions."""
        strides, windows, start = self.image(self.x, "c", self.inputs), [], 0
        for i, step in enumerate(self.steps(self.x)):
            strides |= {f"y{i}": self.stride[i] * step, f"t{i}": self.dilation[i] * step}
            start -= self.pad[i] * step
            if self.pad[i]:
                steps = ((f"y{i}", self.stride[i]), (f"t{i}", self.dilation[i]))
                windows.append(Window(steps, -self.pad[i], self.space[i]))
        return operand(self.x, strides, windows, start)

    def outputs_at(self) -> Operand:
        """y by its pixels."""
        pixels = {f"y{i}": step for i, step in enumerate(self.steps(self.y))}
        return operand(self.y, self.image(self.y, "o", self.outputs) | pixels)

    def weights(self, first: Sequence[int], every: Sequence[int]) -> Operand:
        """w by kernel positions: every ``every``-th one from ``first`` on, possibly none."""
        taps = prod(self.taps)
        channel, tap = (1, self.inputs) if self.last else (taps, 1)
        steps = [prod(self.taps[i + 1 :]) * tap for i in range(len(self.taps))]
        found = {"g": self.outputs * self.inputs * taps, "o": self.inputs * taps, "c": channel}
        found |= {f"t{i}": n * step for i, (n, step) in enumerate(zip(every, steps))}
        return operand(self.w, found, (), sum(n * step for n, step in zip(first, steps)))

    @property
    def all_taps(self) -> Operand:
        return self.weights([0] * len(self.taps), [1] * len(self.taps))


def conv(node: Node) -> list[Problem]:
    """Rows are images and output pixels."""
    x, w = node.input_types
    g = Convolution(node, x, w, node.types[0])
    axes: dict[Group, Axes] = {
        "z": g.group,
        "m": [("b", g.batch), *g.axes("y", g.count)],
        "n": [("o", g.outputs)],
        "k": g.reading("c", g.inputs, g.taps),
    }
    return [problem(axes, g.windows(), g.all_taps, g.outputs_at())]


def conv_dgrad(node: Node) -> list[Problem]:
    """Rows are images and input pixels. With a stride, pixels whose indices differ by multiples of it use the same
    kernel positions. Each such class is a contraction of its own, over these positions only."""
    y, w = node.input_types
    g = Convolution(node, node.types[0], w, y)
    classes = points(*(range(min(stride, size)) for stride, size in zip(g.stride, g.space)))
    return [_residue_class(g, places) for places in classes]


def _residue_class(g: Convolution, places: Sequence[int]) -> Problem:
    """The pixels ``place + stride * q`` of each axis. Kernel position t adds the output pixel ``q + (place + pad - t *
    dilation) / stride`` if that is an integer, which holds for every ``stride / gcd(stride, dilation)``-th t."""
    strides, windows, start = g.image(g.y, "o", g.outputs), [], 0
    first, every, taps = [], [], []
    for i, step in enumerate(g.steps(g.y)):
        stride, dilation, reach = g.stride[i], g.dilation[i], places[i] + g.pad[i]
        every.append(stride // gcd(stride, dilation))
        whole = [t for t in range(min(every[i], g.taps[i])) if (reach - t * dilation) % stride == 0]
        first.append(whole[0] if whole else 0)
        taps.append(len(range(first[i], g.taps[i], every[i])) if whole else 0)
        begin, back = (reach - first[i] * dilation) // stride, every[i] * dilation // stride
        strides |= {f"x{i}": step, f"t{i}": -back * step}
        start += begin * step
        if g.taps[i] > 1 or g.pad[i]:
            windows.append(Window(((f"x{i}", 1), (f"t{i}", -back)), begin, g.count[i]))
    pixels = [-(-(size - place) // stride) for size, place, stride in zip(g.space, places, g.stride)]
    image = g.image(g.x, "c", g.inputs)
    image |= {f"x{i}": stride * step for i, (stride, step) in enumerate(zip(g.stride, g.steps(g.x)))}
    x = operand(g.x, image, (), sum(place * step for place, step in zip(places, g.steps(g.x))))
    axes: dict[Group, Axes] = {
        "z": g.group,
        "m": [("b", g.batch), *g.axes("x", pixels)],
        "n": [("c", g.inputs)],
        "k": g.reading("o", g.outputs, taps),
    }
    return problem(axes, operand(g.y, strides, windows, start), g.weights(first, every), x)


def conv_wgrad(node: Node) -> list[Problem]:
    """The sum runs over images and output pixels."""
    x, y = node.input_types
    g = Convolution(node, x, node.types[0], y)
    axes: dict[Group, Axes] = {
        "z": g.group,
        "m": g.reading("c", g.inputs, g.taps),
        "n": [("o", g.outputs)],
        "k": [("b", g.batch), *g.axes("y", g.count)],
    }
    return [problem(axes, g.windows(), g.outputs_at(), g.all_taps)]
