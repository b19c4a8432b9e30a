"""Products and convolutions with kernels of their own: depthwise ones, those with groups of few channels, and those
between few channels and many."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod
from typing import Final

from dslc.compiler.codegen.cuda.contraction.convolution import Convolution, conv_wgrad
from dslc.compiler.codegen.cuda.contraction.depthwise import Depthwise, DepthwiseSums
from dslc.compiler.codegen.cuda.contraction.few_channels import FromFew, Sides, ToFew
from dslc.compiler.codegen.cuda.contraction.few_channels_sums import FewSums
from dslc.compiler.codegen.cuda.contraction.groups import GroupedConvolution, GroupedSums, Groups, back_to_image
from dslc.compiler.codegen.cuda.contraction.kernel import deciding
from dslc.compiler.codegen.cuda.contraction.output import Output
from dslc.compiler.codegen.cuda.contraction.packed_taps import PackedConv, PackedSums
from dslc.compiler.codegen.cuda.contraction.tiles import seconds_of
from dslc.compiler.codegen.cuda.contraction.windows import Shape, Three
from dslc.compiler.codegen.launch import Launch
from dslc.compiler.ir.graph import Node
from dslc.compiler.ir.types import DType
from dslc.compiler.ops.attrs import bool_attr, flag_attr
from dslc.compiler.ops.spatial.few_channels import MOST, FewChannels, few_channels, is_of_few_channels, packs_taps

_ONE: Final = (1, 1, 1)
_MOST_OF_SUMS: Final = 64  # few channels of a gradient for weights: runs of them read the other side again


def depthwise(node: Node) -> Shape | None:
    """The shape of a depthwise convolution or its gradient: a group has one input and one output. None for others."""
    g = _geometry(node)
    if g is None or g.groups == 1 or (g.inputs, g.outputs) != (1, 1):
        return None
    return _shape(g, g.channels)


def grouped(node: Node) -> tuple[GroupedConvolution, ...] | GroupedSums | None:
    """The kernels of a convolution with groups of few channels, or of its gradient; None if a contraction does it."""
    g = _geometry(node)
    if g is None or g.groups == 1:
        return None
    sides = Groups(_shape(g, max(g.channels, g.filters)), g.groups, g.inputs, g.outputs)
    if not sides.possible:
        return None
    if node.op.name == "conv_dgrad_last":
        return back_to_image(sides) or None
    spec = GroupedSums(sides) if node.op.name == "conv_wgrad_last" else GroupedConvolution(sides)
    if not spec.possible:
        return None
    return spec if isinstance(spec, GroupedSums) else (spec,)


def without_tiles(node: Node) -> ToFew | FromFew | FewSums | None:
    """The kernel for few channels that can compute a product, a convolution or its gradient; None if there is none. A
    sum of the weight's gradient with channels first may have more."""
    found = few_channels(node, _MOST_OF_SUMS if node.op.name == "conv_wgrad" else MOST)
    if found is None:
        return None
    made = _product(node, found) if node.op.name == "matmul" else _convolution(node, found)
    return made if made is not None and made.possible else None


def packed(node: Node) -> PackedConv | PackedSums | None:
    """The kernel on tensor cores of a first layer in 16 bits or in TF32; None for other nodes."""
    found, g = few_channels(node), _geometry(node)
    if found is None or g is None or not g.last or not packs_taps(node):
        return None
    shape = _shape(g, found.many)
    made = PackedSums(shape, found.few) if node.op.name == "conv_wgrad_last" else PackedConv(shape, found.few)
    return made if made.possible else None


def is_direct(node: Node) -> bool:
    """Whether kernels without tiles that could be a contraction's compute a node: those of groups, and those for few
    channels. In f32 with channels first, a gradient for weights has the latter where models of time say that they are
    faster than tiles."""
    if grouped(node) is not None:
        return True
    if node.op.name != "conv_wgrad" or node.types[0].dtype is not DType.F32 or flag_attr(node.attrs, "tf32"):
        return is_of_few_channels(node)
    spec, found = without_tiles(node), few_channels(node, _MOST_OF_SUMS)
    if not isinstance(spec, FewSums) or found is None or (found.few > MOST and prod(found.taps) == 1):
        return False
    return spec.seconds < _tiles_seconds(node)


def seconds_of_weights(node: Node) -> float:
    """Modelled time of the gradient for the weights of a convolution without groups, by own kernels in f32 or TF32."""
    spec = without_tiles(node) if is_direct(node) else None
    return spec.seconds if isinstance(spec, FewSums) else _tiles_seconds(node)


