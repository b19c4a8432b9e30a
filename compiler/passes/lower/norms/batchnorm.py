"""Batch normalisations as reductions and pointwise ops."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from dslc.compiler.ir.graph import Node, Value
from dslc.compiler.ops.attrs import float_attr
from dslc.compiler.ops.compound.fused_sums import fused_sums
from dslc.compiler.passes.lower.norms.parts import Norm


class BatchNorm(Norm):
    """A batch normalisation and the axes that it reduces."""

    def __init__(self, node: Node) -> None:
        super().__init__(node)
        shape = self.x.type.ints
        channels = len(shape) - 1 if node.op.name.endswith("_last") else 1
        self.over = tuple(a for a in range(len(shape)) if a != channels)
        self.count = prod(shape[a] for a in self.over)

    def column(self, v: Value) -> Value:
        """A vector over channels, shaped to broadcast against x."""
        shape = [1] * self.x.type.rank
        [channels] = {*range(len(shape))} - {*self.over}
        shape[channels] = v.type.ints[0]
        return self.op("reshape", v, shape=tuple(shape))

    def shift(self, old_mean: Value) -> Value:
        """A value per channel close to the channel's elements, so that sums of differences from it cancel little.

        The first element is always close, whatever the offset of the data. For 16-bit data with an offset, rounding the
        elements moves the variance at least as much as f32 sums lose to that offset. So the running mean is as good
        there and needs no gather.
        """
        if not self.is_wide:
            return old_mean
        shape = self.x.type.ints
        stops = tuple(1 if axis in self.over else size for axis, size in enumerate(shape))
        first = self.op("slice", self.x, starts=(0,) * len(shape), stops=stops, steps=(1,) * len(shape))
        return self.op("reshape", first, shape=old_mean.type.shape)

    def forward(self) -> Sequence[Value]:
        _, weight, bias, old_mean, old_var = self.node.inputs
        momentum, eps = float_attr(self.node.attrs, "momentum"), float_attr(self.node.attrs, "eps")
        cast = self.as_wide(0)
        at = 2 + len(cast)  # index of the difference from the shift
        body = (*cast, ("sub", (at - 1 if cast else 0, 1), ()), ("mul", (at, at), ()))
        shift = self.shift(old_mean)
        sums = self.b.node(fused_sums, self.x, self.column(shift), body=body, summed=(at, at + 1), over=self.over)
        apart = self.op("div", sums.outputs[0], float(self.count))  # mean minus shift
        mean = self.op("add", shift, apart)
        square = self.op("sub", self.op("div", sums.outputs[1], float(self.count)), self.op("mul", apart, apart))
        var = self.op("maximum", square, 0.0)
        invstd = self.op("rsqrt", self.op("add", var, eps))
        unbiased = self.op("mul", var, self.count / max(1, self.count - 1))
        running = [
            self.op("add", self.op("mul", old, 1 - momentum), self.op("mul", new, momentum))
            for old, new in ((old_mean, mean), (old_var, unbiased))
        ]
        centred = self.op("sub", self.wide(self.x), self.column(mean))
        scale = self.column(self.op("mul", invstd, weight))
        y = self.narrow(self.op("add", self.op("mul", centred, scale), self.column(bias)))
        return (y, *running, mean, invstd)

    def backward(self) -> Sequence[Value]:
        x, weight, mean, invstd, dy = self.node.inputs
        middle, scale = self.column(mean), self.column(invstd)
        # inputs dy, x, mean, 1/std; sums of dy and of dy * (x - mean) / std
        body = self.as_wide(0, 1)
        wide_dy, wide_x = (4, 5) if body else (0, 1)
        at = 4 + len(body)
        body = (*body, ("sub", (wide_x, 2), ()), ("mul", (at, 3), ()), ("mul", (wide_dy, at + 1), ()))
        summed = (wide_dy, at + 2)
        sums = self.b.node(fused_sums, dy, x, middle, scale, body=body, summed=summed, over=self.over)
        d_bias, d_weight = sums.outputs
        # dy * outer - ((x - mean) * slope + shift): few operations and few channel vectors per element
        outer = self.op("mul", invstd, weight)  # the forward pass computes it, too
        slope = self.op("mul", self.op("mul", self.op("mul", d_weight, invstd), outer), 1 / self.count)
        shift = self.op("mul", self.op("mul", d_bias, outer), 1 / self.count)
        along = self.op("mul", self.op("sub", self.wide(x), middle), self.column(slope))
        own = self.op("mul", self.wide(dy), self.column(outer))
        dx = self.op("sub", own, self.op("add", along, self.column(shift)))
        return self.narrow(dx), d_weight, d_bias
