"""Gives convolutions with channels last a form that tensor cores compute well: full runs of channels.

- Few input channels, such as the colours of an image, are filled up to a run with zeros.
- A pointwise convolution (window 1, stride 1) whose channels are no whole runs, or with three spatial axes, is one
  matrix product of ``[places, channels]``: libraries multiply matrices of any width, their convolutions need runs.
- Narrow groups are merged. The weight of ``m`` merged groups is block diagonal: zero between a group and another one's
  channels. That is ``m`` times the multiplications, on units that a narrow group leaves idle: with 4 channels a group,
  the 16 x 8 x 16 products of a tensor core hold 1/8 of use at most, and loads are of 8 bytes.

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

RUN: Final = 8  # channels that tensor cores read at once
#: Channels from which a group is not merged: those that one instruction of a tensor core adds up (16-bit m16n8k16).
_NARROW: Final = 16
#: Channels to which narrow groups are merged: a tile of dslc's kernels and of libraries.
_MERGED: Final = 64


def widened(b: Builder, node: Node, inputs: list[Value]) -> Value | None:
    """The result of a convolution or a gradient of it, of inputs with channels last, in a form that is faster; None for
    one that is well as it is. Sizes are ints."""
    kind = node.op.name
    if 0 < _lacking(node) < RUN and kind in ("conv", "conv_wgrad"):
        return _with_a_run(b, node, inputs)
    if _is_product(node):
        return _product(b, node, inputs)
    count = _merged(node)
    return _of_merged_groups(b, node, inputs, count) if count > 1 else None


def _channels(node: Node) -> tuple[int, int]:
    """The channels of a group: of the image, and of the result of the convolution."""
    groups, kind = int_attr(node.attrs, "groups"), node.op.name
    weight = node.types[0] if kind == "conv_wgrad" else node.inputs[1].type
    out, into = weight.ints[:2]
    return into, out // groups


def _lacking(node: Node) -> int:
    """How many channels the input lacks for a full run; 0 for grouped convolutions and from a run on."""
    channels = node.inputs[0].type.ints[1]
    return -channels % RUN if int_attr(node.attrs, "groups") == 1 and channels < RUN else 0


def _with_a_run(b: Builder, node: Node, inputs: list[Value]) -> Value:
    """A convolution of few channels with zero channels added up to a run. They cost less than loads of single
    elements."""
    more = _lacking(node)
    reads = (0, 1) if node.op.name == "conv" else (0,)  # a weight gradient's result has the few channels
    wide = [_padded(b, v, more) if i in reads else v for i, v in enumerate(inputs)]
    fresh = b(LAST[node.op], *wide, **node.attrs)
    if node.op.name == "conv_wgrad":
        *rest, channels = last_type(node.types[0]).ints
        starts, stops, steps = (0,) * (len(rest) + 1), (*rest, channels), (1,) * (len(rest) + 1)
        fresh = b(OPS["slice"], fresh, starts=starts, stops=stops, steps=steps)
    return fresh


def _padded(b: Builder, value: Value, more: int) -> Value:
    """Adds ``more`` zeros at the end of the last axis."""
    none = (0,) * value.type.rank
    return b(OPS["pad"], value, low=none, high=(*none[:-1], more), interior=none, value=0.0)


def _is_product(node: Node) -> bool:
    weight = node.types[0] if node.op.name == "conv_wgrad" else node.inputs[1].type
    space = weight.rank - 2
    pointwise = (
        int_attr(node.attrs, "groups") == 1
        and weight.ints[2:] == (1,) * space == int_tuple(node.attrs, "stride")
        and not any(int_tuple(node.attrs, "pad"))
    )
    return pointwise and (space > 2 or any(channels % RUN for channels in weight.ints[:2]))


def _product(b: Builder, node: Node, inputs: list[Value]) -> Value:
    first, second = (_matrix(b, v) for v in inputs)
    kind = node.op.name
    if kind == "conv_wgrad":  # of x and dy
        found = b(OPS["matmul"], second, first, transpose_a=True, transpose_b=False)
    else:
        found = b(OPS["matmul"], first, second, transpose_a=False, transpose_b=kind == "conv")
    return b(OPS["reshape"], found, shape=last_type(node.types[0]).shape)


def _matrix(b: Builder, value: Value) -> Value:
    """An image as its places by its channels, a weight as its results by its channels."""
    sizes = value.type.ints
    return b(OPS["reshape"], value, shape=(prod(sizes[:-1]), sizes[-1]))


def _merged(node: Node) -> int:
    """How many neighbouring groups become one; 1 if none."""
    groups, (into, out) = int_attr(node.attrs, "groups"), _channels(node)
    if into == 1 or max(into, out) >= _NARROW:  # depthwise convolutions have kernels of their own
        return 1
    fits = _MERGED // max(into, out)
    return max(m for m in range(1, fits + 1) if groups % m == 0)


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
