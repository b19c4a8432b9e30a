"""Gives convolutions with channels last a form that tensor cores compute well: full runs of channels.

- A convolution between few channels and many is left alone if it has kernels of its own, or if its windows lie side by
  side and each line of one is whole runs, as of patches of 16 x 16 pixels with three colours.
- Channels that are no whole runs, such as the colours of an image, are filled up with zeros: those of an image up to a
  run always, others where that is less work than to multiply without tensor cores. Of a first layer only those of the
  result are, if kernels of its own then compute it: the image stays as it is.
- A pointwise convolution (window 1, stride 1) whose channels are no whole runs, or with three spatial axes, is one
  matrix product of ``[places, channels]``: libraries multiply matrices of any width, their convolutions need runs. So
  is one whose window is the whole image, of ``[images, places and channels]``.
- The gradient of an image by windows that lie side by side, if its channels are no whole runs, is one product, too, of
  which each row is a window. Places after the last window get zeros.
- Narrow groups are merged. The weight of ``m`` merged groups is block diagonal: zero between a group and another one's
  channels. That is ``m`` times the multiplications, on units that a narrow group leaves idle: with 4 channels a group,
  the 16 x 8 x 16 products of a tensor core hold 1/8 of use at most, and loads are of 8 bytes. Up to 64 channels fill a
  tile; 16 are enough where a GPU's kernels keep the pixels in shared memory.

Sums only gain products with zero. So results have the bits of the convolution up to the order of its sums, as long as
inputs are finite: an inf or nan of a channel makes the results of the groups merged with it nan.
"""

from __future__ import annotations

from math import prod
from typing import Final

from dslc.compiler.ir.graph import Node, Value
from dslc.compiler.ir.op import OPS, Builder
from dslc.compiler.ops.attrs import int_attr, int_tuple
from dslc.compiler.ops.spatial.channels_last import LAST, last_type
from dslc.compiler.ops.spatial.conv import Convolution
from dslc.compiler.ops.spatial.few_channels import RUN, RUN_BYTES, is_of_few_channels, packs_taps

#: Multiply-adds from which channels are filled up: without tensor cores they take longer than copies of the operands.
_MIN_FILLED: Final = 1 << 24
#: Channels from which a group is not merged: those that one instruction of a tensor core adds up (16-bit m16n8k16).
_NARROW: Final = 16
#: Channels to which narrow groups are merged: a tile of dslc's kernels and of libraries.
_MERGED: Final = 64
#: The most taps of a convolution whose pixels kernels keep in shared memory (``cuda/contraction/groups.py``).
_MOST_TAPS: Final = 49


def widened(b: Builder, node: Node, inputs: list[Value]) -> Value | None:
    """The result of a convolution or a gradient of it, of inputs with channels last, in a form that is faster; None for
    one that is well as it is. Sizes are ints."""
    if not all(prod(type.ints) for type in (*node.input_types, *node.types)):
        return None
    if is_of_few_channels(node, on_cores=True) or packs_taps(node, on_cores=True) or _reads_runs(node):
        return None
    if _is_product(node):
        return _product(b, node, inputs, last_type(node.types[0]).ints)
    if _is_of_windows(node):
        return _windows(b, node, inputs)
    lacking = _lacking(node)
    if any(lacking):
        return _with_runs(b, node, inputs, *lacking)
    count = _merged(node)
    return _of_merged_groups(b, node, inputs, count) if count > 1 else None


def _tensors(node: Node) -> tuple[tuple[int, ...], ...]:
    """The shapes of image, weight and result, with channels first."""
    assert isinstance(node.op, Convolution)
    return tuple(type.ints for type in node.op.tensors(node))


def _weight(node: Node) -> tuple[int, ...]:
    return _tensors(node)[1]


def _image(node: Node) -> tuple[int, ...]:
    return _tensors(node)[0]


def _result(node: Node) -> tuple[int, ...]:
    return _tensors(node)[2]


def _channels(node: Node) -> tuple[int, int]:
    """The channels of a group: of the image, and of the result of the convolution."""
    out, into = _weight(node)[:2]
    return into, out // int_attr(node.attrs, "groups")


def run_of(node: Node) -> int:
    """The channels that tensor cores read at once: 8 of 16 bits, 4 in TF32."""
    return RUN_BYTES // (2 if node.types[0].dtype.is_half else 4)


