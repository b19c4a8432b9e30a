"""Makes channels of the taps along the first axis of large windows over few channels, as of a first layer of videos.

Before, with channels last::

    %1 = conv_last %x, %w {stride=(1, 2, 2), pad=(2, 3, 3), ...} : bf16[8, 32, 112, 112, 8]  # w is [8, 5, 7, 7, 3]

After, with x padded along the first axis and w along the channels::

    %2 = concat %x[:, 0:32], %x[:, 1:33], ..., zeros {axis=4} : bf16[8, 32, 224, 224, 16]
    %3 = conv_last %2, %v {stride=(1, 2, 2), pad=(0, 3, 3), ...} : bf16[8, 32, 112, 112, 8]  # v is [8, 1, 7, 7, 16]

Tensor cores read runs of 8 channels. Three colours that are filled up to a run make 5 of 8 products zeros; 5 times
three colours, filled up to 16, one of 16. The image takes more bytes, but a large window reads each of them often.
Results keep their bits up to the order of sums.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Final

from dslc.compiler.ir.graph import Node, Value
from dslc.compiler.ir.op import OPS, Builder
from dslc.compiler.ops.attrs import int_attr, int_tuple
from dslc.compiler.ops.spatial.channels_last import LAST, last_type
from dslc.compiler.ops.spatial.conv import Convolution

_LEAST: Final = 256  # elements of a window
_MOST: Final = 64  # channels that taps become: those of a tile
_TIMES: Final = 2  # as many products before as after


def is_deep(node: Node, run: int) -> bool:
    """Whether a convolution, or its gradient for the weight, of an image with less than a ``run`` of channels has such
    windows, and at least twice as many products otherwise."""
    assert isinstance(node.op, Convolution)
    _, weight, _ = (t.ints for t in node.op.tensors(node))
    _, into, first, *rest = weight
    if node.op.name == "conv_dgrad" or not rest or int_attr(node.attrs, "groups") != 1:
        return False
    overlaps = int_tuple(node.attrs, "stride")[0] < first
    large = into < run and prod(weight[1:]) >= _LEAST and first * into <= _MOST
    return large and overlaps and first * _filled(into, run) >= _TIMES * _filled(first * into, run)


def of_deep_windows(b: Builder, node: Node, inputs: Sequence[Value], run: int) -> Value:
    """The result, of inputs with channels last."""
    assert isinstance(node.op, Convolution)
    _, weight, result = (t.ints for t in node.op.tensors(node))
    out, into, first, *rest = weight
    attrs, more = dict(node.attrs), _filled(first * into, run) - first * into
    image = _unfolded(b, node, inputs[0], first, result[2], more)
    for name, one in (("stride", 1), ("pad", 0), ("dilation", 1)):
        attrs[name] = (one, *int_tuple(node.attrs, name)[1:])
    spare = _filled(out, run) - out
    if node.op.name == "conv":
        taps = b(OPS["transpose"], inputs[1], perm=(0, *range(2, 2 + len(rest)), 1, 2 + len(rest)))
        taps = b(OPS["reshape"], taps, shape=(out, 1, *rest, first * into))
        taps = _padded(b, taps, {0: (0, spare), taps.type.rank - 1: (0, more)})
        return _cut(b, b(LAST[node.op], image, taps, **attrs), last_type(node.types[0]).ints)
    attrs["size"] = (1, *rest)
    found = b(LAST[node.op], image, _padded(b, inputs[1], {inputs[1].type.rank - 1: (0, spare)}), **attrs)
    found = b(OPS["reshape"], _cut(b, found, (out, 1, *rest, first * into)), shape=(out, *rest, first, into))
    return b(OPS["transpose"], found, perm=(0, 1 + len(rest), *range(1, 1 + len(rest)), 2 + len(rest)))


def _unfolded(b: Builder, node: Node, x: Value, taps: int, count: int, more: int) -> Value:
    """For each window along the first axis the channels of its taps, and ``more`` of zeros."""
    stride, pad, dilation = (int_tuple(node.attrs, name)[0] for name in ("stride", "pad", "dilation"))
    x = _padded(b, x, {1: (pad, pad)})
    parts, shape = list[Value](), x.type.ints
    zeros, ones = (0,) * len(shape[2:]), (1,) * len(shape[2:])
    for start in range(0, taps * dilation, dilation):
        stops = (shape[0], start + (count - 1) * stride + 1, *shape[2:])
        parts.append(b(OPS["slice"], x, starts=(0, start, *zeros), stops=stops, steps=(1, stride, *ones)))
    if more:
        parts.append(b(OPS["full"], value=0.0, dtype=x.type.dtype, shape=(*parts[0].type.ints[:-1], more)))
    return b(OPS["concat"], *parts, axis=len(shape) - 1)


def _padded(b: Builder, x: Value, more: dict[int, tuple[int, int]]) -> Value:
    """Adds zeros before and after axes."""
    low, high = (tuple(more.get(axis, (0, 0))[end] for axis in range(x.type.rank)) for end in (0, 1))
    zeros = (0,) * x.type.rank
    return b(OPS["pad"], x, low=low, high=high, interior=zeros, value=0.0) if any((*low, *high)) else x


def _cut(b: Builder, x: Value, stops: tuple[int, ...]) -> Value:
    """The first elements along all axes."""
    zeros, ones = (0,) * len(stops), (1,) * len(stops)
    return x if x.type.ints == stops else b(OPS["slice"], x, starts=zeros, stops=stops, steps=ones)


def _filled(channels: int, run: int) -> int:
    return -(-channels // run) * run
