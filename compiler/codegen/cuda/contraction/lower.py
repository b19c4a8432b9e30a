"""Lowers contractions: matmul, conv and its gradients, with channels first or last."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import product as points
from math import gcd, prod
from typing import Final, TypeAlias

from dslc.compiler.codegen.cuda.contraction.depthwise import Depthwise, DepthwiseSums, Shape
from dslc.compiler.codegen.cuda.contraction.dots import dots, is_dots
from dslc.compiler.codegen.cuda.contraction.epilogue import Epilogue
from dslc.compiler.codegen.cuda.contraction.few_rows import few_rows
from dslc.compiler.codegen.cuda.contraction.kernel import AddParts, contract, deciding
from dslc.compiler.codegen.cuda.contraction.problem import Axes, Group, Operand, Problem, Window, problem
from dslc.compiler.codegen.cuda.contraction.tiles import Cores, Tiling
from dslc.compiler.codegen.launch import Launch, Scratch
from dslc.compiler.codegen.lowerings import lowers
from dslc.compiler.codegen.region import pointwise
from dslc.compiler.ir.graph import Node, Value
from dslc.compiler.ir.types import TensorType
from dslc.compiler.ops.attrs import bool_attr, flag_attr, int_attr, int_tuple
from dslc.compiler.ops.compound.contraction import product_and_epilogue
from dslc.compiler.ops.spatial.channels_last import first_type

Argument: TypeAlias = Value | Scratch


def matmul(node: Node) -> list[Problem]:
    """Leading axes broadcast. Each is an axis of z; if b is a single matrix, the rows of the whole stack form one long
    m."""
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
    return [problem(axes, _operand(a, a_strides), _operand(b, b_strides), _operand(c, c_strides))]


def _stack(t: TensorType, rank: int) -> list[tuple[str, int]]:
    """Strides of the leading axes, omitting those that broadcast."""
    lead = t.ints[:-2]
    found, step = [], prod(t.ints[-2:])
    for place in range(len(lead) - 1, -1, -1):
        if lead[place] != 1:
            found.append((f"z{place + rank - len(lead)}", step))
        step *= lead[place]
    return found


def _operand(t: TensorType, strides: Mapping[str, int], windows: Sequence[Window] = (), start: int = 0) -> Operand:
    return Operand(t.dtype, prod(t.ints), tuple(strides.items()), tuple(windows), start)


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
        return _operand(self.x, strides, windows, start)

    def outputs_at(self) -> Operand:
        """y by its pixels."""
        pixels = {f"y{i}": step for i, step in enumerate(self.steps(self.y))}
        return _operand(self.y, self.image(self.y, "o", self.outputs) | pixels)

    def weights(self, first: Sequence[int], every: Sequence[int]) -> Operand:
        """w by kernel positions: every ``every``-th one from ``first`` on, possibly none."""
        taps = prod(self.taps)
        channel, tap = (1, self.inputs) if self.last else (taps, 1)
        steps = [prod(self.taps[i + 1 :]) * tap for i in range(len(self.taps))]
        found = {"g": self.outputs * self.inputs * taps, "o": self.inputs * taps, "c": channel}
        found |= {f"t{i}": n * step for i, (n, step) in enumerate(zip(every, steps))}
        return _operand(self.w, found, (), sum(n * step for n, step in zip(first, steps)))

    @property
    def all_taps(self) -> Operand:
        return self.weights([0] * len(self.taps), [1] * len(self.taps))


def conv(node: Node) -> list[Problem]:
    """Rows are images and output pixels."""
    x, w = node.input_types
    g = _Convolution(node, x, w, node.types[0])
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
    g = _Convolution(node, node.types[0], w, y)
    classes = points(*(range(min(stride, size)) for stride, size in zip(g.stride, g.space)))
    return [_residue_class(g, places) for places in classes]


def _residue_class(g: _Convolution, places: Sequence[int]) -> Problem:
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
    x = _operand(g.x, image, (), sum(place * step for place, step in zip(places, g.steps(g.x))))
    axes: dict[Group, Axes] = {
        "z": g.group,
        "m": [("b", g.batch), *g.axes("x", pixels)],
        "n": [("c", g.inputs)],
        "k": g.reading("o", g.outputs, taps),
    }
    return problem(axes, _operand(g.y, strides, windows, start), g.weights(first, every), x)


def conv_wgrad(node: Node) -> list[Problem]:
    """The sum runs over images and output pixels."""
    x, y = node.input_types
    g = _Convolution(node, x, node.types[0], y)
    axes: dict[Group, Axes] = {
        "z": g.group,
        "m": g.reading("c", g.inputs, g.taps),
        "n": [("o", g.outputs)],
        "k": [("b", g.batch), *g.axes("y", g.count)],
    }
    return [problem(axes, g.windows(), g.outputs_at(), g.all_taps)]


def depthwise(node: Node) -> Shape | None:
    """The shape of a depthwise convolution or its gradient: a group has one input and one output. None for others."""
    kind, types = node.op.name.removesuffix("_last"), (*node.input_types, *node.types)
    if kind not in ("conv", "conv_dgrad", "conv_wgrad") or len({t.dtype for t in types}) > 1 or types[0].rank > 5:
        return None
    first, second, third = types
    x, w, y = {"conv": types, "conv_dgrad": (third, second, first), "conv_wgrad": (first, third, second)}[kind]
    g = _Convolution(node, x, w, y)
    if g.groups == 1 or (g.inputs, g.outputs) != (1, 1):
        return None
    image, count, taps = (_three(each, 1) for each in (g.space, g.count, g.taps))
    stride, pad, dilation = _three(g.stride, 1), _three(g.pad, 0), _three(g.dilation, 1)
    return Shape(g.batch, g.channels, image, count, taps, stride, pad, dilation, x.dtype, g.last)


def _three(values: Sequence[int], fill: int) -> tuple[int, int, int]:
    a, b, c = (*[fill] * (3 - len(values)), *values)
    return a, b, c


def _direct(
    node: Node, result: Argument, block: int, epilogue: Epilogue | None = None, others: Sequence[Argument] = ()
) -> list[Launch] | None:
    """The launches of a depthwise convolution or its gradient; None if a contraction computes the node. ``block``: of
    scratch; ``epilogue``: applied to the sums and ``others``."""
    shape, kind = depthwise(node), node.op.name.removesuffix("_last")
    if shape is None:
        return None
    if kind != "conv_wgrad":
        spec = Depthwise(shape, kind == "conv_dgrad", epilogue)
        return [Launch(spec, (*node.inputs[:2], *others), (result,))] if spec.possible else None
    sums = DepthwiseSums(shape)
    if not sums.possible:
        return None
    parts = Scratch(block, sums.count * sums.elements * shape.dtype.computed.itemsize)
    whole = AddParts(shape.dtype, sums.elements, sums.count, epilogue)
    return [Launch(sums, node.inputs[:2], (parts,)), Launch(whole, (parts, *others), (result,))]


#: The problems that together compute a node's result; ``a`` is its first input.
PROBLEMS: Final[Mapping[str, Callable[[Node], list[Problem]]]] = {
    "matmul": matmul,
    "conv": conv,
    "conv_dgrad": conv_dgrad,
    "conv_wgrad": conv_wgrad,
    "conv_last": conv,
    "conv_dgrad_last": conv_dgrad,
    "conv_wgrad_last": conv_wgrad,
}


@lowers(*PROBLEMS, target="cuda")
def product(node: Node, tiling: Tiling | None = None) -> list[Launch]:
    few = few_rows(node) if tiling is None else None
    if few is not None:
        return [Launch(few, node.inputs, node.outputs)]
    return _product(node, node.outputs[0], 0, tiling)


@lowers("contraction", target="cuda")
def contraction(node: Node, tiling: Tiling | None = None) -> list[Launch]:
    """Fuses the epilogue into the kernel that stores the sums. A launch of its own computes it if C++ does not support
    its ops exactly, if the factors have 16 bits, or if nothing is summed."""
    first, finish = product_and_epilogue(node)
    few = few_rows(first, finish) if tiling is None else None
    if few is not None:
        return [Launch(few, node.inputs, node.outputs)]
    same = first.input_types[0].dtype is first.types[0].dtype  # else tensor cores sum in f32, and have no epilogue
    others, epilogue = node.inputs[2:], Epilogue.of(finish) if same and not is_dots(first) else None
    if epilogue is not None and (direct := _direct(first, node.outputs[0], 0, epilogue, others)) is not None:
        return direct
    problems = PROBLEMS[first.op.name](first)
    if epilogue is not None and any(p.count("k") for p in problems):
        tf32 = flag_attr(node.attrs, "tf32")
        return launched(problems, node.inputs[:2], node.outputs[0], 0, tf32, epilogue, others, tiling)
    whole = Scratch(0, first.types[0].bytes)
    [steps] = pointwise.pointwise(finish)
    return [*_product(first, whole, 1, tiling), Launch(steps.spec, (whole, *others), node.outputs)]


def tiled(node: Node) -> tuple[Problem, Cores] | None:
    """The problem that decides the tiling of a node's kernels, and the tensor cores that they use; None if the node is
    no contraction, if it is depthwise, or if nothing is summed."""
    if node.op.name not in (*PROBLEMS, "contraction"):
        return None
    first = product_and_epilogue(node)[0] if node.op.name == "contraction" else node
    if is_dots(first):
        return None
    problems = PROBLEMS[first.op.name](first)
    if not any(p.count("k") for p in problems) or _direct(first, node.outputs[0], 0) is not None:
        return None
    return deciding(problems, flag_attr(node.attrs, "tf32"))[:2]


def _product(node: Node, result: Argument, block: int, tiling: Tiling | None) -> list[Launch]:
    """Empty sums become zeros."""
    if (direct := _direct(node, result, block)) is not None:
        return direct
    if is_dots(node):
        return [dots(node, result)]
    problems = PROBLEMS[node.op.name](node)
    if not any(p.count("k") for p in problems):
        return [Launch(x.spec, (), (result,)) for x in pointwise.filled(node, 0.0)]
    return launched(problems, node.inputs[:2], result, block, flag_attr(node.attrs, "tf32"), tiling=tiling)


def launched(
    problems: Sequence[Problem],
    factors: Sequence[Argument],
    c: Argument,
    block: int,
    tf32: bool = False,
    epilogue: Epilogue | None = None,
    others: Sequence[Argument] = (),
    tiling: Tiling | None = None,
) -> list[Launch]:
    """The launches of contractions of two arguments. If they are split, the parts go to scratch block ``block``.
    ``epilogue``: applied to the sums and ``others``. ``tiling``: by default the one with the least modelled time."""
    out = problems[0].c.dtype
    specs, swapped = contract(problems, epilogue, tf32, tiling)
    reads = tuple(reversed(factors) if swapped else factors)
    split, kept, elements = specs[0].problem.split, specs[0].problem.c.dtype, problems[0].c.elements
    if split == 1:
        return [Launch(spec, (*reads, *others), (c,)) for spec in specs]
    parts = Scratch(block, split * elements * kept.itemsize)
    whole = Launch(AddParts(out, elements, split, epilogue), (parts, *others), (c,))
    return [*(Launch(spec, reads, (parts,)) for spec in specs), whole]