def _lacking(node: Node) -> tuple[int, int]:
    """How many channels are added to whole runs: to those of the image, and to those of the convolution's result."""
    if int_attr(node.attrs, "groups") != 1:
        return 0, 0
    into, out = _channels(node)
    if packs_taps(node, on_cores=True, filled=True):
        return 0, -out % RUN
    places = prod(_result(node)) // out
    if prod(_weight(node)) * places >= _MIN_FILLED:
        return -into % run_of(node), -out % run_of(node)
    return -into % run_of(node) if _has_few_channels(node) else 0, 0


def _has_few_channels(node: Node) -> bool:
    """Whether the channels of an image that is read are less than a run."""
    return node.op.name != "conv_dgrad" and _channels(node)[0] < run_of(node)


def _with_runs(b: Builder, node: Node, inputs: list[Value], into: int, out: int) -> Value:
    """The convolution of operands with that many more channels, of zeros, without the results for these."""
    kind = node.op.name
    first, second = inputs
    first = _padded(b, first, (-1, out if kind == "conv_dgrad" else into))
    second = _padded(b, second, (-1, out)) if kind == "conv_wgrad" else _padded(b, second, (-1, into), (0, out))
    fresh = b(LAST[node.op], first, second, **node.attrs)
    wanted = last_type(node.types[0]).ints
    if fresh.type.ints == wanted:
        return fresh
    rank = len(wanted)
    return b(OPS["slice"], fresh, starts=(0,) * rank, stops=wanted, steps=(1,) * rank)


def _padded(b: Builder, value: Value, *more: tuple[int, int]) -> Value:
    """Adds zeros at the end of axes: ``(axis, how many)``."""
    none, high = (0,) * value.type.rank, [0] * value.type.rank
    for axis, count in more:
        high[axis] = count
    return b(OPS["pad"], value, low=none, high=tuple(high), interior=none, value=0.0) if any(high) else value


def _is_product(node: Node) -> bool:
    """Whether a window meets one place of the image, or the image one window."""
    weight = _weight(node)
    window, ones = weight[2:], (1,) * (len(weight) - 2)
    if int_attr(node.attrs, "groups") != 1 or any(int_tuple(node.attrs, "pad")):
        return False
    if window == _image(node)[2:]:
        return True
    if window == ones:
        odd = len(ones) > 2 or any(channels % run_of(node) for channels in weight[:2])
        return odd and int_tuple(node.attrs, "stride") == ones and not _has_few_channels(node)
    return False


