"""Group normalisations of images with channels last as reductions and pointwise ops.

Before, with 32 groups of 4 channels::

    %1, %2, %3 = groupnorm_last %x, %w, %b {groups=32} : bf16[8, 14, 14, 128], f32[8, 32], f32[8, 32]

After, in short::

    %1, %2 = fused_sums %x {x, x * x over=(1, 2)} : f32[8, 128], f32[8, 128]
    %3, %4, %5, %6 = group_moments %1, %2, %w : f32[8, 32], f32[8, 32], f32[8, 32, 4], f32[8, 32, 4]
    %7 = (x - %5) * %6 + b : bf16[8, 14, 14, 128]

The sums of a group are those of its channels. So the first kernel sums each channel of each image, in the order in
which images lie in memory, and only few numbers are added for each group. The gradients of weight and bias are sums of
the channels' sums over the batch: they do not read the images again.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from dslc.compiler.ir.graph import Node, Value
from dslc.compiler.ops.attrs import float_attr, int_attr
from dslc.compiler.ops.compound.fused_sums import fused_sums
from dslc.compiler.ops.normalization.group_sums import channel_sums, group_moments, group_slopes
from dslc.compiler.passes.lower.norms.parts import Norm


class GroupNorm(Norm):
    """A group normalisation of x ``[B, *space, C]``. What belongs to channels is ``[B, groups, channels of a group]``
    here."""

    def __init__(self, node: Node) -> None:
        super().__init__(node)
        batch, *space, channels = self.x.type.ints
        groups = int_attr(node.attrs, "groups") if "groups" in node.attrs else node.inputs[2].type.ints[1]
        self.shape = (batch, groups, channels // groups)
        self.over = tuple(range(1, 1 + len(space)))
        self.places = prod(space)

    def column(self, v: Value) -> Value:
        """What belongs to channels, or a vector over channels, shaped to broadcast against x."""
        batch, groups, each = self.shape
        return self.op("reshape", v, shape=(batch if v.type.rank > 1 else 1, *(1,) * len(self.over), groups * each))

    def per_channel(self, v: Value) -> Value:
        """What belongs to groups, for each of their channels."""
        return self.op("expand", self.op("reshape", v, shape=(*self.shape[:2], 1)), shape=self.shape)

    def channel_sums(self) -> tuple[Value, ...]:
        """The sums of x and of its squares for each channel of each image. If x has the dtype of the statistics, these
        are sums of differences from the channel's first element, and x itself comes after them. For 16-bit data,
        rounding the elements moves the variance at least as much as f32 sums of squares lose to an offset."""
        if self.is_wide:
            return *self.of_channels(self.b.node(channel_sums, self.x)), self.x
        body = (*self.as_wide(0), ("mul", (1, 1), ()))
        return self.of_channels(self.b.node(fused_sums, self.x, body=body, summed=(1, 2), over=self.over))

    def of_channels(self, sums: Node) -> tuple[Value, ...]:
        """Results ``[B, C]``, which belong to channels."""
        return tuple(self.op("reshape", v, shape=self.shape) for v in sums.outputs)

    def forward(self) -> Sequence[Value]:
        _, weight, bias = self.node.inputs
        added, squares, *shift = self.channel_sums()
        eps = float_attr(self.node.attrs, "eps")
        moments = self.b.node(group_moments, added, squares, weight, *shift, places=self.places, eps=eps)
        mean, invstd, *channels = moments.outputs
        middle, scale = map(self.column, channels)
        y = self.op("add", self.op("mul", self.op("sub", self.wide(self.x), middle), scale), self.column(bias))
        return self.narrow(y), mean, invstd

    def backward(self) -> Sequence[Value]:
        x, weight, mean, invstd, dy = self.node.inputs
        middle, scale = map(self.column, self.of_forward(weight, mean, invstd))
        # inputs dy, x, mean; sums of dy and of dy * (x - mean)
        body = self.as_wide(0, 1)
        wide_dy, wide_x = (3, 4) if body else (0, 1)
        at = 3 + len(body)
        body = (*body, ("sub", (wide_x, 2), ()), ("mul", (wide_dy, at), ()))
        sums = self.b.node(fused_sums, dy, x, middle, body=body, summed=(wide_dy, at + 1), over=self.over)
        added, sloped = self.of_channels(sums)
        count = self.places * self.shape[2]
        slope, shift = self.b.node(group_slopes, added, sloped, weight, invstd, count=count).outputs
        # dy * weight/std - ((x - mean) * slope + shift)
        along = self.op("mul", self.op("sub", self.wide(x), middle), self.column(slope))
        dx = self.op("sub", self.op("mul", self.wide(dy), scale), self.op("add", along, self.column(shift)))
        columns = self.op("reshape", invstd, shape=(*self.shape[:2], 1))
        vectors = self.b.node(
            fused_sums, added, sloped, columns, body=(("mul", (1, 2), ()),), summed=(3, 0), over=(0,)
        ).outputs
        return (self.narrow(dx), *(self.op("reshape", v, shape=weight.type.shape) for v in vectors))

    def of_forward(self, weight: Value, mean: Value, invstd: Value) -> Sequence[Value]:
        """For each channel the mean and weight/std, which the forward pass has if it is decomposed."""
        made = mean.producer
        if isinstance(made, Node) and made.op is group_moments and made.inputs[2] is weight:
            return made.outputs[2:]
        scale = self.op("mul", self.per_channel(invstd), self.op("reshape", weight, shape=(1, *self.shape[1:])))
        return self.per_channel(mean), scale
