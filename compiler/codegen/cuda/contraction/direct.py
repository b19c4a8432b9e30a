"""Direct kernels: which products, convolutions and gradients are computed without the tiles of a matrix product.

``direct_launches`` asks for them in this order:

1. groups of few channels (``groups.py``);
2. depthwise convolutions (``depthwise.py``);
3. first layers on tensor cores (``packed_taps.py``);
4. few channels on one side (``few_channels.py``, ``few_channels_sums.py``), if tiles are not faster by the model.
"""

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
_MOST_OF_SUMS: Final = 64  # few channels of a gradient for weights, whose kernel reads the other side once per run


def depthwise_shape(node: Node) -> Shape | None:
    """The shape of a depthwise convolution or its gradient: a group has one input and one output. None for others."""
    conv = _convolution_of(node)
    if conv is None or conv.groups == 1 or (conv.inputs, conv.outputs) != (1, 1):
        return None
    return _shape(conv, conv.channels)


def grouped_kernels(node: Node) -> tuple[GroupedConvolution, ...] | GroupedSums | None:
    """The kernels of a convolution with groups of few channels, or of its gradient; None if there is none."""
    conv = _convolution_of(node)
    if conv is None or conv.groups == 1 or not conv.last:
        return None
    sides = Groups(_shape(conv, max(conv.channels, conv.filters)).in_planes, conv.groups, conv.inputs, conv.outputs)
    if not sides.possible:
        return None
    if node.op.name == "conv_dgrad_last":
        return back_to_image(sides) or None
    spec = GroupedSums(sides) if node.op.name == "conv_wgrad_last" else GroupedConvolution(sides)
    if not spec.possible:
        return None
    return spec if isinstance(spec, GroupedSums) else (spec,)


def few_channels_kernel(node: Node) -> ToFew | FromFew | FewSums | None:
    """The kernel for few channels that can compute a product, a convolution or its gradient, whether or not tiles are
    faster; None if there is none. With channels first, a gradient for weights may have up to ``_MOST_OF_SUMS``."""
    found = few_channels(node, _MOST_OF_SUMS if node.op.name == "conv_wgrad" else MOST)
    if found is None:
        return None
    made = _product_kernel(node, found) if node.op.name == "matmul" else _convolution_kernel(node, found)
    return made if made is not None and made.possible else None


def packed_taps_kernel(node: Node) -> PackedConv | PackedSums | None:
    """The kernel on tensor cores of a first layer in 16 bits or in TF32; None for other nodes."""
    found, conv = few_channels(node), _convolution_of(node)
    if found is None or conv is None or not conv.last or not packs_taps(node):
        return None
    shape = _shape(conv, found.many)
    made = PackedSums(shape, found.few) if node.op.name == "conv_wgrad_last" else PackedConv(shape, found.few)
    return made if made.possible else None


def prefers_direct(node: Node) -> bool:
    """Whether a node that tiles could compute has kernels of groups or for few channels by the rules. In f32 with
    channels first, a gradient for weights has the latter if the model of time says that they are faster than tiles."""
    if grouped_kernels(node) is not None:
        return True
    if node.op.name != "conv_wgrad" or node.types[0].dtype is not DType.F32 or flag_attr(node.attrs, "tf32"):
        return is_of_few_channels(node)
    spec, found = few_channels_kernel(node), few_channels(node, _MOST_OF_SUMS)
    if not isinstance(spec, FewSums) or found is None or (found.few > MOST and prod(found.taps) == 1):
        return False
    return spec.seconds < _tiles_seconds(node)


def seconds_of_weights(node: Node) -> float:
    """Modelled time of the gradient for the weights of a convolution without groups, by own kernels in f32 or TF32."""
    spec = few_channels_kernel(node) if prefers_direct(node) else None
    return spec.seconds if isinstance(spec, FewSums) else _tiles_seconds(node)


