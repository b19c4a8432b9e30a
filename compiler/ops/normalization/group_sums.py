"""Ops that compute group normalisations of images with channels last from sums over each channel. The pass
``decompose`` makes these ops."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import TYPE_CHECKING, Any

from dslc.compiler.ir.graph import Attrs, Node, Value
from dslc.compiler.ir.op import Builder, Cost, NoGradient, Op, register
from dslc.compiler.ir.types import TensorType
from dslc.compiler.ops.attrs import int_attr
from dslc.compiler.ops.lazy import np

if TYPE_CHECKING:
    from dslc.compiler.ir.op import Array


class _GroupSums(Op):
    """Base of the ops of this file."""

    def grad(self, node: Node, dys: Sequence[Value | None], b: Builder) -> Sequence[Value | None]:
        raise NoGradient("normalisations are decomposed after differentiation")

    def cost(self, node: Node) -> Cost:
        """Of a fourth input, x or 1/std, few elements are read."""
        return Cost(10 * prod(node.types[-1].ints), sum(t.bytes for t in (*node.input_types[:3], *node.types)))


class ChannelSums(_GroupSums):
    """channel_sums(x): for each channel of each image the sums of the differences from its first element, and of their
    squares. x is ``[B, *space, C]``, each result ``[B, C]``."""

    name = "channel_sums"
    kernel_kind = "sums"

    def infer(self, types: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
        batch, *_, channels = types[0].ints
        return (TensorType(types[0].dtype, (batch, channels)),) * 2

    def meaning(self, xs: Sequence[Array], attrs: Mapping[str, Any]) -> Sequence[Array]:
        [x] = xs
        with np.errstate(all="ignore"):
            lines = x.reshape(x.shape[0], -1, x.shape[-1])
            apart = lines - lines[:, :1]
            return np.sum(apart, axis=1), np.sum(np.square(apart), axis=1)

    def cost(self, node: Node) -> Cost:
        return Cost(4 * prod(node.input_types[0].ints), sum(t.bytes for t in (*node.input_types, *node.types)))


class GroupMoments(_GroupSums):
    """group_moments(added, squares, weight, x): the mean and 1/std of groups, and what is applied to each channel.

    ``added`` and ``squares`` ``[B, groups, channels of a group]`` are the sums, over the places of an image, of the
    differences from a shift and of their squares; ``weight`` is ``[C]``. The shift is 0, or with x ``[B, *space, C]``
    each channel's first element. Outputs: mean and 1/std ``[B, groups]``, with the biased variance; for each channel
    the mean and weight/std, shaped like the sums. Attributes ``places``, the elements of a channel, and ``eps``.

    The moments of channels are combined as in Chan, Golub and LeVeque 1983: the squared differences from a channel's
    own mean, and those of the means. So an offset of the data, or of a channel, loses few digits.
    """

    name = "group_moments"

    def infer(self, types: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
        added, squares, weight, *x = types
        batch, groups, each = added.ints
        statistic = TensorType(added.dtype, (batch, groups))
        assert added == squares and weight.ints == (groups * each,) and int_attr(attrs, "places") > 0
        assert all((t.ints[0], t.ints[-1]) == (batch, groups * each) for t in x)
        return statistic, statistic, added, added

    def meaning(self, xs: Sequence[Array], attrs: Mapping[str, Any]) -> Sequence[Array]:
        added, squares, weight, *x = xs
        inner, each = added.dtype.type, added.shape[2]
        places = inner(attrs["places"])
        with np.errstate(all="ignore"):
            apart = added / places
            own = np.maximum(squares - added * apart, inner(0))  # of differences from each channel's mean
            first = (
                x[0].reshape(x[0].shape[0], -1, x[0].shape[-1])[:, 0].reshape(added.shape) if x else apart * inner(0)
            )
            means = first - first[:, :, :1] + apart  # less the first channel's shift
            middle = np.sum(means, axis=2, keepdims=True) / inner(each)
            var = np.sum(own + places * np.square(means - middle), axis=2) / (places * inner(each))
            mean = first[:, :, :1] + middle
            invstd = 1 / np.sqrt(var + inner(attrs["eps"]))
            scale = invstd[:, :, None] * weight.reshape(added.shape[1:])
        return mean[:, :, 0], invstd, np.array(np.broadcast_to(mean, added.shape)), scale


class GroupSlopes(_GroupSums):
    """group_slopes(added, sloped, weight, invstd): what the gradient of a group normalisation applies to each channel.

    ``added`` and ``sloped`` ``[B, groups, channels of a group]`` are the sums, over the places of an image, of dy and
    of dy * (x - mean); ``weight`` is ``[C]``, ``invstd`` ``[B, groups]`` is 1/std. Outputs, shaped like the sums: slope
    and shift, with which the gradient of x is dy * weight/std - ((x - mean) * slope + shift). Attribute ``count``: the
    elements of a group.
    """

    name = "group_slopes"

    def infer(self, types: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
        added, sloped, weight, invstd = types
        batch, groups, each = added.ints
        assert added == sloped and weight.ints == (groups * each,) and invstd.ints == (batch, groups)
        assert int_attr(attrs, "count") > 0
        return added, added

    def meaning(self, xs: Sequence[Array], attrs: Mapping[str, Any]) -> Sequence[Array]:
        added, sloped, weight, invstd = xs
        with np.errstate(all="ignore"):
            factor = weight.reshape(added.shape[1:])
            first, second = (np.sum(x * factor, axis=2) for x in (added, sloped))
            scale = invstd / added.dtype.type(attrs["count"])
            found = (second * invstd * invstd * scale, first * scale)
        return [np.array(np.broadcast_to(x[:, :, None], added.shape)) for x in found]


channel_sums = register(ChannelSums())
group_moments = register(GroupMoments())
group_slopes = register(GroupSlopes())