def _tiles_seconds(node: Node) -> float:
    problem, cores, _ = deciding(conv_wgrad(node), flag_attr(node.attrs, "tf32"))
    return seconds_of(problem, cores)


def _convolution(node: Node, found: FewChannels) -> ToFew | FromFew | FewSums | None:
    g, kind = _geometry(node), node.op.name.removesuffix("_last")
    if g is None:
        return None
    taps = prod(g.taps)
    out_step, in_step, tap = (g.inputs * taps, 1, g.inputs) if g.last else (g.inputs * taps, taps, 1)
    steps = (tap, in_step, out_step) if found.of_image else (tap, out_step, in_step)
    sides = Sides(_shape(g, found.many), found.few, found.of_image, steps)
    if kind == "conv_wgrad":
        return FewSums(sides, not found.of_image)
    back = kind == "conv_dgrad"
    return ToFew(sides, back) if found.of_image == back else FromFew(sides, back)


def _product(node: Node, found: FewChannels) -> ToFew | FromFew | FewSums:
    [a, _], [c] = node.input_types, node.types
    ta, tb = bool_attr(node.attrs, "transpose_a"), bool_attr(node.attrs, "transpose_b")
    inner, columns = a.ints[-2] if ta else a.ints[-1], c.ints[-1]
    size = (1, 1, inner if ta else prod(c.ints[:-1]))
    shape = Shape(1, found.many, size, size, _ONE, _ONE, (0, 0, 0), _ONE, a.dtype, True)
    of_a, of_column = (1, inner) if tb else (columns, 1)  # distances of weights, or of their gradients
    sides = Sides(shape, found.few, found.of_image, (0, of_a, of_column) if found.of_image else (0, of_column, of_a))
    if ta:
        return FewSums(sides, not found.of_image)
    return FromFew(sides, False) if found.of_image else ToFew(sides, False)


def _geometry(node: Node) -> Convolution | None:
    """None for other nodes, and for those whose dtypes differ."""
    kind, types = node.op.name.removesuffix("_last"), (*node.input_types, *node.types)
    if kind not in ("conv", "conv_dgrad", "conv_wgrad") or len({t.dtype for t in types}) > 1 or types[0].rank > 5:
        return None
    first, second, third = types
    x, w, y = {"conv": types, "conv_dgrad": (third, second, first), "conv_wgrad": (first, third, second)}[kind]
    return Convolution(node, x, w, y)


def _shape(g: Convolution, channels: int) -> Shape:
    image, count, taps = (_three(each, 1) for each in (g.space, g.count, g.taps))
    stride, pad, dilation = _three(g.stride, 1), _three(g.pad, 0), _three(g.dilation, 1)
    return Shape(g.batch, channels, image, count, taps, stride, pad, dilation, g.x.dtype, g.last)


def _three(values: Sequence[int], fill: int) -> Three:
    a, b, c = (*[fill] * (3 - len(values)), *values)
    return a, b, c


def direct(node: Node, output: Output, forced: bool = False) -> list[Launch] | None:
    """The launches of such a product, convolution or gradient; None if tiles compute the node. ``forced``: also if
    tiles are faster by the model."""
    shape, kind = depthwise(node), node.op.name.removesuffix("_last")
    first, second = node.inputs[:2]
    found = grouped(node)
    if isinstance(found, tuple):
        specs = [replace(each, epilogue=output.epilogue) for each in found]
        return [Launch(each, (first, second, *output.others), (output.result,)) for each in specs]
    spec: Depthwise | DepthwiseSums | GroupedSums | ToFew | FromFew | FewSums | PackedConv | PackedSums | None
    if shape is not None:
        spec = DepthwiseSums(shape) if kind == "conv_wgrad" else Depthwise(shape, kind == "conv_dgrad", output.epilogue)
    else:
        spec = found or packed(node) or (without_tiles(node) if forced or is_direct(node) else None)
    if spec is None or not spec.possible:
        return None
    if isinstance(spec, ToFew | FromFew | PackedConv):
        spec = replace(spec, epilogue=output.epilogue)
    if not isinstance(spec, DepthwiseSums | FewSums | GroupedSums | PackedSums):
        return [Launch(spec, (first, second, *output.others), (output.result,))]
    if isinstance(spec, FewSums) and spec.sides.of_image:
        first, second = second, first
    parts, whole = output.in_parts(node.types[0].dtype, spec.elements, spec.count)
    return [Launch(spec, (first, second), (parts,)), whole]