def _tiles_seconds(node: Node) -> float:
    problem, cores, _ = deciding(conv_wgrad(node), flag_attr(node.attrs, "tf32"))
    return seconds_of(problem, cores)


def _convolution_kernel(node: Node, found: FewChannels) -> ToFew | FromFew | FewSums | None:
    conv, kind = _convolution_of(node), node.op.name.removesuffix("_last")
    if conv is None:
        return None
    taps = prod(conv.taps)
    out_step, in_step, tap = (conv.inputs * taps, 1, conv.inputs) if conv.last else (conv.inputs * taps, taps, 1)
    steps = (tap, in_step, out_step) if found.of_image else (tap, out_step, in_step)
    sides = Sides(_shape(conv, found.many), found.few, found.of_image, steps)
    if kind == "conv_wgrad":
        return FewSums(sides, not found.of_image)
    back = kind == "conv_dgrad"
    return ToFew(sides, back) if found.of_image == back else FromFew(sides, back)


def _product_kernel(node: Node, found: FewChannels) -> ToFew | FromFew | FewSums:
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


def _convolution_of(node: Node) -> Convolution | None:
    """The sizes of a convolution or a gradient of one; None for other nodes, and for those whose dtypes differ."""
    kind, types = node.op.name.removesuffix("_last"), (*node.input_types, *node.types)
    if kind not in ("conv", "conv_dgrad", "conv_wgrad") or len({t.dtype for t in types}) > 1 or types[0].rank > 5:
        return None
    first, second, third = types
    x, w, y = {"conv": types, "conv_dgrad": (third, second, first), "conv_wgrad": (first, third, second)}[kind]
    return Convolution(node, x, w, y)


def _shape(conv: Convolution, channels: int) -> Shape:
    image, count, taps = (_three(each, 1) for each in (conv.space, conv.count, conv.taps))
    stride, pad, dilation = _three(conv.stride, 1), _three(conv.pad, 0), _three(conv.dilation, 1)
    return Shape(conv.batch, channels, image, count, taps, stride, pad, dilation, conv.x.dtype, conv.last)


def _three(values: Sequence[int], fill: int) -> Three:
    a, b, c = (*[fill] * (3 - len(values)), *values)
    return a, b, c


def direct_launches(node: Node, output: Output, *, few_channels: bool = False) -> list[Launch] | None:
    """The launches of a direct kernel; None if tiles compute the node. ``few_channels``: the kernel for few channels
    also where tiles are faster by the model."""
    factors, grouped = node.inputs[:2], grouped_kernels(node)
    if isinstance(grouped, tuple):
        specs = [replace(each, epilogue=output.epilogue) for each in grouped]
        return [Launch(each, (*factors, *output.others), (output.result,)) for each in specs]
    spec = grouped or _single_kernel(node, few_channels)
    if spec is None or not spec.possible:
        return None
    if isinstance(spec, DepthwiseSums | FewSums | GroupedSums | PackedSums):
        swapped = isinstance(spec, FewSums) and spec.sides.of_image
        parts, whole = output.in_parts(node.types[0].dtype, spec.elements, spec.count)
        return [Launch(spec, tuple(reversed(factors)) if swapped else factors, (parts,)), whole]
    spec = replace(spec, epilogue=output.epilogue)
    return [Launch(spec, (*factors, *output.others), (output.result,))]


def _single_kernel(
    node: Node, few_channels: bool
) -> Depthwise | DepthwiseSums | PackedConv | PackedSums | ToFew | FromFew | FewSums | None:
    """The kernel of a node without groups of few channels; rules 2 to 4."""
    shape = depthwise_shape(node)
    if shape is not None:
        kind = node.op.name.removesuffix("_last")
        return DepthwiseSums(shape) if kind == "conv_wgrad" else Depthwise(shape, kind == "conv_dgrad")
    packed = packed_taps_kernel(node)
    if packed is not None:
        return packed
    return few_channels_kernel(node) if few_channels or prefers_direct(node) else None
