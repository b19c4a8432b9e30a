"""Moves between channels, and between channels and pixels: channel_shuffle, pixel_shuffle, pixel_unshuffle."""

from __future__ import annotations

from dslc.compiler.ir.function import Call, Function, function
from dslc.compiler.ir.graph import Value
from dslc.compiler.ir.op import Mismatch
from dslc.compiler.ir.sizes import Size, exact_div
from dslc.compiler.ops.shape.views import reshape, transpose


def _divided(name: str, x: Value, size: Size, by: int, what: str) -> Size:
    """``size / by``; raises Mismatch."""
    if by < 1:
        raise Mismatch(f"`{name}` by {by}", "a number of at least 1", "E0209")
    left = exact_div(size, by)
    if left is None:
        raise Mismatch(f"`{name}` of {x.type}: {what} {size} is no multiple of {by}", None, "E0303")
    return left


def _spatial(name: str, x: Value) -> int:
    """The number of spatial axes; raises Mismatch."""
    if x.type.rank < 3:
        raise Mismatch(f"`{name}` of {x.type}", "it takes [B, C, *space]", "E0306")
    return x.type.rank - 2


class ChannelShuffle(Function):
    """channel_shuffle(x, groups): channel i of group g of ``[B, C, *space]`` becomes channel g of group i.

    Between convolutions with groups, as in ShuffleNet (Zhang et al. 2018).

    given: x: [B, 6, 7, 7]
    >>> channel_shuffle(x, 3)
    """

    name = "channel_shuffle"

    def build(self, call: Call, x: Value, groups: int) -> Value:
        _spatial(self.name, x)
        batch, channels, *space = x.type.shape
        each = _divided(self.name, x, channels, groups, "the number of channels,")
        split = call.emit(reshape, x, shape=(batch, groups, each, *space))
        moved = call.emit(transpose, split, perm=(0, 2, 1, *range(3, len(space) + 3)))
        return call.emit(reshape, moved, shape=x.type.shape)


class PixelShuffle(Function):
    """pixel_shuffle(x, r): ``[B, C*r*r, H, W]`` becomes ``[B, C, H*r, W*r]`` (Shi et al. 2016); with any spatial axes.

    given: x: [B, 12, 7, 7]
    >>> pixel_shuffle(x, 2)
    """

    name = "pixel_shuffle"

    def build(self, call: Call, x: Value, r: int) -> Value:
        axes = _spatial(self.name, x)
        batch, channels, *space = x.type.shape
        each = _divided(self.name, x, channels, max(r, 0) ** axes, "the number of channels,")
        split = call.emit(reshape, x, shape=(batch, each, *(r,) * axes, *space))
        perm = (0, 1, *(at for axis in range(axes) for at in (2 + axes + axis, 2 + axis)))
        moved = call.emit(transpose, split, perm=perm)
        return call.emit(reshape, moved, shape=(batch, each, *(n * r for n in space)))


class PixelUnshuffle(Function):
    """pixel_unshuffle(x, r): ``[B, C, H*r, W*r]`` becomes ``[B, C*r*r, H, W]``, the inverse of ``pixel_shuffle``.

    given: x: [B, 3, 14, 14]
    >>> pixel_unshuffle(x, 2)
    """

    name = "pixel_unshuffle"

    def build(self, call: Call, x: Value, r: int) -> Value:
        axes = _spatial(self.name, x)
        batch, channels, *space = x.type.shape
        less = tuple(_divided(self.name, x, n, r, "the size") for n in space)
        split = call.emit(reshape, x, shape=(batch, channels, *(each for n in less for each in (n, r))))
        perm = (0, 1, *(3 + 2 * axis for axis in range(axes)), *(2 + 2 * axis for axis in range(axes)))
        moved = call.emit(transpose, split, perm=perm)
        return call.emit(reshape, moved, shape=(batch, channels * r**axes, *less))


for _function in (ChannelShuffle, PixelShuffle, PixelUnshuffle):
    function(_function())