def _product(b: Builder, node: Node, inputs: list[Value], shape: tuple[int, ...]) -> Value:
    """The convolution, or its gradient, as one product, reshaped to ``shape``. An image has a row for each window, of
    the elements that it reads; a gradient has a row of results for each window; a weight maps one to the other."""
    kind, results, read = node.op.name, _weight(node)[0], prod(_weight(node)[1:])
    if kind == "conv" and read == inputs[0].type.ints[-1]:  # the axes stay, so that what reads the result fuses with it
        weight = b(OPS["reshape"], inputs[1], shape=(results, read))
        return b(OPS["matmul"], inputs[0], weight, transpose_a=False, transpose_b=True)
    width = {"conv": (read, read), "conv_dgrad": (results, read), "conv_wgrad": (read, results)}[kind]
    first, second = (b(OPS["reshape"], v, shape=(prod(v.type.ints) // w, w)) for v, w in zip(inputs, width))
    if kind == "conv_wgrad":  # of x and dy
        found = b(OPS["matmul"], second, first, transpose_a=True, transpose_b=False)
    else:
        found = b(OPS["matmul"], first, second, transpose_a=False, transpose_b=kind == "conv")
    return b(OPS["reshape"], found, shape=shape)


def _is_of_windows(node: Node) -> bool:
    """Whether a gradient of an image is one of windows side by side, of channels that are no whole runs."""
    return node.op.name == "conv_dgrad" and bool(_channels(node)[0] % run_of(node)) and _is_side_by_side(node)


def _is_side_by_side(node: Node) -> bool:
    """Whether no two windows share a place, and no window has a gap or a place outside of the image."""
    window, dilation = _weight(node)[2:], int_tuple(node.attrs, "dilation")
    touching = window == int_tuple(node.attrs, "stride") and all(k == 1 or d == 1 for k, d in zip(window, dilation))
    return touching and int_attr(node.attrs, "groups") == 1 and not any(int_tuple(node.attrs, "pad"))


def _reads_runs(node: Node) -> bool:
    """Whether a convolution of 16 bits reads its few channels in whole runs, as lines of windows side by side."""
    if node.op.name == "conv_dgrad" or not node.types[0].dtype.is_half or not _is_side_by_side(node):
        return False
    (into, out), run = _channels(node), run_of(node)
    lines = into * _weight(node)[-1], into * _image(node)[-1]
    return into < run and not out % run and not any(line % run for line in lines)


def _windows(b: Builder, node: Node, inputs: list[Value]) -> Value:
    """Each row of the product is a window, whose places are then put where they belong. Places that no window reads get
    zeros."""
    whole, window, count = last_type(node.types[0]).ints, _weight(node)[2:], node.inputs[0].type.ints[2:]
    rows = _product(b, node, inputs, (whole[0], *count, *window, whole[-1]))
    axes = range(1, 1 + len(window))
    paired = [axis for each in axes for axis in (each, each + len(window))]
    turned = b(OPS["transpose"], rows, perm=(0, *paired, 1 + 2 * len(window)))
    read = [n * k for n, k in zip(count, window)]
    placed = b(OPS["reshape"], turned, shape=(whole[0], *read, whole[-1]))
    return _padded(b, placed, *((axis, whole[axis] - size) for axis, size in zip(axes, read)))


def _merged(node: Node) -> int:
    """How many neighbouring groups become one; 1 if none."""
    groups, (into, out) = int_attr(node.attrs, "groups"), _channels(node)
    if into == 1 or max(into, out) >= _NARROW:  # depthwise convolutions have kernels of their own
        return 1
    known = [m for m in range(1, _MERGED // max(into, out) + 1) if groups % m == 0]
    whole = [m for m in known if m * max(into, out) <= _NARROW and not any(m * c % run_of(node) for c in (into, out))]
    return max(whole if whole and _keeps_pixels(node) else known)


def _keeps_pixels(node: Node) -> bool:
    """Whether a GPU's kernels compute whole runs of few channels from pixels in shared memory."""
    window, stride, dilation = _weight(node)[2:], int_tuple(node.attrs, "stride"), int_tuple(node.attrs, "dilation")
    # each class of pixels of a gradient for the image needs a tap
    back = node.op.name == "conv_dgrad"
    reached = not back or all(s == 1 or (d == 1 and s <= n) for n, s, d in zip(window, stride, dilation))
    # windows of one place keep an axis of three apart, or two that are one line (``Shape.in_planes``)
    apart = [each == (1, 1, 0) for each in zip(window, stride, int_tuple(node.attrs, "pad"))]
    plane = len(window) < 3 or (len(window) == 3 and (apart[0] or all(apart[1:])))
    return node.types[0].dtype.is_half and reached and plane and 1 < prod(window) <= _MOST_TAPS


def _of_merged_groups(b: Builder, node: Node, inputs: list[Value], count: int) -> Value:
    kind, (into, out) = node.op.name, _channels(node)
    attrs = {**node.attrs, "groups": int_attr(node.attrs, "groups") // count}
    # each weight of a group next to those of the groups that it is merged with
    window = prod(last_type(node.types[0] if kind == "conv_wgrad" else node.inputs[1].type).ints[1:-1])
    one, wide = (attrs["groups"], count, out * window, 1, into), (attrs["groups"], count, out * window, count, into)
    number = b(OPS["arange"], start=0, step=1, shape=(count,))
    own = b(
        OPS["eq"],
        b(OPS["reshape"], number, shape=(1, count, 1, 1, 1)),
        b(OPS["reshape"], number, shape=(1, 1, 1, count, 1)),
    )
    if kind != "conv_wgrad":
        weight = inputs[1]
        zero = b(OPS["full"], value=0.0, dtype=weight.type.dtype, shape=())
        blocks = b(OPS["where"], own, b(OPS["reshape"], weight, shape=one), zero)
        merged = b(OPS["reshape"], blocks, shape=(*weight.type.shape[:-1], count * into))
        return b(LAST[node.op], inputs[0], merged, **attrs)
    found = b(LAST[node.op], *inputs, **attrs)
    zero = b(OPS["full"], value=0.0, dtype=found.type.dtype, shape=())
    blocks = b(OPS["where"], own, b(OPS["reshape"], found, shape=wide), zero)
    summed = b(OPS["sum"], blocks, over=(3,), keep=False)
    return b(OPS["reshape"], summed, shape=last_type(node.types[0]).shape)
